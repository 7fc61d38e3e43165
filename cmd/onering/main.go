// Onering trains language models with group-based reinforcement learning on
// ONNX Runtime; see package cmd.
package main

import "onering/cmd"

func main() { cmd.Main() }
