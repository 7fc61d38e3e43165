package report

import (
	"math"
	"slices"
	"strings"
)

// A summary is the page's table: a row per run, its configuration where the
// runs differ and its results.
type summary struct {
	Columns []column `json:"columns"`
	Rows    []row    `json:"rows"`
}

// A column of numbers is shown with Digits behind the point; one of text has -1.
type column struct {
	Name   string `json:"name"`
	Title  string `json:"title,omitempty"` // for the tooltip
	Digits int    `json:"digits"`
}

type row struct {
	Color string `json:"color"`
	Cells []any  `json:"cells"`
}

// A result is one figure of a run in the table.
type result struct {
	name, title string
	digits      int
	value       func(*Run) float64
}

var results = []result{
	{"reward, first", "mean of the first tenth of the rounds", 3, func(r *Run) float64 { a, _ := endsOf(r, "reward"); return a }},
	{"reward, last", "mean of the last tenth of the rounds", 3, func(r *Run) float64 { _, b := endsOf(r, "reward"); return b }},
	{"grad norm, median", "", 3, func(r *Run) float64 { return quantile(r.Steps.Column("grad_norm"), 0.5) }},
	{"grad norm, max", "", 3, func(r *Run) float64 { return quantile(r.Steps.Column("grad_norm"), 1) }},
	{"entropy, last", "nats per token in the last tenth of the rounds", 4, func(r *Run) float64 { _, b := endsOf(r, "entropy"); return b }},
	{"length, last", "tokens per response in the last tenth of the rounds", 1, func(r *Run) float64 { _, b := endsOf(r, "response_length/mean"); return b }},
	{"p", "mean over steps", 3, func(r *Run) float64 { return mean(r.Steps.Column("p/mean")) }},
	{"at p_max", "share of responses, mean over steps", 3, func(r *Run) float64 { return mean(r.Steps.Column("p/share_at_max")) }},
	{"f", "share of tokens beyond eps_ess, mean over steps", 4, func(r *Run) float64 { return mean(r.Steps.Column("clip_fraction")) }},
	{"clipped", "share of tokens that the clip cuts, mean over steps", 4, func(r *Run) float64 { return mean(r.Steps.Column("clipped")) }},
	{"steps", "", 0, func(r *Run) float64 { return float64(r.Steps.Len()) }},
	{"seconds", "in rounds", 1, func(r *Run) float64 { _, _, total := r.Seconds(); return total }},
	{"log-prob gap", "largest between sampler and learner", 7, func(r *Run) float64 { return quantile(r.Rounds.Column("logp_gap_max"), 1) }},
}

func endsOf(r *Run, name string) (first, last float64) {
	x := r.Rounds.Column(name)
	if len(x) == 0 {
		return math.NaN(), math.NaN()
	}
	return ends(x)
}

// quantile of the finite values, NaN of none.
func quantile(x []float64, q float64) float64 {
	x = finiteOf(x)
	if len(x) == 0 {
		return math.NaN()
	}
	slices.Sort(x)
	return x[int(math.Round(q*float64(len(x)-1)))]
}

func tabulate(runs []*Run) summary {
	keys := varying(runs)
	seeds := false
	for _, r := range runs {
		seeds = seeds || r.Config["train.seed"] != runs[0].Config["train.seed"]
	}
	if seeds {
		keys = append(keys, "train.seed")
	}
	all := slices.Clone(results)
	for _, name := range slices.Backward(evalNames(runs)) {
		short := strings.TrimPrefix(name, "eval/")
		all = slices.Insert(all, 0,
			result{short + ", first", "", 3, func(r *Run) float64 { return r.Evals.First(name) }},
			result{short + ", last", "", 3, func(r *Run) float64 { return r.Evals.Last(name) }})
	}
	s := summary{Columns: []column{{"run", "", -1}}}
	for _, key := range keys {
		_, short, _ := strings.Cut(key, ".")
		if short == "name" {
			short = "objective"
		}
		s.Columns = append(s.Columns, column{short, key, -1})
	}
	// A result that no run has gets no column.
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

// Metric is what runs are compared by where nothing else is said: pass@1 of the
// first suite, or the reward of a run without suites.
func (r *Run) Metric() string {
	if names := evalNames([]*Run{r}); len(names) > 0 {
		return names[0]
	}
	return "reward"
}

// Results are figures of the whole run: the last of every evaluation's metrics;
// of every metric of the rounds the mean over the last tenth of them; over all
// steps grad_norm/median, grad_norm/max and the means of p/mean, clipped and
// clip_fraction; and share/PHASE, the share of the run's seconds. What is no
// number is left out.
func (r *Run) Results() map[string]float64 {
	values := map[string]float64{}
	for _, name := range r.Rounds.Names() {
		_, values[name] = endsOf(r, name)
	}
	for _, name := range r.Evals.Names() {
		values[name] = r.Evals.Last(name)
	}
	for _, name := range []string{"p/mean", "clipped", "clip_fraction"} {
		values[name] = mean(r.Steps.Column(name))
	}
	values["grad_norm/median"] = quantile(r.Steps.Column("grad_norm"), 0.5)
	values["grad_norm/max"] = quantile(r.Steps.Column("grad_norm"), 1)
	phases, seconds, total := r.Seconds()
	for _, phase := range phases {
		values["share/"+phase] = seconds[phase] / total
	}
	for name, v := range values {
		if math.IsNaN(v) {
			delete(values, name)
		}
	}
	return values
}
