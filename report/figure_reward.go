package report

import (
	"onering/internal/stat"
	"slices"
	"strings"
)

// maxComponents is the largest number of components that get a figure.
const maxComponents = 24

// rewardPlot returns the plot of the reward, and of the share of right responses if it is
// not the same.
func rewardPlot(runs []*Run) plot {
	p := plot{"reward", "Reward", "Mean reward of the sampled responses, by round.", rounds, []trace{{"reward", "mean", ""}}, zeroToOne}
	if slices.ContainsFunc(runs, func(r *Run) bool {
		x := r.Rounds.Column("right_share")
		return x != nil && !slices.Equal(x, r.Rounds.Column("reward"))
	}) {
		p.note += " Dashed: share of right responses."
		p.traces = append(p.traces, trace{"right_share", "right", "dashed"})
	}
	return p
}

// lossPlots returns the plots of runs that are all supervised: their losses, which fall if
// they learn.
func lossPlots(runs []*Run) []plot {
	if slices.ContainsFunc(runs, func(r *Run) bool { return !r.supervised() }) {
		return nil
	}
	return []plot{
		{"held-out-loss", "Held-out loss", "Mean loss of a token of the held-out texts.", evals, []trace{{heldOutLoss, "held-out", ""}}, dataRange},
		{"train-loss", "Training loss", "Mean loss of a token, of each optimizer step.", steps, []trace{{"loss", "loss", ""}}, dataRange},
		{"entropy-steps", "Entropy", "Mean entropy of the model at the learned tokens, in nats.", steps, []trace{{"entropy", "mean", ""}}, fromZero},
	}
}

// componentPlots returns a plot for each component of the rewards. It returns none if
// there is only one component and it is the reward itself, which has a plot already.
func componentPlots(runs []*Run) []plot {
	names := componentNames(runs)
	if len(names) == 1 && !slices.ContainsFunc(runs, func(r *Run) bool {
		x := r.Rounds.Column(names[0])
		return x != nil && !slices.Equal(x, r.Rounds.Column("reward"))
	}) {
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

// componentNames returns the names of the components' metrics that at least one run
// has, such as reward/math/mean, sorted.
func componentNames(runs []*Run) []string {
	var names []string
	for _, r := range runs {
		for _, name := range r.Rounds.Names() {
			if strings.HasPrefix(name, "reward/") && strings.HasSuffix(name, "/mean") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
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
