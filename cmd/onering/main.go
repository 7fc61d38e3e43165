// Onering trains language models with group-based reinforcement learning on
// ONNX Runtime. Results go to stdout; logs and progress go to stderr.
//
// Exit codes: 0 success, 1 something failed, 2 the command line or the
// configuration is wrong.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
