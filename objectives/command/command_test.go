package command

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"onering/objectives"
	_ "onering/objectives/dapo"
	"onering/objectives/objectivetest"
)

// program is GRPO with a clip of 0.2 and 1/T, written without libraries. Words after it say what
// it does wrong.
const program = `
import base64, json, math, struct, sys
how = sys.argv[1] if len(sys.argv) > 1 else ""
def numbers(x):
    return list(struct.unpack("<%df" % (len(base64.b64decode(x)) // 4), base64.b64decode(x))) if isinstance(x, str) else x
asked = 0
for line in sys.stdin:
    step = json.loads(line)
    asked += 1
    if how == "dies" and asked == 1: sys.exit("out of luck")
    if how == "once" and step["step"] == 3 and asked > 1: sys.exit("no more")
    if how == "hangs": continue
    rows = step["trajectories"]
    each = 1 / max(1, sum(len(numbers(r["logp"])) for r in rows))
    loss, weights = 0.0, []
    for r in rows:
        a, row = r["advantage"], []
        for logp, old in zip(numbers(r["logp"]), numbers(r["old_logp"])):
            ratio = math.exp(min(700, logp - old))
            cut = ratio > 1.2 and a > 0 or ratio < 0.8 and a < 0
            loss -= each * a * (min(max(ratio, 0.8), 1.2) if cut else ratio)
            row.append(0.0 if cut else -each * a * ratio)
        weights.append(row)
    answer = {"id": step["id"], "loss": loss, "weights": weights}
    if how == "short" and weights: weights[0] = weights[0][1:]
    if how == "error": answer = {"id": step["id"], "error": "no such loss"}
    if how == "wrong": answer["weights"] = [[2 * x for x in w] for w in weights]
    if how == "packed": answer["weights"] = [base64.b64encode(struct.pack("<%df" % len(w), *w)).decode() for w in weights]
    if how == "counts": answer["state"] = (step["state"] or 0) + 1
    print(json.dumps(answer), flush=True)
`

func objective(t *testing.T, words ...string) *Program {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here: ", err)
	}
	path := filepath.Join(t.TempDir(), "loss.py")
	if err := os.WriteFile(path, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := objectives.New("command")
	if err != nil {
		t.Fatal(err)
	}
	p := o.(*Program)
	p.Command = append([]string{python, path}, words...)
	return p
}

// TestConformance: a program passes the suite, and one whose weights are wrong does not.
func TestConformance(t *testing.T) {
	good := objective(t)
	fresh := func(from *Program) func() objectives.Objective {
		return func() objectives.Objective {
			o, _ := objectives.New("command")
			o.(*Program).Command = from.Command
			return o
		}
	}
	objectivetest.RunNew(t, fresh(good))
	if err := objectivetest.Check(fresh(objective(t, "wrong"))); err == nil || !strings.Contains(err.Error(), "derivative") {
		t.Errorf("weights that are twice the derivative pass: %v", err)
	}
	objectivetest.RunNew(t, fresh(objective(t, "counts")))
	hangs := objective(t, "hangs")
	err := objectivetest.Check(func() objectives.Objective {
		o := fresh(hangs)().(*Program)
		o.Timeout, o.Retries = 0.2, 0
		return o
	})
	if err == nil || strings.Count(err.Error(), "no answer to step") != 1 || !strings.Contains(err.Error(), "the rules after derivative were not checked") {
		t.Errorf("a program that hangs is asked again for every rule: %v", err)
	}
}

func groups() [][]objectives.Trajectory {
	return [][]objectives.Trajectory{{
		{Reward: 1, LogProb: []float64{-1, -0.5, -2}, OldLogProb: []float64{-1.1, -0.9, -2}},
		{Reward: 0, LogProb: []float64{-0.25, -3}, OldLogProb: []float64{-0.5, -2.5}},
	}}
}

// TestSame: the program and the objective that it repeats have the same loss and weights, and
// packed numbers are those numbers in float32.
func TestSame(t *testing.T) {
	same, _ := objectives.New("dapo")
	packed := objective(t, "packed")
	packed.Wire = "float32"
	want, err := objectives.Evaluate(same, groups(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for tolerance, o := range map[float64]*Program{1e-12: objective(t), 1e-6: packed} {
		got, err := objectives.Evaluate(o, groups(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range got.Groups[0] {
			for j, w := range row.Weights {
				if math.Abs(w-want.Groups[0][i].Weights[j]) > tolerance {
					t.Errorf("response %d, token %d: %v, want %v", i, j, w, want.Groups[0][i].Weights[j])
				}
			}
		}
	}
}

// TestFailures: what a program does wrong ends the step with its name, and one that dies
// once is asked again.
func TestFailures(t *testing.T) {
	for how, want := range map[string]string{
		"short": "step 7: response 0: 2 weights for 3 tokens", "error": "step 7: it reports: no such loss",
		"dies": "its last words: out of luck", "hangs": "no answer to step 1 within 0.2 s",
	} {
		o := objective(t, how)
		o.Retries = 1
		if how == "hangs" {
			o.Timeout = 0.2
		}
		_, err := objectives.Evaluate(o, groups(), 7, 10)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `objective "command"`) {
			t.Errorf("%s: error %v, want %q", how, err, want)
		}
	}
	o := objective(t, "once")
	for step := range 4 {
		if _, err := objectives.Evaluate(o, groups(), step, 10); err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
}

// TestState: the program's state comes back with the next step, and survives a checkpoint.
func TestState(t *testing.T) {
	o := objective(t, "counts")
	for step := range 2 {
		if _, err := objectives.Evaluate(o, groups(), step, 10); err != nil {
			t.Fatal(err)
		}
	}
	text, err := o.MarshalText()
	if string(text) != "2" || err != nil {
		t.Fatalf("state %q, %v", text, err)
	}
	next := objective(t, "counts")
	if err := next.UnmarshalText(text); err != nil {
		t.Fatal(err)
	}
	if _, err := objectives.Evaluate(next, groups(), 2, 10); err != nil {
		t.Fatal(err)
	}
	if text, _ := next.MarshalText(); string(text) != "3" {
		t.Errorf("state %q after a resume", text)
	}
}
