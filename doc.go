// Package onering is a trainer for group-based reinforcement learning on
// language models, running on ONNX Runtime. The program is cmd/onering; the
// packages are described in docs/architecture.md in the order in which data
// passes through them.
package onering
