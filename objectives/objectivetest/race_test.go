//go:build race

package objectivetest_test

const race = true
