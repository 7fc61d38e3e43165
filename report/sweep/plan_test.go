package sweep

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFolderName(t *testing.T) {
	for name, want := range map[string]string{
		"PMPO": "pmpo", "Dr. GRPO": "dr.-grpo", "p_negative = 0": "p_negative=0", "clip / no clip": "clip-no-clip", "../x": "x",
	} {
		if got := folderName(name); got != want {
			t.Errorf("folderName(%q) = %q, want %q", name, got, want)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sweep.toml")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPlan checks that a plan has every variant with every value of the grid, compares
// all variants with the baseline except for listed comparisons, and has a run for each
// seed.
func TestPlan(t *testing.T) {
	p, err := ReadPlan(write(t, `
[sweep]
base = "hard.toml"
seeds = [1, 2]
baseline = "a beta1=0.5"
[[variant]]
name = "a"
objective = { name = "grpo" }
[[variant]]
name = "b"
seeds = [7]
[grid]
"optimizer.beta1" = [0.5, 0.9]
[[compare]]
first = "b beta1=0.5"
second = "a beta1=0.5"
claim = "b is better"
`))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(p.Base) != "hard.toml" || filepath.Dir(p.Base) != filepath.Dir(p.File) {
		t.Errorf("base %s of %s", p.Base, p.File)
	}
	if p, err := ReadPlan(write(t, "[sweep]\nbase = \"/runs/hard.toml\"\nseeds = [1]\n[[variant]]\nname = \"a\"\n")); err != nil || p.Base != "/runs/hard.toml" {
		t.Errorf("base %q, %v, want the path as it is", p.Base, err)
	}
	var got []string
	for _, r := range p.Runs("out") {
		got = append(got, r.Dir)
	}
	want := []string{"out/a-beta1=0.5/seed-1", "out/a-beta1=0.5/seed-2", "out/a-beta1=0.9/seed-1", "out/a-beta1=0.9/seed-2", "out/b-beta1=0.5/seed-7", "out/b-beta1=0.9/seed-7"}
	for i := range want {
		want[i] = filepath.FromSlash(want[i])
	}
	if !slices.Equal(got, want) {
		t.Errorf("runs %q, want %q", got, want)
	}
	settings := p.Runs("out")[2].Settings
	if want := []string{`objective.name="grpo"`, "optimizer.beta1=0.9", "train.seed=1", "data.seed=1"}; !slices.Equal(settings[:4], want) || !strings.HasPrefix(settings[4], "output.dir=") {
		t.Errorf("settings %q, want %q and the folder", settings, want)
	}
	if want := []question{{"b beta1=0.5", "a beta1=0.5", "b is better"}, {First: "a beta1=0.9", Second: "a beta1=0.5"}, {First: "b beta1=0.9", Second: "a beta1=0.5"}}; !slices.Equal(p.Comparisons, want) {
		t.Errorf("comparisons %+v, want %+v", p.Comparisons, want)
	}
}

// TestBadPlans checks that the error lists everything that is wrong with a file, with
// the name of the file.
func TestBadPlans(t *testing.T) {
	path := write(t, `
[sweep]
baseline = "c"
sedes = [1]
[[variant]]
name = "a"
[[variant]]
name = "a"
p = 1
[[compare]]
first = "a"
second = "e"
`)
	_, err := ReadPlan(path)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`unknown key "sweep.sedes"`, `variant 2: unknown key "p"`, `two variants are named "a"`, `variant "a" has no seeds`,
		`[[compare]] names "e"`, `sweep.baseline names "c"`} {
		if !strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if _, err := ReadPlan(write(t, "[sweep]\nseeds = [1]\n")); err == nil || !strings.Contains(err.Error(), "neither [[variant]] nor [grid]") {
		t.Errorf("a file without variants: %v", err)
	}
}

// TestRunsApart checks that a plan is refused if two runs would have one folder, if a
// grid has no runs or too many, and if the file is not a plan.
func TestRunsApart(t *testing.T) {
	values := strings.Repeat("1, ", 400)
	for text, want := range map[string]string{
		"[sweep]\nseeds = [1, 2, 1]\n[[variant]]\nname = \"a\"\n":                                          `variant "a" has a seed twice: [1 2 1]`,
		"[sweep]\nseeds = [1]\n[[variant]]\nname = \"a\"\nseeds = [3, 3]\n":                                `variant "a" has a seed twice: [3 3]`,
		"[sweep]\nseeds = [1]\n[[variant]]\nname = \"a b\"\n[[variant]]\nname = \"A/b\"\n":                 `variants "a b" and "A/b" would both have the folder "a-b": rename one`,
		"[sweep]\nseeds = [1]\n[grid]\n\"train.seed\" = []\n":                                              `grid."train.seed" has no values`,
		"[sweep]\nseeds = [1]\n[grid]\na = [" + values + "]\nb = [" + values + "]\nc = [" + values + "]\n": "the grid has more than 100000 runs",
	} {
		if _, err := ReadPlan(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	if _, err := ReadPlan(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}

func TestDifference(t *testing.T) {
	const a = "[objective]\nname = \"pmpo\"\np_negative = 0.5\n[runtime]\nthreads = 1\n"
	for _, c := range []struct{ b, want string }{
		{"[objective]\nname = \"pmpo\"\np_negative = 0.5\n[output]\ndir = \"b\"\n", ""},
		{"[objective]\nname = \"pmpo\"\np_negative = 0.25\n", "objective.p_negative is 0.5 there and 0.25 here"},
		{"[objective]\nname = \"grpo\"\n", `objective.name is "pmpo" there and "grpo" here`},
		{"[objective]\nname = \"pmpo\"\n", "objective.p_negative is 0.5 there and not set here"},
		{a + "[train]\nseed = 2\n", "train.seed is not set there and 2 here"},
		{a + "[eval]\nsuites = [\"x\"]\n", `eval.suites is not set there and ["x"] here`},
	} {
		got, err := difference([]byte(a), []byte(c.b))
		if err != nil || got != c.want {
			t.Errorf("difference from\n%s= %q, %v, want %q", c.b, got, err, c.want)
		}
	}
}

// TestDone checks a folder without a run, with an unfinished run, with a finished run,
// and with a run that has other settings.
func TestDone(t *testing.T) {
	r := Run{Dir: filepath.Join(t.TempDir(), "run"), Config: []byte("[train]\nseed = 1\n")}
	same := func(_ string, text []byte) ([]byte, error) { return text, nil }
	expect := func(want bool) {
		t.Helper()
		if got, err := r.Done(same); err != nil || got != want {
			t.Errorf("Done = %v, %v, want %v", got, err, want)
		}
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(r.Dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	expect(false)
	put("run.toml", string(r.Config))
	expect(false)
	put(resultFile, "{}")
	expect(true)
	put("run.toml", "[train]\nseed = 2\n")
	_, err := r.Done(same)
	if conflict, ok := err.(*ConflictError); !ok || conflict.Difference != "train.seed is 2 there and 1 here" {
		t.Errorf("error %v", err)
	}
}

// A variant may have a list of rewards, which --set gets as TOML.
func TestPlanOfTables(t *testing.T) {
	p, err := ReadPlan(write(t, `
[sweep]
seeds = [1]
[[variant]]
name = "two"
reward = { combine = "gate", use = [{ name = "math" }, { name = "length", weight = -0.5, "odd key" = ["a\"b", true] }] }
`))
	if err != nil {
		t.Fatal(err)
	}
	settings := p.Runs("out")[0].Settings
	if want := []string{`reward.combine="gate"`, `reward.use=[{"name" = "math"}, {"name" = "length", "odd key" = ["a\"b", true], "weight" = -0.5}]`}; !slices.Equal(settings[:2], want) {
		t.Errorf("settings %q, want %q", settings, want)
	}
}

// TestRetiredKeys: a key that earlier versions read is refused once, with what to do instead.
func TestRetiredKeys(t *testing.T) {
	for text, want := range map[string]string{
		"[sweep]\nseeds = [1]\nfamily = [\"b.toml\"]\n[[variant]]\nname = \"x\"\n":                    "sweep.family is not read any more: list all comparisons of a task in one file",
		"[sweep]\nseeds = [1]\n[tune]\ntrials = 3\n[tune.grid]\np = [1]\n[[variant]]\nname = \"x\"\n": "tune is not read any more: run a [grid] on seeds of its own, and state the best settings in the variants",
		"[sweep]\nseeds = [1]\n[[variant]]\nname = \"x\"\ntune = { \"objective.p\" = [1] }\n":         "variant 1: tune is not read any more: run a [grid] on seeds of its own, and state the best settings in the variants",
	} {
		path := write(t, text)
		if _, err := ReadPlan(path); err == nil || err.Error() != path+": "+want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
