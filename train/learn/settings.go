package learn

import (
	"onering/internal/settings"
	"onering/models"
)

// UpdateSettings are an optimizer with a learning rate and a clip: what run files and
// the commands that take optimizer steps declare of an update.
type UpdateSettings struct {
	Name         string  `toml:"name" flag:"optimizer" help:"a registered optimizer"`
	LearningRate float64 `toml:"learning_rate" flag:"lr" range:"(0,)" help:"learning rate, the highest of a schedule"`
	MaxGradNorm  float64 `toml:"max_grad_norm" range:"[0,)" note:"0 turns it off" help:"scale a gradient of a larger Euclidean norm down to this norm"`
	// Rule is the optimizer itself, whose exported fields are further keys of the section.
	Rule models.Optimizer `toml:"-" choose:"optimizer"`
}

func init() { settings.Register("optimizer", models.Optimizers, models.NewOptimizer) }
