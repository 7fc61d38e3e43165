package learn

import (
	"math"

	"onering/internal/settings"
	"onering/models"
)

// A Schedule is the course of the learning rate over the steps of a run.
type Schedule struct {
	Warmup float64 `toml:"warmup" range:"[0,1000000000]" note:"below 1 it is a share of the run's steps" help:"steps over which the learning rate rises linearly from 0; the last of them has the whole rate"`
	Shape  string  `toml:"schedule" choice:"constant linear cosine" note:"the first step after the warmup has the whole rate, and the end that floor names is reached with the end of the run, after its last step. Where an objective drops groups, the schedule follows the rounds" help:"learning rate after the warmup"`
	Floor  float64 `toml:"floor" needs:"schedule!=constant" range:"[0,1]" help:"share of the rate that linear and cosine end at"`
}

// Rate is the learning rate of the step after n others in a run of total steps whose
// highest rate is peak. total may change during the run, as more is known of it.
func (s Schedule) Rate(peak float64, n int, total float64) float64 {
	warmup := s.warmup(total)
	if done := float64(n); done < warmup {
		return peak * min(1, (done+1)/warmup)
	}
	share := 1.0 // number of finished steps after the warm-up
	if total > warmup {
		share = min(1, (float64(n)-warmup)/(total-warmup))
	}
	left := 1.0
	switch s.Shape {
	case "linear":
		left = 1 - share
	case "cosine":
		left = 0.5 * (1 + math.Cos(math.Pi*share))
	}
	return peak * (s.Floor + (1-s.Floor)*left)
}

// warmup returns how many of the given steps the warm-up takes.
func (s Schedule) warmup(total float64) float64 {
	if s.Warmup < 1 {
		return s.Warmup * total
	}
	return s.Warmup
}

// UpdateSettings are an optimizer with a learning rate and a clip: what run files and
// the commands that take optimizer steps declare of an update.
type UpdateSettings struct {
	Name         string  `toml:"name" flag:"optimizer" help:"a registered optimizer"`
	LearningRate float64 `toml:"learning_rate" flag:"lr" range:"(0,)" help:"learning rate, the highest of a schedule"`
	MaxGradNorm  float64 `toml:"max_grad_norm" range:"[0,)" note:"0 turns it off" help:"scale a gradient of a larger Euclidean norm down to this norm"`
	// Rule is the optimizer itself, whose exported fields are the other keys of the section.
	Rule models.Optimizer `toml:"-" choose:"optimizer"`
}

func init() { settings.Register("optimizer", models.Optimizers, models.NewOptimizer) }
