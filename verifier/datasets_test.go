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

// The shared sets (see their README.md) are compared with the least agreement stated
// below; disagreements must be listed, with an argument, in testdata/disagreements.json.

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

// argued holds the deliberate disagreements with a set, and the argument for each.
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

// quoted returns s in quotes, cut where it would fill the page.
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
	for id := range known {
		if !slices.Contains(c.disagreements, id) {
			t.Errorf("%s is argued, but agrees", id)
		}
	}
	t.Logf("%d of %d as expected, %.1f %%", c.right, c.total, c.percent())
	if c.percent() < 94 {
		t.Errorf("%.1f %% as expected, want at least 94", c.percent())
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
				got, steps := v.Steps([]string{r.Gold}, r.Response)
				if steps > mostSteps {
					t.Errorf("%s took %d steps", r.ID, steps)
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

// TestStepsOfRealOutputs checks that verdicts on sampled solutions take no more steps
// than training can afford; BenchmarkVerify has their times.
func TestStepsOfRealOutputs(t *testing.T) {
	var all []int
	for _, r := range sharedSet[cot](t, "math_cot_100.jsonl") {
		_, steps := verifier.Verifier{}.Steps([]string{r.Gold}, r.Response)
		all = append(all, steps)
	}
	slices.Sort(all)
	p99 := all[len(all)*99/100]
	t.Logf("median %d steps, p99 %d, most %d", all[len(all)/2], p99, all[len(all)-1])
	if p99 > 20_000 {
		t.Errorf("p99 is %d steps, want at most 20,000", p99)
	}
}

// BenchmarkVerify reports the pace of verdicts on sampled solutions and the time
// that one in a hundred exceeds.
func BenchmarkVerify(b *testing.B) {
	rows := sharedSet[cot](b, "math_cot_100.jsonl")
	b.ReportAllocs()
	var times []time.Duration
	for b.Loop() {
		r := rows[len(times)%len(rows)]
		start := time.Now()
		verifier.Verify(r.Gold, r.Response)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(len(times))/b.Elapsed().Seconds(), "verdicts/s")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}
