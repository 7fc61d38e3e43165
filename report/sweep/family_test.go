package sweep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/internal/files"
)

// familyFiles writes the sweep files a.toml and b.toml of one family, with one and two
// comparisons.
func familyFiles(t *testing.T) (a, b string) {
	dir := t.TempDir()
	variants := "seeds = [1, 2]\nmetric = \"m\"\nbaseline = \"x\"\n[[variant]]\nname = \"x\"\n[[variant]]\nname = \"y\"\n"
	a, b = filepath.Join(dir, "a.toml"), filepath.Join(dir, "b.toml")
	put(t, a, "[sweep]\nfamily = [\"b.toml\"]\n"+variants)
	put(t, b, "[sweep]\nfamily = [\"a.toml\", \"./b.toml\"]\n"+variants+"[[variant]]\nname = \"z\"\n")
	return a, b
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

const familyPage = `text
<!-- a -->
old
<!-- end -->
<!-- b -->
| variant | p |
|---|---|
| x | 0.5 |

| comparison | seeds | p | p, Holm | stated before |
|---|---|---|---|---|
| y vs x \\| | 2 | 0.01 | 0.02 | p |
| z vs x | 0 | NaN | 0 |  |
| w vs x | 2 | 0.3 | 0.3 |  |

| other | p | q |
|---|---|---|
| x | 0.001 | 0.5 |
<!-- end -->
`

// TestFamilyOnPage: the update of one sweep corrects the comparisons in both sweeps'
// blocks together and leaves the rest of the other block unchanged.
func TestFamilyOnPage(t *testing.T) {
	a, _ := familyFiles(t)
	p, err := ReadPlan(a)
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(filepath.Dir(a), "page.md")
	put(t, page, familyPage)
	runs := p.Runs(filepath.Join(filepath.Dir(a), "out", "a"))
	var tried []string
	if err := trained(t, func(s map[string]float64) float64 { return s["train.seed"] }, &tried)(runs); err != nil {
		t.Fatal(err)
	}
	r, err := p.Collect(runs, page, "")
	if err != nil {
		t.Fatal(err)
	}
	if r.Table.holm != "p, Holm of 3" || r.Table.Comparisons[0].Test.Adjusted != 1 {
		t.Errorf("%q, %+v", r.Table.holm, r.Table.Comparisons[0])
	}
	if err := r.UpdatePage(page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("p, Holm |", "p, Holm of 3 |", "0.01 | 0.02", "0.01 | 0.03", "0.3 | 0.3", "0.3 | 0.6").Replace(familyPage[strings.Index(familyPage, "<!-- b"):])
	if !strings.HasSuffix(string(text), want) || !strings.Contains(string(text), "| p | p, Holm of 3 | stated before |\n|---|---|---|---|---|---|---|\n| y vs x | 2 | ") {
		t.Errorf("got\n%s\nwant at its end\n%s", text, want)
	}
}

// TestFamilyInFolders: without a page the tables of the other sweeps are read from
// folders of any name beside the sweep's folder. A sweep without tables counts with 1 for
// each of its comparisons.
func TestFamilyInFolders(t *testing.T) {
	a, _ := familyFiles(t)
	p, err := ReadPlan(a)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "a")
	for _, want := range [][]float64{{1, 1}, {0.01, 0.3}} {
		texts, err := p.family.pages("", out)
		tests := p.family.tests("a", texts...)
		if err != nil || len(tests) != 2 || tests[0].P != want[0] || tests[1].P != want[1] {
			t.Errorf("%v, %v, want %v", tests, err, want)
		}
		kept := filepath.Join(filepath.Dir(out), "elsewhere")
		if err := os.MkdirAll(kept, 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(kept, "tables.md"), familyPage)
	}
}

// TestFamilyRefused: files that contradict each other are refused with an error that names them.
func TestFamilyRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[sweep]\nseeds = [1]\n[[variant]]\nname = \"x\"\n":                                          "b.toml has another family",
		"[sweep]\nfamily = [\"c.toml\"]\nseeds = [1]\n[[variant]]\nname = \"x\"\n":                   "b.toml has another family",
		"[sweep]\nfamily = [\"a.toml\"]\n":                                                           "neither [[variant]] nor [grid]",
		"[sweep]\nfamily = [\"a.toml\", \"other/b.toml\"]\nseeds = [1]\n[[variant]]\nname = \"x\"\n": "b.toml has another family",
	} {
		a, b := familyFiles(t)
		put(t, b, text)
		if _, err := ReadPlan(a); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a.toml: sweep.family: ") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPlan(a); err == nil || !strings.Contains(err.Error(), "b.toml") {
			t.Errorf("without b.toml: %v", err)
		}
	}
}

// TestPagesAreCorrected: the tables of runs/results are corrected over all comparisons of a task
// that the page has. After a family changes, -update corrects the tables again.
func TestPagesAreCorrected(t *testing.T) {
	for page, dir := range map[string]string{"bench.md": "bench", "experiments.md": "paper"} {
		path := filepath.Join("../../runs/results", page)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		corrected, tables := string(text), 0
		for _, file := range files.Glob("../../runs/"+dir, "sweep-*.toml") {
			p, err := ReadPlan(file)
			if err != nil {
				t.Error(err)
				continue
			}
			if _, err := replaceBlock(corrected, Name(file), func(block string) string { return block }); err == nil {
				corrected, tables = p.family.correct(corrected), tables+1
			}
		}
		if want := strings.Count(corrected, "<!-- sweep-"); tables != want {
			t.Errorf("%s has %d blocks of sweeps, and %d of them have a file", page, want, tables)
		}
		if *update {
			if err := files.WriteFile(path, files.Content(corrected)); err != nil {
				t.Fatal(err)
			}
		} else if corrected != string(text) {
			t.Errorf("%s: a p-value is not corrected over its family: go test ./report/sweep -run %s -update", page, t.Name())
		}
	}
}
