package models

import "onering/internal/registry"

// An Optimizer is the arithmetic of an update of the weights. It is also the optimizer's
// settings, in exported fields with the tags of package settings. A runtime holds the
// state and runs the Programs over weights and gradients; an input of the Programs clips
// the gradients and removes the scale of the loss.
//
// Weights, gradients and state are always float32.
type Optimizer interface {
	// State lists the arrays that the optimizer keeps between updates, with one
	// element per weight. They start at zero.
	State() []OptimizerState
	// ByTensor says whether an update needs whole tensors, for instance the norm of a
	// matrix or of its rows. Otherwise elements are updated in slices that ignore where
	// tensors begin, which is fast for any layout.
	ByTensor() bool
	// Program is one update of a tensor of a shape, or of a slice of n elements, in which
	// case shape is nil. Its inputs are "p" and "g", the weights and gradients, "clip",
	// by which gradients are to be multiplied, the ports of State and the names of
	// Scalars; its outputs, in place, "p1" and the ports of State with a 1 appended; see
	// graph.After if an output overwrites a value that others read. If copy is not F32,
	// the output "copy" is the new weights rounded to it.
	Program(shape []int, copy DType) (Program, error)
	// Scalars returns the numbers that update n, counted from 1, needs at a learning
	// rate, by input name. They have no dimensions.
	Scalars(n int, rate float64) map[string]float64
}

// An OptimizerState is an array with the layout of the weights: Name is its name in
// checkpoints, such as "exp_avg", and Port the input of the Programs.
type OptimizerState struct{ Name, Port string }

var optimizers = registry.Makers[Optimizer]{Package: "models", Kind: "optimizer"}

// RegisterOptimizer makes an optimizer known by name; call it from init. new returns a fresh one with its default
// settings. It panics if the name is empty or taken or new is nil: these are mistakes in the program.
func RegisterOptimizer(name string, new func() Optimizer) { optimizers.Register(name, new) }

// Optimizers returns the names of all optimizers in alphabetical order.
func Optimizers() []string { return optimizers.Names() }

// NewOptimizer returns an optimizer with its default settings.
func NewOptimizer(name string) (Optimizer, error) { return optimizers.New(name) }
