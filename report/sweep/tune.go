package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"onering/report"
)

// A tuning is [tune]: it searches for the settings of each variant on separate seeds.
type tuning struct {
	Seeds  []int64          `toml:"seeds"`
	Trials int              `toml:"trials"` // largest number of settings to try for a variant
	Grid   map[string][]any `toml:"grid"`   // the first settings to try, for all variants
}

// A search looks for the best values of some keys of a variant. It begins with the grid, or
// with part of it if the budget is too small. Then it tries neighbours of the best point on
// both sides of each number: the next known value, or a new one equally far beyond the
// last. It ends when the best point has worse ones around it, or the budget is spent.
type search struct {
	variant *variant
	keys    []string
	values  [][]any // values by key; numbers are sorted
	trials  []*trial
	edges   []string // keys whose best value has no neighbour on one side
}

// A trial is a point of a search.
type trial struct {
	at     []any
	runs   []*Run
	mean   float64 // mean of the metric; -Inf if a run failed
	failed error   // why it has no mean
}

// FirstTrials returns the runs of the first trials of Tune; the settings of later trials
// depend on their results. A plan without [tune] has no trials.
func (p *Plan) Tune(out string, train func([]*Run) error) (warnings []string, err error) {
	all := p.searches()
	for next, runs := p.next(all, out); len(runs) > 0; next, runs = p.next(all, out) {
		if err := train(runs); err != nil {
			return nil, err
		}
		for _, t := range next {
			if err := p.score(t); err != nil {
				return nil, err
			}
		}
	}
	p.tuned = &report.Results{
		Title: "Tuning", Columns: []string{"variant", "trials", "best", p.compared()[0].title()},
		Note: fmt.Sprintf("The best of at most %d settings for each variant by their mean over the seeds %v, which no comparison uses.", p.tune.Trials, p.tune.Seeds),
	}
	for _, s := range all {
		best := s.best()
		if best.failed != nil {
			return nil, fmt.Errorf("%s: variant %q: no trial came to its end: %w", p.File, s.variant.Name, best.failed)
		}
		name := strings.Join(s.settings(best.at), " ")
		if len(s.edges) > 0 {
			edge := "at the edge of " + strings.Join(s.edges, " and ")
			name += ", " + edge
			warnings = append(warnings, fmt.Sprintf("%s: the best trial is %s: give more trials, or another grid", s.variant.Name, edge))
		}
		p.tuned.Rows = append(p.tuned.Rows, []string{s.variant.Name, fmt.Sprint(len(s.trials)), name, p.compared()[0].format(best.mean)})
		s.variant.Settings = append(slices.Clone(s.variant.Settings), s.settings(best.at)...)
	}
	return warnings, nil
}

// FirstTrials returns the runs of the first trial of each search; out is the sweep's folder.
func (p *Plan) FirstTrials(out string) []*Run {
	_, runs := p.next(p.searches(), out)
	return runs
}

