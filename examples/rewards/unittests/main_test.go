package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"onering/data"
	"onering/reward"
	_ "onering/reward/all"
	"onering/reward/command"
	server "onering/reward/http"
)

// The grader of these tests is this test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == jailed || os.Args[1] == "-seconds") {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// example returns the fenced block of a language under a heading of docs/rewards.md.
func example(t *testing.T, heading, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/rewards.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n### ")
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)
	if block == nil {
		t.Fatalf("docs/rewards.md: %q has no block of %s", heading, language)
	}
	return block[1]
}

// configured returns the reward of a run file.
func configured(t *testing.T, text string) reward.Reward {
	t.Helper()
	var file struct {
		Reward toml.Primitive `toml:"reward"`
	}
	meta, err := toml.Decode(text, &file)
	if err != nil {
		t.Fatal(err)
	}
	var head struct {
		Name, Combine string
		Use           []toml.Primitive
	}
	if err := meta.PrimitiveDecode(file.Reward, &head); err != nil {
		t.Fatal(err)
	}
	if head.Use == nil {
		r, err := reward.New(head.Name)
		if err == nil {
			err = meta.PrimitiveDecode(file.Reward, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { reward.Close(r) })
		return r
	}
	several := &reward.Combined{Combine: head.Combine}
	for _, use := range head.Use {
		var name struct{ Name string }
		if err := meta.PrimitiveDecode(use, &name); err != nil {
			t.Fatal(err)
		}
		part, err := reward.NewPart(name.Name)
		if err == nil {
			err = meta.PrimitiveDecode(use, &part)
		}
		if err == nil {
			err = meta.PrimitiveDecode(use, part.Reward)
		}
		if err != nil {
			t.Fatal(err)
		}
		several.Parts = append(several.Parts, part)
	}
	return several
}

// values grades responses to a problem; "-" is a skipped one.
func values(t *testing.T, r reward.Reward, p data.Problem, responses ...string) (out []string, scores []reward.Score) {
	t.Helper()
	if v, ok := r.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	var group []reward.Sample
	for _, text := range responses {
		text, truncated := strings.CutSuffix(text, "[cut]")
		group = append(group, reward.Sample{Problem: p, Prompt: "Q: ", Response: text, Truncated: truncated})
	}
	scores, err := r.Score(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scores {
		if s.Skip {
			out = append(out, "-")
		} else {
			out = append(out, fmt.Sprint(s.Value))
		}
	}
	return out, scores
}

func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("there is no %s here", program)
	}
}

func TestPythonFunction(t *testing.T) {
	needs(t, "python3")
	file := filepath.Join(t.TempDir(), "score.py")
	if err := os.WriteFile(file, []byte(example(t, "A Python function", "python")), 0o644); err != nil {
		t.Fatal(err)
	}
	r := configured(t, example(t, "A Python function", "toml")).(*command.Program)
	if !slices.Equal(r.Command, []string{"python3", "score.py"}) {
		t.Fatalf("command %q", r.Command)
	}
	r.Command[1] = file
	p := data.Problem{ID: "p", Fields: data.Object{{Name: "words", Value: int64(4)}}}
	got, scores := values(t, r, p, "one two three four", "one two", "", "one two[cut]")
	if want := []string{"1", "0.5", "0", "-"}; !slices.Equal(got, want) {
		t.Errorf("rewards %q, want %q", got, want)
	}
	if scores[1].Log["words"] != 2 || scores[3].Log != nil {
		t.Errorf("figures %v and %v", scores[1].Log, scores[3].Log)
	}
}

func TestJudge(t *testing.T) {
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Query, Prompts, Labels []string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.Header.Get("Authorization") != "Bearer hush" || r.URL.Path != "/get_reward" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		var rewards []float64
		for i, q := range asked.Query {
			rewards = append(rewards, float64(strings.Count(q, asked.Labels[i])))
		}
		json.NewEncoder(w).Encode(map[string]any{"rewards": rewards, "scores": rewards, "extra_logs": map[string]any{}})
	}))
	defer judge.Close()
	t.Setenv("JUDGE_TOKEN", "hush")
	r := configured(t, example(t, "A judge behind HTTP", "toml")).(*server.Server)
	r.URL = strings.Replace(r.URL, "http://localhost:5000", judge.URL, 1)
	p := data.Problem{ID: "p", Answers: []string{"Paris"}}
	if got, _ := values(t, r, p, "Paris, only Paris", "Rome"); !slices.Equal(got, []string{"2", "0"}) {
		t.Errorf("rewards %q", got)
	}
	judge.Close()
	r.Retries = 0
	if got, _ := values(t, r, p, "Paris", "Rome"); !slices.Equal(got, []string{"-", "-"}) {
		t.Errorf("rewards %q of a judge that is gone", got)
	}
}

