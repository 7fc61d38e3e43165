package report

import (
	"onering/internal/stat"
	"slices"
	"strings"
)

// maxComponents is the largest number of components that get a figure.
const maxComponents = 24

// rewardPlot returns the plot of the reward, and of the share of right responses if it is not the same.
func rewardPlot(runs []*Run) plot {
	p := plot{"reward", "Reward", "Mean reward of the sampled responses, by round.", rounds, []trace{{"reward", "mean", ""}}, zeroToOne}
	if differsFromReward(runs, "right_share") {
		p.note += " Dashed: share of right responses."
		p.traces = append(p.traces, trace{"right_share", "right", "dashed"})
	}
	return p
}

// differsFromReward says whether a run has a metric that is not its reward.
func differsFromReward(runs []*Run, metric string) bool {
	return slices.ContainsFunc(runs, func(r *Run) bool {
		x := r.Rounds.Column(metric)
		return x != nil && !slices.Equal(x, r.Rounds.Column("reward"))
	})
}

// lossPlots returns the plots of runs that are all supervised: their losses, which fall if they learn.
func lossPlots(runs []*Run) []plot {
	if !allSupervised(runs) {
		return nil
	}
	return []plot{
		{"held-out-loss", "Held-out loss", "Mean loss of a token of the held-out texts.", evals, []trace{{heldOutLoss, "held-out", ""}}, dataRange},
		{"train-loss", "Training loss", "Mean loss of a token, of each optimizer step.", steps, []trace{{"loss", "loss", ""}}, dataRange},
		{"entropy-steps", "Entropy", "Mean entropy of the model at the learned tokens, in nats.", steps, []trace{{"entropy", "mean", ""}}, fromZero},
	}
}

func allSupervised(runs []*Run) bool {
	return !slices.ContainsFunc(runs, func(r *Run) bool { return !r.supervised() })
}

// componentPlots returns a plot for each component of the rewards. It returns none if
// there is only one component and it is the reward itself, which has a plot already.
func componentPlots(runs []*Run) []plot {
	names := metricNames(runs, rounds, "reward/", "/mean")
	if len(names) == 1 && !differsFromReward(runs, names[0]) {
		return nil
	}
	var plots []plot
	for _, name := range names[:min(len(names), maxComponents)] {
		component := strings.TrimSuffix(strings.TrimPrefix(name, "reward/"), "/mean")
		plots = append(plots, plot{
			"reward-" + component, "Reward " + component, "Mean value of this part of the reward, without its weight, by round.", rounds,
			[]trace{{name, "mean", ""}}, zeroToOne,
		})
	}
	return plots
}

// widened is the axis of p, or that of the data where some of it lies outside 0 to 1:
// a reward may be more, or negative.
func (p plot) widened(groups []*group) axis {
	if p.axis != zeroToOne {
		return p.axis
	}
	for _, g := range groups {
		for _, r := range g.runs {
			for _, t := range p.traces {
				if slices.ContainsFunc(stat.Finite(p.table(r).Column(t.metric)), func(x float64) bool { return x < 0 || x > 1 }) {
					return dataRange
				}
			}
		}
	}
	return p.axis
}
