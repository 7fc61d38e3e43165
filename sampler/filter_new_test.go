package sampler

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newFilter lists the changes for a new filter, by file: the text before a new line, and
// the line.
var newFilter = map[string][][2]string{
	"sampling.go": {{"share of the largest one\"`\n", "\tTopA float64 `toml:\"top_a\" json:\"top_a,omitempty\" range:\"[0,1]\" note:\"0 turns it off\" help:\"keep the tokens whose probability is at least this share of the square of the largest one\"`\n"}},
	"filter.go": {
		{"var filters = []filter{topK, topP, minP", ", topA"},
		{"import (\n\t\"math\"\n\t\"slices\"\n)\n", `
func topA(s Sampling, likeliest []Candidate, _ float64) int {
	if s.TopA == 0 {
		return 0
	}
	bound := 2*float64(likeliest[0].LogProb) + math.Log(s.TopA)
	return slices.IndexFunc(likeliest, func(c Candidate) bool { return float64(c.LogProb) < bound })
}
`},
	},
}

// topATest is a test of the new filter, which is a setting like the others.
const topATest = `package sampler

import (
	"math"
	"strings"
	"testing"

	"onering/internal/settings"
)

func TestTopA(t *testing.T) {
	s := Plain(1)
	for _, f := range s.Drawing() {
		if f.Key == "top_a" {
			t.Log(f.Flag, f.Help(), f.Allowed())
		}
	}
	for _, f := range settings.Fields(&s) {
		if f.Key == "top_a" {
			f.Value.SetFloat(0.5)
		}
	}
	if s.TopA != 0.5 || !s.Filtered() || !strings.Contains(s.Describe(), "top-a 0.5") {
		t.Errorf("%+v: %s", s, s.Describe())
	}
	s.TopA = 2
	if err := settings.Check(&s); err == nil || !strings.Contains(err.Error(), "top_a = 2: must be in [0, 1]; 0 turns it off") {
		t.Error(err)
	}
	s.TopA = 0.5 // of 0.4*0.4 are 0.08
	for u, want := range map[float32]int32{0.1: 0, 0.5: 1, 0.99: 2} {
		var list []Candidate
		for id, p := range []float64{0.4, 0.3, 0.1, 0.07, 0.07, 0.06} {
			list = append(list, Candidate{ID: int32(id), LogProb: float32(math.Log(p))})
		}
		if x, _, ok := s.Draw(u, list, false); !ok || x.ID != want {
			t.Errorf("u = %v draws %v, %v", u, x, ok)
		}
	}
}
`

// TestNewFilter: a filter needs a field with tags, a function and its name in the list,
// in two files. Then run files, flags and requests accept the new filter.
func TestNewFilter(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling takes seconds")
	}
	dir, replace := t.TempDir(), map[string]string{}
	lay := func(name, text string) {
		here, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[here] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[here], []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, lines := range newFilter {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		for _, line := range lines {
			if strings.Count(changed, line[0]) != 1 {
				t.Fatalf("%s has %d times %q", name, strings.Count(changed, line[0]), line[0])
			}
			changed = strings.Replace(changed, line[0], line[0]+line[1], 1)
		}
		lay(name, changed)
	}
	lay("top_a_test.go", topATest)
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-vet=off", "-short", "-v", "-overlay="+filepath.Join(dir, "overlay.json"), "-run=^(TestTopA|TestDraw)$", ".").CombinedOutput()
	for _, want := range []string{"top-a keep the tokens", "--- PASS: TestTopA", "--- PASS: TestDraw"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, want %q in:\n%s", err, want, out)
		}
	}
}
