package rl

import "time"

// SetClock gives a trainer another clock before it runs.
func SetClock(t *Trainer, now func() time.Time) { t.run.Clock.Now = now }
