package sweep

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// trained stands in for training: each run gets the score of its settings as the metric m, and the
// negative score as n. It returns the settings in the order of the runs, without seeds and folder.
func trained(t *testing.T, score func(settings map[string]float64) float64, tried *[]string) func([]*Run) error {
	return func(runs []*Run) error {
		for _, r := range runs {
			values := map[string]float64{}
			var own []string
			for _, s := range r.Settings {
				key, text, _ := strings.Cut(s, "=")
				if x, err := strconv.ParseFloat(text, 64); err == nil {
					values[key] = x
				}
				if !strings.HasSuffix(key, ".seed") && key != "output.dir" {
					own = append(own, s)
				}
			}
			*tried = append(*tried, strings.Join(own, " "))
			x := score(values)
			if math.IsNaN(x) {
				r.Failed = fmt.Errorf("%v diverged", own)
				continue
			}
			if err := os.MkdirAll(r.Dir, 0o777); err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf(`{"kind":"eval","round":1,"step":1,"m":%g,"n":%g}`+"\n", x+values["train.seed"]/1000, -x)
			for name, text := range map[string]string{"run.toml": "", "metrics.jsonl": line} {
				if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
		return nil
	}
}

const tuned = `
[sweep]
seeds = [11, 12]
metric = ["m", "n"]
baseline = "a"
[tune]
seeds = [1, 2]
trials = %d
[tune.grid]
"optimizer.learning_rate" = [1e-4, 2e-4]
[[variant]]
name = "a"
objective = { name = "grpo" }
[[variant]]
name = "b"
tune = { "objective.clip" = [0.1, 0.2, 0.4], "objective.form" = ["x"] }
`

// TestTune: the grid extends beyond its end until the best value is inside, for the rate
// and for a variant's own settings. The runs that compare use the best settings, and a
// second search, after a kill, asks for the same trials.
func TestTune(t *testing.T) {
	p, err := ReadPlan(write(t, fmt.Sprintf(tuned, 18)))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	near := func(x, best float64) float64 { return -math.Abs(math.Log2(x / best)) }
	score := func(s map[string]float64) float64 {
		x := near(s["optimizer.learning_rate"], 8e-4)
		if clip, ok := s["objective.clip"]; ok {
			x += near(clip, 0.05)
		}
		if s["optimizer.learning_rate"] > 1e-3 {
			return math.NaN() // A run that fails is worse than any other.
		}
		return x
	}
	var tried, again []string
	warnings, err := p.Tune(out, trained(t, score, &tried))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	for i, want := range [][]string{{`objective.name="grpo"`, "optimizer.learning_rate=0.0008"}, {"objective.clip=0.05", `objective.form="x"`, "optimizer.learning_rate=0.0008"}} {
		if got := p.Runs(out)[2*i].Settings; !slices.Equal(got[:len(want)], want) {
			t.Errorf("variant %d has %q, want %q", i, got, want)
		}
	}
	if n := len(tried); n%2 != 0 || len(slices.Compact(slices.Sorted(slices.Values(tried)))) != n/2 {
		t.Errorf("%d runs, some tried twice: %q", n, tried)
	}
	repeated, err := ReadPlan(p.File)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repeated.Tune(out, trained(t, score, &again)); err != nil || !slices.Equal(tried, again) {
		t.Errorf("again %v, %q, want %q", err, again, tried)
	}
	compareTuned(t, p, out)
}

// compareTuned checks that the comparisons of both metrics are one family, and the tables.
func compareTuned(t *testing.T, p *Plan, out string) {
	runs := p.Runs(out)
	var tried []string
	err := trained(t, func(s map[string]float64) float64 { return s["objective.clip"] }, &tried)(runs)
	if err != nil {
		t.Fatal(err)
	}
	results, err := p.Collect(runs, "", out)
	if err != nil {
		t.Fatal(err)
	}
	c := results.Table.Comparisons
	if len(c) != 2 || c[0].Metric != 0 || c[1].Metric != 1 || c[0].Test.P != 0.5 || c[0].Test.Adjusted != 1 {
		t.Errorf("comparisons %+v, want two in one family", c)
	}
	text := results.Table.Markdown()
	for _, want := range []string{"| a | 5 | optimizer.learning_rate=0.0008 | ", "| b vs a: m | 2 | +0.05 ", "| b vs a: n | 2 | -0.05 "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestTuneEdge: if the budget is too small, the best value is at the edge, and a warning says
// so; a grid larger than the budget is drawn from; a variant whose trials all fail is an error.
func TestTuneEdge(t *testing.T) {
	for budget, runs := range map[int]int{3: 3 + 3, 5: 5 + 5} {
		p, err := ReadPlan(write(t, fmt.Sprintf(tuned, budget)))
		if err != nil {
			t.Fatal(err)
		}
		var tried []string
		warnings, err := p.Tune(t.TempDir(), trained(t, func(s map[string]float64) float64 { return s["optimizer.learning_rate"] }, &tried))
		if err != nil || len(tried) != 2*runs || len(warnings) != 2 || !strings.Contains(warnings[0], "a: the best trial is at the edge of optimizer.learning_rate") {
			t.Errorf("budget %d: %d runs, %v, %q", budget, len(tried), err, warnings)
		}
	}
	p, err := ReadPlan(write(t, fmt.Sprintf(tuned, 3)))
	if err != nil {
		t.Fatal(err)
	}
	var tried []string
	if _, err := p.Tune(t.TempDir(), trained(t, func(map[string]float64) float64 { return math.NaN() }, &tried)); err == nil || !strings.Contains(err.Error(), `variant "a": no trial came to its end`) {
		t.Errorf("error %v", err)
	}
	for text, want := range map[string]string{
		"[sweep]\nseeds=[1]\n[tune.grid]\nx=[1]\n[[variant]]\nname=\"a\"\n":                                "[tune] needs seeds, and trials",
		"[sweep]\nseeds=[1]\n[tune]\nseeds=[1]\ntrials=2\n[[variant]]\nname=\"a\"\n":                       `seed 1 of variant "a" is in tune.seeds`,
		"[sweep]\nseeds=[1]\n[tune]\nseeds=[2]\ntrials=2\n[[variant]]\nname=\"a\"\ntune={x=3}\n":           `variant "a": tune."x" must be a list`,
		"[sweep]\nseeds=[1]\n[tune]\nseeds=[2]\ntrials=2\n[tune.grid]\nx=[[1]]\n[[variant]]\nname=\"a\"\n": `tune.grid."x" must be a list of numbers or words`,
		"[sweep]\nseeds=[1]\nmetric=3\n[[variant]]\nname=\"a\"\n":                                          "sweep.metric = 3: must be the name",
		"[sweep]\nseeds=[1]\nmetric=[]\n[[variant]]\nname=\"a\"\n":                                         "sweep.metric = []: must be the name",
	} {
		if _, err := ReadPlan(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
