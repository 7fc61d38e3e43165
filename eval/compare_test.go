package eval

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/sampler"
)

// report makes a report with these numbers of right samples per problem; the problems are a, b, c
// ...
func report(settings Settings, suites map[string][]int) Report {
	out := Report{Settings: settings}
	for _, name := range []string{"amc", "math500", "own"} {
		right, ok := suites[name]
		if !ok {
			continue
		}
		s := Score{Suite: name, Problems: len(right), Samples: settings.Samples}
		for i, n := range right {
			s.Outcomes = append(s.Outcomes, outcome{string(rune('a' + i)), n, float64(10 * (i + 1))})
		}
		out.Suites = append(out.Suites, s)
	}
	return out
}

var greedy = Settings{Model: "base", Template: "qwen_math", Samples: 1, Sampling: sampler.Greedy(3000)}

func TestCompare(t *testing.T) {
	tuned := greedy
	tuned.Model = "tuned"
	a := report(greedy, map[string][]int{"amc": {0, 0, 0, 1, 1, 0, 0, 0}, "math500": {1, 0}})
	b := report(tuned, map[string][]int{"amc": {1, 1, 1, 1, 0, 1, 1, 1}, "math500": {1, 0}})
	c := must(a.Compare(b))
	amc, average := c.Suites[0], c.Average
	if amc.A != 0.25 || amc.B != 0.875 || amc.BetterA != 1 || amc.BetterB != 6 {
		t.Errorf("%+v", amc)
	}
	if want := 2 * (1 + 7) / 128.0; math.Abs(amc.P-want) > 1e-12 { // McNemar, 1 against 6
		t.Errorf("p = %v, want %v", amc.P, want)
	}
	if amc.Delta.Value != 0.625 || amc.Delta.Low >= 0.625 || amc.Delta.High <= 0.625 {
		t.Errorf("difference %+v", amc.Delta)
	}
	if c.Suites[1].P != 1 || c.Suites[1].Delta.Value != 0 {
		t.Errorf("no difference: %+v", c.Suites[1])
	}
	if average.Delta.Value != 0.3125 || math.Abs(average.P-0.125) > 0.005 || average.Problems != 10 {
		t.Errorf("average %+v", average)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("warnings %q", c.Warnings)
	}
	// The comparison in the other direction is the same with the other sign.
	back := must(b.Compare(a))
	if x, y := back.Suites[0].Delta, amc.Delta; back.Suites[0].P != amc.P || math.Abs(x.Low+y.High) > 1e-12 || math.Abs(x.High+y.Low) > 1e-12 {
		t.Errorf("back %+v, there %+v", back.Suites[0].Delta, amc.Delta)
	}
}

// TestCompareSampled: two models may have different numbers of samples.
func TestCompareSampled(t *testing.T) {
	four, six := greedy, greedy
	four.Samples, four.Greedy, six.Samples, six.Greedy = 4, false, 6, false
	a := report(four, map[string][]int{"own": {2, 0, 4}})
	b := report(six, map[string][]int{"own": {3, 3, 6, 1}})
	c := must(a.Compare(b))
	own := c.Suites[0]
	if own.Problems != 3 || own.BetterA != 0 || own.BetterB != 1 || own.P != 1 || math.Abs(own.Delta.Value-0.5/3) > 1e-12 {
		t.Errorf("%+v", own)
	}
	if c.Average != nil {
		t.Error("one suite has an average")
	}
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "1 problems of suite own are left out") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestCompareWarns(t *testing.T) {
	other := greedy
	other.Template, other.MaxNewTokens, other.Greedy, other.Temperature, other.Environment = "r1", 100, false, 0.6, "name=tools"
	c := must(report(greedy, map[string][]int{"amc": {1}, "own": {1}}).Compare(report(other, map[string][]int{"math500": {1}, "own": {1}})))
	got := strings.Join(c.Warnings, "\n")
	want := "the templates differ: qwen_math and r1\nthe environments differ: single turns and name=tools\nthe token limits differ: 3000 and 100\nthe samplings differ: greedy and 1 sample at T=0.6\nonly the first has suite amc\nonly the second has suite math500"
	if got != want {
		t.Errorf("warnings\n%s\nwant\n%s", got, want)
	}
	if _, err := report(greedy, map[string][]int{"amc": {1}}).Compare(report(greedy, map[string][]int{"own": {1}})); err == nil {
		t.Error("nothing in common, but no error")
	}
}

func TestReadReport(t *testing.T) {
	dir := t.TempDir()
	p := testPlan()
	lines := filepath.Join(dir, "r.jsonl")
	r := must(p.Open(lines, false))
	fill(t, r, keys(p)[1:])
	if _, err := ReadReport(lines, nil); err == nil || !strings.Contains(err.Error(), "14 of 15 responses") {
		t.Errorf("a part: %v", err)
	}
	fill(t, r, keys(p)[:1])
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	want := must(json.Marshal(must(r.Report(nil))))
	object := filepath.Join(dir, "r.json")
	if err := os.WriteFile(object, want, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, object} {
		if got := must(json.Marshal(must(ReadReport(path, nil)))); string(got) != string(want) {
			t.Errorf("%s\n%s\nwant\n%s", path, got, want)
		}
	}
	for text, want := range map[string]string{
		"{}":                                     "it has no suites",
		"[1]":                                    "neither a report nor",
		"":                                       "neither a report nor",
		`{"suites":[{"suite":"x","samples":1}]}`: `suite "x" has no outcomes`,
		`{"suites":[{"suite":"x","samples":1,"outcomes":[{"problem":"p","right":2}]}]}`: `problem "p": 2 of 1 samples right`,
		`{"suites":[{"suite":"x","samples":0,"outcomes":[{"problem":"p","right":0}]}]}`: `suite "x" has no outcomes`,
	} {
		if err := os.WriteFile(object, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReport(object, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
