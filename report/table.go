package report

import (
	"maps"
	"math"
	"onering/internal/stat"
	"slices"
	"strings"
)

// A summary is the page's table. Its row for a run has the settings in which the runs
// differ and the run's results.
type summary struct {
	Columns []column `json:"columns"`
	Rows    []row    `json:"rows"`
}

// A column of numbers shows Digits digits after the decimal point. A column of text has Digits -1.
type column struct {
	Name   string `json:"name"`
	Title  string `json:"title,omitempty"` // the tooltip
	Digits int    `json:"digits"`
}

// A row is one run.
type row struct {
	Color string `json:"color"`
	Cells []any  `json:"cells"`
}

// A result is one column of the table that is computed from a run.
type result struct {
	name, title string
	digits      int
	value       func(*Run) float64
}

var results = []result{
	{"held-out loss, first", "", 4, func(r *Run) float64 { return r.Evals.First(heldOutLoss) }},
	{"held-out loss, last", "", 4, func(r *Run) float64 { return r.Evals.Last(heldOutLoss) }},
	{"loss, last", "mean of the last tenth of the steps", 4, func(r *Run) float64 {
		if !r.supervised() {
			return math.NaN() // the level of an objective's loss says nothing
		}
		_, last := firstAndLastTenth(r.Steps.Column("loss"))
		return last
	}},
	{"reward, first", "mean of the first tenth of the rounds", 3, func(r *Run) float64 { a, _ := firstAndLastTenth(r.Rounds.Column("reward")); return a }},
	{"reward, last", "mean of the last tenth of the rounds", 3, func(r *Run) float64 { return lastTenth(r, "reward") }},
	{"right, last", "share of right responses in the last tenth of the rounds", 3, func(r *Run) float64 {
		if slices.Equal(r.Rounds.Column("right_share"), r.Rounds.Column("reward")) {
			return math.NaN() // the reward shows the same
		}
		return lastTenth(r, "right_share")
	}},
	{"grad norm, median", "", 3, func(r *Run) float64 { return stat.Quantile(r.Steps.Column("grad_norm"), 0.5) }},
	{"grad norm, max", "", 3, func(r *Run) float64 { return stat.Quantile(r.Steps.Column("grad_norm"), 1) }},
	{"entropy, last", "nats per token in the last tenth of the rounds", 4, func(r *Run) float64 { return lastTenth(r, "entropy") }},
	{"length, last", "tokens per response in the last tenth of the rounds", 1, func(r *Run) float64 { return lastTenth(r, "response_length/mean") }},
	{"p", "mean over steps", 3, func(r *Run) float64 { return stat.Mean(r.Steps.Column("p/mean")) }},
	{"at p_max", "share of responses, mean over steps", 3, func(r *Run) float64 { return stat.Mean(r.Steps.Column("p/share_at_max")) }},
	{"f", "share of tokens whose log-ratio is beyond eps_ess, mean over steps", 4, func(r *Run) float64 { return stat.Mean(r.Steps.Column("clip_fraction")) }},
	{"clipped", "share of tokens that the clip cuts, mean over steps", 4, func(r *Run) float64 { return stat.Mean(r.Steps.Column("clipped")) }},
	{"steps", "", 0, func(r *Run) float64 { return float64(r.Steps.Len()) }},
	{"seconds", "in rounds, or in the steps of a supervised run", 1, func(r *Run) float64 {
		if _, _, total := r.Seconds(); total > 0 {
			return total
		}
		return math.NaN()
	}},
	{"log-prob gap", "largest difference between sampler and learner", 4, func(r *Run) float64 { return stat.Quantile(r.Rounds.Column("logp_gap_max"), 1) }},
}

// lastTenth returns the mean of a metric over the last tenth of the rounds, or NaN if no round has it.
func lastTenth(r *Run, name string) float64 {
	_, last := firstAndLastTenth(r.Rounds.Column(name))
	return last
}

// tabulate makes the page's table: a row for each run, in the order of groups, with the settings in which
// runs differ, the evaluations and the results that some run has.
func tabulate(runs []*Run) summary {
	keys := varyingKeys(runs)
	if slices.ContainsFunc(runs, func(r *Run) bool { return r.Config["train.seed"] != runs[0].Config["train.seed"] }) {
		keys = append(keys, "train.seed")
	}
	all := slices.Clone(results) // the results of every page; those of evaluations come before them
	for _, name := range slices.Backward(evalNames(runs)) {
		short := strings.TrimPrefix(name, "eval/")
		all = slices.Insert(all, 0,
			result{name: short + ", first", digits: 3, value: func(r *Run) float64 { return r.Evals.First(name) }},
			result{name: short + ", last", digits: 3, value: func(r *Run) float64 { return r.Evals.Last(name) }})
	}
	const noDigits = -1 // of a column of text
	s := summary{Columns: []column{{"run", "", noDigits}}}
	for _, key := range keys {
		_, short, _ := strings.Cut(key, ".")
		if short == "name" {
			short = "objective"
		}
		s.Columns = append(s.Columns, column{short, key, noDigits})
	}
	// Omit results that no run has.
	all = slices.DeleteFunc(all, func(x result) bool {
		return !slices.ContainsFunc(runs, func(r *Run) bool { return !math.IsNaN(x.value(r)) })
	})
	for _, x := range all {
		s.Columns = append(s.Columns, column{x.name, x.title, x.digits})
	}
	for k, g := range groupRuns(runs) {
		for _, r := range g.runs {
			cells := []any{r.Name}
			for _, key := range keys {
				cells = append(cells, r.Config[key])
			}
			for _, x := range all {
				cells = append(cells, number(x.value(r)))
			}
			s.Rows = append(s.Rows, row{color(k), cells})
		}
	}
	return s
}

// Metric returns the name of the metric by which runs are compared unless the user names
// another: pass@1 of the first suite, or the reward if the run has no suites.
func (r *Run) Metric() string {
	if names := evalNames([]*Run{r}); len(names) > 0 {
		return names[0]
	}
	return "reward"
}

// Results returns figures of the whole run by name:
//
//   - every metric of the evaluations: its last value
//   - every metric of the rounds: its mean over the last tenth of the rounds
//   - p/mean, clipped and clip_fraction: their means over all steps
//   - grad_norm/median and grad_norm/max, over all steps
//   - share/PHASE: the share of the run's seconds that the phase took
//
// Figures that are NaN are omitted.
func (r *Run) Results() map[string]float64 {
	values := map[string]float64{}
	for _, name := range r.Rounds.Names {
		values[name] = lastTenth(r, name)
	}
	for _, name := range r.Evals.Names {
		values[name] = r.Evals.Last(name)
	}
	for _, name := range []string{"p/mean", "clipped", "clip_fraction"} {
		values[name] = stat.Mean(r.Steps.Column(name))
	}
	values["grad_norm/median"] = stat.Quantile(r.Steps.Column("grad_norm"), 0.5)
	values["grad_norm/max"] = stat.Quantile(r.Steps.Column("grad_norm"), 1)
	phases, seconds, total := r.Seconds()
	for _, phase := range phases {
		values["share/"+phase] = seconds[phase] / total
	}
	maps.DeleteFunc(values, func(_ string, x float64) bool { return math.IsNaN(x) })
	return values
}
