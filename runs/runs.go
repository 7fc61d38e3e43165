// Package runs has the run file that is part of the program.
package runs

import _ "embed"

// Small is the recipe "small" of onering train.
//
//go:embed math.toml
var Small []byte
