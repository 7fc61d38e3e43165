//go:build race

package verifier_test

// raceEnabled says that times mean nothing.
const raceEnabled = true
