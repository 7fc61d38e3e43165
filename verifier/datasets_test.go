package verifier_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onering/verifier"
)

// The shared sets (see their README.md) are held against the floors below; what
// disagrees must be listed, with its argument, in testdata/disagreements.json.

// sharedSet reads the rows of one shared set, or skips the test.
func sharedSet[T any](tb testing.TB, name string) []T {
	tb.Helper()
	path := filepath.Join("..", "..", "shared", "data", "verifier", "dev", name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		tb.Skipf("the shared data is not beside the repository: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return decodeLines[T](tb, string(text))
}

// decodeLines decodes JSON lines. Lines end at \n only: the rows hold other
// line separators raw, and are longer than a Scanner takes.
func decodeLines[T any](tb testing.TB, text string) []T {
	tb.Helper()
	var rows []T
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			continue
		}
		var row T
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			tb.Fatalf("row %d: %v", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		tb.Fatal("no rows")
	}
	return rows
}

// argued holds the disagreements with a set that are deliberate, and why.
func argued(t *testing.T, set string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/disagreements.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all[set]
}

// A tally counts verdicts against labels.
type tally struct {
	right, total  int
	falseAccepts  []string
	disagreements []string
}

func (c *tally) add(id string, got verifier.Result, want bool, gold string) string {
	c.total++
	if got.Correct == want {
		c.right++
		return ""
	}
	c.disagreements = append(c.disagreements, id)
	if got.Correct {
		c.falseAccepts = append(c.falseAccepts, id)
	}
	return id + ": got " + quoted(got.Answer) + " against " + quoted(gold) + ", " + got.Reason
}

func (c *tally) percent() float64 { return 100 * float64(c.right) / float64(c.total) }

// quoted is s in quotes, cut where it would fill the page.
func quoted(s string) string {
	if len(s) > 100 {
		s = s[:60] + " ... " + s[len(s)-30:]
	}
	out, _ := json.Marshal(s)
	return string(out)
}

func TestMathVerifyCases(t *testing.T) {
	type row struct {
		ID       string
		Gold     string
		Pred     string
		Expected int
		Note     string
	}
	var c tally
	known := argued(t, "math_verify_tests")
	for _, r := range sharedSet[row](t, "math_verify_tests.jsonl") {
		got := verifier.Verify(r.Gold, r.Pred)
		id := r.ID[strings.Index(r.ID, "::")+2:]
		if miss := c.add(id, got, r.Expected == 1, r.Gold); miss != "" {
			if known[id] == "" {
				t.Errorf("not argued: %s (%s)", miss, r.Note)
			} else {
				t.Log(miss)
			}
		}
	}
	t.Logf("%d of %d as expected, %.1f %%", c.right, c.total, c.percent())
	if c.percent() < 97 {
		t.Errorf("%.1f %% as expected, want at least 97", c.percent())
	}
}

// A cot is a sampled solution of a MATH problem.
type cot struct {
	Problem  int `json:"problem_idx"`
	Sample   int
	Gold     string
	Response string
	Label    bool
}

func TestMathCoT(t *testing.T) {
	for _, r := range sharedSet[cot](t, "math_cot_100.jsonl") {
		if got := verifier.Verify(r.Gold, r.Response); got.Correct != r.Label {
			t.Errorf("problem %d sample %d: %s against %s is %v, want %v (%s)", r.Problem, r.Sample, quoted(got.Answer), quoted(r.Gold), got.Correct, r.Label, got.Reason)
		}
	}
}

// An adversary is a case of adversarial.jsonl.
type adversary struct {
	ID, Category, Gold, Response, Basis, Note string
	Label                                     bool
	AcceptAny                                 bool  `json:"accept_any"`
	Fallback                                  *bool `json:"label_with_last_number_fallback"`
}

func TestAdversarial(t *testing.T) {
	known := argued(t, "adversarial")
	for _, mode := range []verifier.Mode{verifier.Auto, verifier.Boxed} {
		t.Run(mode.String(), func(t *testing.T) {
			var facts, policies tally
			v := verifier.Verifier{Mode: mode}
			for _, r := range sharedSet[adversary](t, "adversarial.jsonl") {
				var got verifier.Result
				if d := quickest(func() { got = v.Verify(r.Gold, r.Response) }); d > limitTime && !raceEnabled {
					t.Errorf("%s took %v", r.ID, d)
				}
				want := r.Label
				if mode == verifier.Auto && r.Fallback != nil {
					want = *r.Fallback
				}
				if r.AcceptAny {
					continue
				}
				c := &facts
				if r.Basis == "policy" {
					c = &policies
				}
				if miss := c.add(r.ID, got, want, r.Gold); miss != "" {
					if known[r.ID] == "" {
						t.Errorf("not argued: %s: %s (%s)", r.Basis, miss, r.Note)
					} else {
						t.Log(miss)
					}
				}
			}
			t.Logf("mathematics: %d of %d, %.1f %%, %d false accepts", facts.right, facts.total, facts.percent(), len(facts.falseAccepts))
			t.Logf("policy: %d of %d", policies.right, policies.total)
			if facts.percent() < 98 || len(facts.falseAccepts) > 0 {
				t.Errorf("mathematics: %.1f %% and false accepts %v, want 98 and none", facts.percent(), facts.falseAccepts)
			}
		})
	}
}

// TestSpeed holds the verdicts on sampled solutions to the pace that training
// needs, and looks for slow ones among them.
func TestSpeed(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures time")
	}
	rows := sharedSet[cot](t, "math_cot_100.jsonl")
	const passes = 20
	times := make([]time.Duration, 0, passes*len(rows))
	var total time.Duration
	for range passes {
		for _, r := range rows {
			start := time.Now()
			verifier.Verify(r.Gold, r.Response)
			d := time.Since(start)
			times = append(times, d)
			total += d
		}
	}
	slices.Sort(times)
	rate := float64(len(times)) / total.Seconds()
	p99 := times[len(times)*99/100]
	t.Logf("%.0f verdicts/s, median %v, p99 %v, worst %v", rate, times[len(times)/2], p99, times[len(times)-1])
	if p99 > 500*time.Microsecond {
		t.Errorf("p99 is %v, want under 0.5 ms", p99)
	}
}

func BenchmarkVerify(b *testing.B) {
	rows := sharedSet[cot](b, "math_cot_100.jsonl")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r := rows[n%len(rows)]
		verifier.Verify(r.Gold, r.Response)
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "verdicts/s")
}
