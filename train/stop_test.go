package train

import (
	"strings"
	"testing"

	"onering/train/metrics"
)

// A run ends when the figure has not improved, or was beyond the number, often enough in a row.
func TestStopRule(t *testing.T) {
	round := func(name string) func(step int, x float64) metrics.Record {
		return func(step int, x float64) metrics.Record {
			return metrics.Record{}.With("kind", "round").With("round", step).With("step", step).With("entropy", 1.5).With(name, x)
		}
	}
	eval := func(names ...string) func(step int, x float64) metrics.Record {
		return func(step int, x float64) metrics.Record {
			r := metrics.Record{}.With("kind", "eval").With("step", step)
			for i, name := range names {
				r = r.With(name, x+float64(i))
			}
			return r
		}
	}
	for _, tt := range []struct {
		when   string
		after  int
		record func(step int, x float64) metrics.Record
		values []float64
		ends   int // after so many values; 0 is never
		best   int // the index of the best value
	}{
		{"reward stops rising", 2, round("reward"), []float64{.1, .3, .2, .4, .4, .3}, 6, 3},
		{"reward stops rising", 1, round("reward"), []float64{.1, .2, .3}, 0, 2},
		{"kl stops falling", 2, round("kl"), []float64{5, 4, 6, 4}, 4, 1},
		{"reward >= 0.5", 2, round("reward"), []float64{.6, .4, .5, .7}, 4, 3},
		{"kl<=0.5", 1, round("kl"), []float64{.6, .5}, 2, 1},
		{"eval >= 1.2", 1, eval("eval/a/pass@1"), []float64{.1, 1.2}, 2, 1},
		{"eval >= 1.2", 1, eval("eval/a/pass@1", "eval/average/pass@1"), []float64{.1, .2}, 2, 1}, // the mean: 1.1, 1.2
		{"eval stops falling", 1, eval("loss"), []float64{2, 1, 1}, 3, 1},
		{"eval/b/pass@4 >= 2", 1, eval("eval/a/pass@1", "eval/b/pass@4"), []float64{.1, 1}, 2, 1},
		{"rewrd >= 2", 1, round("reward"), []float64{2, 3}, 0, -1},
	} {
		r, err := Stopping{StopWhen: tt.when, StopAfter: tt.after}.rule()
		if err != nil {
			t.Fatal(tt.when, err)
		}
		ended := 0
		for i, x := range tt.values {
			if r.see(tt.record(i+1, x)); r.inARow >= r.times && ended == 0 {
				ended = i + 1
			}
			r.see(metrics.Record{}.With("kind", "step").With("step", 9).With("reward", 9.0)) // never counts
			if score := r.score(i + 1); (score != nil) != (tt.best >= 0) || r.score(i) != nil {
				t.Errorf("%s: the score after %d is %v", tt.when, i+1, score)
			}
		}
		if ended != tt.ends {
			t.Errorf("%s: ends after %d values, want %d", tt.when, ended, tt.ends)
		}
		if tt.best < 0 {
			continue
		}
		if x, ok := r.value(tt.record(1, tt.values[tt.best])); !ok || r.sign*r.best != x {
			t.Errorf("%s: best %v, want %v", tt.when, r.sign*r.best, x)
		}
	}
}

// What a rule lacks is said before the run begins.
func TestStoppingCheck(t *testing.T) {
	for when, want := range map[string]string{
		"reward":                   "want \"NAME stops rising\"",
		"reward stops":             "want \"NAME stops rising\"",
		"reward > 1":               "want \"NAME stops rising\"",
		"reward >= much":           `"much" is not a number`,
		"reward >= NaN":            `"NaN" is not a number`,
		"eval stops rising":        "set train.eval_every",
		"eval/x/pass@1 >= 1":       "set train.eval_every",
		"seconds/rollout >= 100":   "must not depend on the time",
		"reward  stops   rising  ": "",
		"":                         "",
	} {
		err := Stopping{StopWhen: when}.Check(false, true)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", when, err, want)
		}
	}
	if err := (Stopping{StopWhen: "loss stops falling"}).Check(false, false); err == nil {
		t.Error("a run without rounds has no figure without an evaluation")
	}
}
