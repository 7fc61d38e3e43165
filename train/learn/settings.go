package learn

import (
	"onering/models"
	"onering/models/optim/adamw"
)

// UpdateSettings are AdamW with a learning rate and a clip: what run files and
// the commands that take optimizer steps declare of an update.
type UpdateSettings struct {
	LearningRate float64 `toml:"learning_rate" flag:"lr" range:"(0,)" help:"learning rate, the highest of a schedule"`
	adamw.AdamW
	MaxGradNorm float64 `toml:"max_grad_norm" range:"[0,)" note:"0 turns it off" help:"scale a gradient of a larger Euclidean norm down to this norm"`
}

// Rule is the optimizer.
func (u UpdateSettings) Rule() models.Optimizer { return u.AdamW }
