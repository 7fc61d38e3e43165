// Package tools reads the calls of functions that a model writes in an answer. How a family
// writes them is found from what its chat template writes: see Of.
//
// A text is read once from its beginning to its end, in pieces as they come or whole, with the
// same result. What is no call, or not a well-formed one, stays in the content as it is, so
// nothing that a model wrote is lost. What stands in its thought (<think> ... </think>) is not
// read as calls.
package tools
