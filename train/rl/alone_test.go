package rl

import (
	"context"
	"log/slog"

	"onering/policy"
	"onering/runtime"
	"onering/train"
	"onering/train/metrics"
	"onering/train/ranks"
)

// New is NewOn for a process that is the only rank.
func New(ctx context.Context, c Config, env *runtime.Env, p *policy.Policy, log *slog.Logger, observer metrics.Observer) (*trainer, error) {
	return NewOn(ctx, c, train.Setup{Ranks: ranks.Alone(), Policy: p, Log: log, Observer: observer})
}