// searches returns a new search for each variant that [tune] has something for.
func (p *Plan) searches() (all []*search) {
	for i := range p.Variants {
		if s := newSearch(&p.Variants[i], p.tune); len(s.keys) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// next returns the next trials of all searches, and their runs.
func (p *Plan) next(all []*search, out string) (trials []*trial, runs []*Run) {
	for _, s := range all {
		for _, t := range s.next(p.tune, filepath.Join(out, "tune")) {
			trials, runs = append(trials, t), append(runs, t.runs...)
		}
	}
	return trials, runs
}

func newSearch(v *variant, t tuning) *search {
	grid := map[string][]any{}
	maps.Copy(grid, t.Grid)
	maps.Copy(grid, v.tune)
	s := &search{variant: v, keys: slices.Sorted(maps.Keys(grid))}
	for _, key := range s.keys {
		s.values = append(s.values, slices.SortedStableFunc(slices.Values(grid[key]), func(a, b any) int { return cmp.Compare(number(a), number(b)) }))
	}
	return s
}

// number returns the value as a number, NaN if it is not a number.
func number(v any) float64 {
	switch x := v.(type) {
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return math.NaN()
}

// next returns the trials to run now.
func (s *search) next(t tuning, out string) (trials []*trial) {
	begun, points := len(s.trials) > 0, s.start
	if begun {
		points = s.around
	}
	ats := points(t.Trials)
	for _, at := range ats[:min(len(ats), t.Trials-len(s.trials))] {
		one := &trial{at: at}
		dir := filepath.Join(out, folderName(s.variant.Name), folderName(strings.Join(s.settings(at), " ")))
		for _, seed := range t.Seeds {
			r := newRun(s.variant.Name, dir, slices.Concat(s.variant.Settings, s.settings(at)), seed)
			r.Beyond = begun
			one.runs = append(one.runs, r)
		}
		s.trials, trials = append(s.trials, one), append(trials, one)
	}
	return trials
}

// start returns the points of the grid, or half of the budget drawn from them.
func (s *search) start(budget int) [][]any {
	points := [][]any{nil}
	for _, values := range s.values {
		var longer [][]any
		for _, p := range points {
			for _, v := range values {
				longer = append(longer, append(slices.Clone(p), v))
			}
		}
		points = longer
	}
	if len(points) <= budget {
		return points
	}
	rand.New(rand.NewPCG(1, 0)).Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	return points[:(budget+1)/2]
}

// around returns the untried neighbours of the best point.
func (s *search) around(int) (points [][]any) {
	best := s.best()
	s.edges = nil
	for k, values := range s.values {
		i := slices.Index(values, best.at[k])
		if len(values) < 2 || math.IsNaN(number(values[0])) {
			continue // a word has no neighbours; NaN comes first
		}
		had := len(points)
		for _, d := range []int{-1, 1} {
			at := slices.Clone(best.at)
			if j := i + d; j >= 0 && j < len(values) {
				at[k] = values[j]
			} else {
				at[k] = beyond(values[i-d], values[i])
				s.values[k] = slices.Insert(slices.Clone(values), max(i+d, 0), at[k])
				values, i = s.values[k], i+max(-d, 0)
			}
			if !slices.ContainsFunc(s.trials, func(t *trial) bool { return slices.Equal(t.at, at) }) {
				points = append(points, at)
			}
		}
		if len(points) > had {
			s.edges = append(s.edges, s.keys[k])
		}
	}
	return points
}

// beyond returns the value as far beyond edge as edge is beyond inner: by their ratio, or
// by their difference if they have no ratio.
func beyond(inner, edge any) any {
	a, b := number(inner), number(edge)
	x := b + (b - a)
	if a*b > 0 {
		x = b * b / a
	}
	if _, whole := edge.(int64); whole {
		return int64(math.Round(x))
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return x
}

// best returns the trial with the highest mean, the first among equals.
func (s *search) best() *trial {
	return slices.MaxFunc(s.trials, func(a, b *trial) int { return cmp.Compare(a.mean, b.mean) })
}

// settings returns those of a point, in the form of --set.
func (s *search) settings(at []any) (settings []string) {
	for k, key := range s.keys {
		settings = append(settings, settingText(key, at[k]))
	}
	return settings
}

// score sets the mean of a trial whose runs have ended.
func (p *Plan) score(t *trial) error {
	for _, r := range t.runs {
		if t.failed = r.Failed; t.failed != nil {
			t.mean = math.Inf(-1)
			return nil
		}
		_, values, err := p.results(r)
		if err != nil {
			return err
		}
		t.mean += values[p.Metrics[0]] / float64(len(t.runs))
	}
	return nil
}

// check returns the errors in [tune] and in what variants state about it.
func (t tuning) check(variants []variant) (errs []error) {
	tunes := false
	grid := func(of string, values map[string][]any) {
		for key, list := range values {
			tunes = true
			if len(list) == 0 || slices.ContainsFunc(list, func(v any) bool { return !reflect.TypeOf(v).Comparable() }) {
				errs = append(errs, fmt.Errorf("%s.%q must be a list of numbers or words, with one or more", of, key))
			}
		}
	}
	grid("tune.grid", t.Grid)
	for _, v := range variants {
		grid(fmt.Sprintf("variant %q: tune", v.Name), v.tune)
		for _, seed := range v.Seeds {
			if slices.Contains(t.Seeds, seed) {
				errs = append(errs, fmt.Errorf("seed %d of variant %q is in tune.seeds, too: what tunes a variant must not judge it", seed, v.Name))
			}
		}
	}
	if tunes && (len(t.Seeds) == 0 || t.Trials < 1) {
		errs = append(errs, errors.New("[tune] needs seeds, and trials, the most settings to try for each variant"))
	}
	return errs
}
