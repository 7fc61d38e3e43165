package rl

import "time"

// Suites are suites without settings of their own.
func Suites(paths ...string) (list suites) {
	for _, path := range paths {
		list = append(list, suite{Path: path})
	}
	return list
}

// SetClock gives a trainer another clock before it runs.
func SetClock(t *trainer, now func() time.Time) { t.run.Clock.Now = now }

// SetBeforePass makes a trainer call f before each pass of a step.
func SetBeforePass(t *trainer, f func(tokens int) error) { t.run.BeforePass = f }