func TestFormatAndMaths(t *testing.T) {
	r := configured(t, example(t, "Format and maths", "toml"))
	p := data.Problem{ID: "p", Text: "1+1", Answers: []string{"2"}}
	got, _ := values(t, r, p, `<think>easy</think> <answer>\boxed{2}</answer>`, `<think>easy</think> <answer>\boxed{3}</answer>`, `\boxed{2}`)
	if want := []string{"1.1", "0.1", "0"}; !slices.Equal(got, want) {
		t.Errorf("rewards %q, want %q", got, want)
	}
}

// unittests is the reward of the page, with this test binary as the grader.
func unittests(t *testing.T) *command.Program {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("generated code is run on Linux only")
	}
	r := configured(t, example(t, "Unit tests of generated code", "toml")).(*command.Program)
	if r.Command[0] != "./unittests" {
		t.Fatalf("command %q", r.Command)
	}
	r.Command[0] = os.Args[0]
	if out, err := (limits{Seconds: 10, Megabytes: 512}).run(t.Context(), t.TempDir(), "true"); err != nil {
		t.Skipf("this system has no user namespaces for us: %v %s", err, out)
	}
	return r
}

func fencedBlock(code string) string { return "So:\n```\n" + code + "\n```\nDone." }

func TestPythonCode(t *testing.T) {
	needs(t, "python3")
	r := unittests(t)
	r.Command[2] = "3" // seconds
	p := data.Problem{ID: "p", Fields: data.Object{{Name: "language", Value: "python"}, {Name: "tests", Value: "assert add(1, 2) == 3"}}}
	right := "def add(a, b): return a + b\n"
	got, scores := values(t, r, p,
		fencedBlock(right), right, fencedBlock("def add(a, b): return a - b"), "no code at all",
		fencedBlock("import os\nos._exit(0)"), // ends before the tests
		fencedBlock("while True: pass"),
		fencedBlock("x = bytearray(1 << 30)\n"+right), // too much memory
		fencedBlock("open('big', 'wb').write(b'x' * (300 << 20))\nopen('big', 'ab').write(b'x' * (300 << 20))\n"+right), // too large a file
		fencedBlock("import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=1)\n"+right),
		fencedBlock("import os\nassert 'PYTHONUNBUFFERED' not in os.environ and 'USER' not in os.environ\n"+right),
		fencedBlock("print('x\\n' * (1 << 22))\n"+right),
	)
	if want := []string{"1", "1", "0", "0", "0", "0", "0", "0", "0", "1", "1"}; !slices.Equal(got, want) {
		for i, s := range scores {
			t.Logf("%s %s", got[i], s.Reason)
		}
		t.Errorf("rewards %q, want %q", got, want)
	}
	for i, want := range map[int]string{5: "it takes more than 3 s", 6: "MemoryError", 8: "Network is unreachable"} {
		if !strings.Contains(scores[i].Reason, want) {
			t.Errorf("response %d: %q, want %q", i, scores[i].Reason, want)
		}
	}
	if scores[0].Components["fenced"] != 1 || scores[1].Components["fenced"] != 0 {
		t.Errorf("components %v and %v", scores[0].Components, scores[1].Components)
	}
}

func TestGoCode(t *testing.T) {
	needs(t, "go")
	r := unittests(t)
	p := data.Problem{ID: "p", Fields: data.Object{{Name: "language", Value: "go"}, {Name: "tests", Value: `package solution
import "testing"
func TestAdd(t *testing.T) { if Add(1, 2) != 3 { t.Fatal("wrong sum") } }`}}}
	got, scores := values(t, r, p,
		fencedBlock("package solution\nfunc Add(a, b int) int { return a + b }"),
		fencedBlock("package solution\nfunc Add(a, b int) int { return a - b }"),
		fencedBlock("package solution\nimport \"os\"\nfunc init() { os.Exit(0) }\nfunc Add(a, b int) int { return 3 }"),
		fencedBlock("package solution\nfunc Add(a, b int) int {"),
	)
	if want := []string{"1", "0", "0", "0"}; !slices.Equal(got, want) {
		for i, s := range scores {
			t.Logf("%s %s", got[i], s.Reason)
		}
		t.Errorf("rewards %q, want %q", got, want)
	}
	if !strings.HasPrefix(scores[3].Reason, "it does not compile") {
		t.Errorf("reason %q", scores[3].Reason)
	}
}
