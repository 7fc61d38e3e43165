package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeat counts the right responses of problems over six rounds. Problem a comes in
// every second round, b in one round only, c twice in a round and then never, and no
// verdict is known for u.
func TestHeat(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rollouts"), 0o777); err != nil {
		t.Fatal(err)
	}
	size := 0
	for round := 1; round <= 6; round++ {
		var b strings.Builder
		add := func(id string, right ...string) {
			for i, r := range right {
				fmt.Fprintf(&b, `{"problem":%q,"sample":%d,"prompt":"P","columns":{"x":0,"ids":[7],"y":1},"prompt_ids":[1],"response":"r ,\"ids\":[","reward":0.5%s,"ids":[1,2],"logp":[0,0]}`+"\n", id, i, r)
			}
		}
		const yes, no, skipped = `,"right":true`, `,"right":false`, `,"skipped":true`
		if round%2 == 1 {
			add("a", no, yes, yes, skipped)
		}
		add("u", "", "")
		add("always", yes, yes)
		if round == 2 {
			add("b", yes)
			add("c", yes)
			add("c", no)
		}
		size += b.Len()
		if err := os.WriteFile(filepath.Join(dir, "rollouts", fmt.Sprintf("round-%05d.jsonl", round)), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r := &Run{Name: "x", Dir: dir}
	m, ok, err := r.heat(heatBytes)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"run":"x","columns":["1","2","3","4","5","6"],"rows":[` +
		`{"id":"a","prompt":"P","cells":[[2,3],[0,0],[2,3],[0,0],[2,3],[0,0]]},` +
		`{"id":"always","prompt":"P","cells":[[2,2],[2,2],[2,2],[2,2],[2,2],[2,2]]}],"again":2,"read":6,"rounds":6}`
	if string(text) != want {
		t.Errorf("map\n%s, want\n%s", text, want)
	}
	if m, _, err = r.heat(int64(size / 2)); err != nil || m.Read != 3 || m.Rounds != 6 {
		t.Errorf("with half of the bytes: %+v, %v", m, err)
	}
}

// A view of many problems shows evenly chosen ones from the hardest to the easiest, with few
// columns.
func TestHeatIsBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rollouts"), 0o777); err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 100; round++ {
		var b strings.Builder
		for i := range 200 {
			fmt.Fprintf(&b, `{"problem":"%03d","prompt":%q,"reward":%d}`+"\n", i, strings.Repeat("é", 500), (i+round)/200)
		}
		if err := os.WriteFile(filepath.Join(dir, "rollouts", fmt.Sprintf("round-%05d.jsonl", round)), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	m, ok, err := (&Run{Dir: dir}).heat(heatBytes)
	if err != nil || !ok || len(m.Rows) != heatProblems || len(m.Columns) != heatColumns || m.Again != 200 {
		t.Fatalf("%d rows, %d columns, %d problems, %v", len(m.Rows), len(m.Columns), m.Again, err)
	}
	if first, last := m.Rows[0], m.Rows[heatProblems-1]; first.ID != "000" || last.ID != "196" || len(first.Prompt) != 160 {
		t.Errorf("rows from %s to %s, a prompt of %d bytes", first.ID, last.ID, len(first.Prompt))
	}
	if m.Columns[0] != "1-3" || m.Columns[heatColumns-1] != "99-100" {
		t.Errorf("columns %q", m.Columns)
	}
}

// A response counts by the reward's verdict, not by the size of the reward, except in
// runs from before verdicts.
func TestVerdict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "round-00001.jsonl")
	text := `{"problem":"a","sample":0,"prompt":"1","prompt_text":"Q 1","prompt_ids":[1,2],"reward":0.5,"right":false}
{"problem":"a","sample":1,"prompt":"1","reward":0.5}
{"problem":"a","sample":2,"prompt":"1","reward":-0.5,"right":true}
{"problem":"a","sample":0,"prompt":"1","prompt_text":"Q 1","prompt_ids":[1,2],"reward":null,"skipped":true}
{"problem":"a","sample":1,"prompt":"1","reward":1,"right":true}
{"problem":"old","sample":0,"prompt":"1","reward":0.5}
{"problem":"old","sample":1,"prompt":"1","reward":0}
`
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	lines, err := readRollouts(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprint(l.group, l.verdict(), len(l.PromptIDs)))
	}
	if want := "0wrong2 0unknown2 0right2 1right2 2right0 2wrong0"; strings.ReplaceAll(strings.Join(got, "|"), " ", "") != strings.ReplaceAll(want, " ", "|") {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if v := countVerdicts(1, lines); v != (verdicts{round: 1, all: 6, wrong: 2, unanswered: 2, unknown: 1}) {
		t.Errorf("%+v", v)
	}
}

func TestSettingsDiffer(t *testing.T) {
	config := func(values ...string) map[string]string {
		m := map[string]string{"model.path": "m", "output.dir": fmt.Sprint(values)}
		for i := 0; i < len(values); i += 2 {
			m[values[i]] = values[i+1]
		}
		return m
	}
	d := settingsDiffer([]*Run{
		{Name: "a", Config: config("objective.name", "pmpo", "objective.p", "1", "train.seed", "1")},
		{Name: "b", Config: config("objective.name", "pmpo", "objective.p", "1", "train.seed", "2")},
		{Name: "c", Config: config("objective.name", "grpo", "objective.clip", "0.2", "train.seed", "1")},
	})
	if got, want := fmt.Sprint(d), "{[pmpo c] [[objective.name pmpo grpo] [train.seed 1, 2 1] [objective.clip - 0.2] [objective.p 1 -]] 0}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var many []*Run
	for i := range 20 {
		many = append(many, &Run{Name: fmt.Sprint(i), Config: config("optimizer.learning_rate", fmt.Sprint(i))})
	}
	if d := settingsDiffer(many); len(d.Columns) != maxDiffer || len(d.Rows) != 1 || len(d.Rows[0]) != 1+maxDiffer || d.Left != 20-maxDiffer {
		t.Errorf("%+v", d)
	}
	if d := settingsDiffer(many[:1]); len(d.Rows) != 0 {
		t.Errorf("one run differs from itself: %+v", d)
	}
}

// The page of a run on given texts shows its losses, and no rewards.
func TestSupervised(t *testing.T) {
	dir := t.TempDir()
	text := `{"kind":"eval","step":0,"loss":3}
{"kind":"step","step":1,"loss":2.5,"grad_norm":1,"learning_rate":1e-5,"train_tokens":9,"entropy":1,"seconds/backward":3}
{"kind":"step","step":2,"loss":1.5,"grad_norm":1,"learning_rate":1e-5,"train_tokens":9,"entropy":2,"seconds/backward":1.5}
{"kind":"eval","step":2,"loss":2}
`
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	r := mustRead(t, dir)
	if f := r.Findings()[0]; f.Level != "good" || f.Text != "Loss 2.500 in the first steps, 1.500 in the last; held-out loss 3.000 before, 2.000 after." {
		t.Errorf("%+v", f)
	}
	all := r.Findings()
	if f := all[len(all)-1]; f.Text != "Backward 100 % of 4.5 s. 18 tokens learned, 4 a second." {
		t.Errorf("%+v", f)
	}
	p, err := newPage([]*Run{r}, Options{})
	if err != nil || !p.Supervised {
		t.Errorf("supervised %v, %v", p.Supervised, err)
	}
	var ids []string
	for _, f := range p.Figures {
		ids = append(ids, f.ID)
	}
	if got := strings.Join(ids, " "); got != "held-out-loss train-loss entropy-steps grad_norm learning_rate phases" {
		t.Errorf("figures %s", got)
	}
	if got := fmt.Sprint(p.Table.Rows[0].Cells); !strings.HasSuffix(got, " 3 2 1.5 1 1 2 4.5]") {
		t.Errorf("table %+v %s", p.Table.Columns, got)
	}
}
