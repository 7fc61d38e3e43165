package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// episodeRun writes a run whose responses are episodes: "1+2=", which earns 0.25, the answer of
// the environment, and "3" with the end token; and one response of a single turn.
func episodeRun(t *testing.T, answer string) string {
	dir := t.TempDir()
	quoted, _ := json.Marshal(answer)
	line := func(sample int, rest string) string {
		return fmt.Sprintf(`{"problem":"q","sample":%d,"prompt":"1+2=","response":"1+2=%s3","answers":["3"],"answer":"3","reward":1,"right":true,"advantage":0.5%s}`, sample, strings.Trim(string(quoted), `"`), rest) + "\n"
	}
	turns := `,"turns":[{"author":"policy","from":0,"to":2,"text":"1+","reward":0.25},{"author":"environment","from":2,"to":4,"text":` + string(quoted) + `},{"author":"policy","from":4,"to":6,"text":"3"}]`
	files := map[string]string{
		"run.toml":      "[model]\npath = \"builtin:arithmetic\"\n[train]\nrounds = 1\n",
		"metrics.jsonl": `{"kind":"step","step":1,"round":1,"grad_norm":0.5}` + "\n" + `{"kind":"round","round":1,"step":1,"reward":0.5,"turns/mean":1.75,"environment/failed":3,"environment/failed_share":0.75,"environment/reason":"the tool died"}` + "\n",
		"rollouts/round-00001.jsonl": line(0, turns+`,"ids":[3,12,5,5,5,1],"logp":[-0.5,-0.25,0,0,-1,-2],"w":[0.1,0.2,0,0,-0.4,0.3],"delta":[0.3,0.3,0,0,0.3,0.3]`) +
			line(1, `,"ids":[5,1],"logp":[-0.5,-0.25]`) + line(0, `,"part":true,"ids":[5],"logp":[-0.5]`),
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTurns: the page and the view show who wrote each part, and the ESS figure counts
// the policy's tokens only.
func TestTurns(t *testing.T) {
	r := mustRead(t, episodeRun(t, "33"))
	if err := r.ChooseRollouts(1 << 20); err != nil {
		t.Fatal(err)
	}
	p, err := newPage([]*Run{r}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p.Rollouts)
	if err != nil {
		t.Fatal(err)
	}
	want := `"turns":[{"author":"policy","from":0,"to":2,"reward":0.25},{"author":"environment","from":2,"to":4},{"author":"policy","from":4,"to":6}]`
	if !strings.Contains(string(text), want) || strings.Count(string(text), `"turns"`) != 1 {
		t.Errorf("the page has %s", text)
	}
	// The policy's four tokens have the same log-ratio, and the environment's tokens have none.
	if n := r.ess.n[0]; n != 1 || r.ess.ess[0][exponentSteps] < 0.9999 {
		t.Errorf("%d responses with an ESS of %v", n, r.ess.ess[0][exponentSteps])
	}
	// An earlier segment is shown, and counts in no figure.
	if q := p.Rollouts[0].Problems; len(q) != 1 || q[0].All != 2 || r.newestVerdicts.all != 2 || len(p.Rollouts[0].List) != 3 || !p.Rollouts[0].List[2].Part {
		t.Errorf("%+v, %+v, %d responses", q, r.newestVerdicts, len(p.Rollouts[0].List))
	}
	ids := []string{}
	for _, f := range p.Figures {
		ids = append(ids, f.ID)
	}
	if !slices.Contains(ids, "turns") || !slices.Contains(ids, "failed") {
		t.Errorf("figures are %v", ids)
	}
	if f, _ := r.stabilityFinding(); f.Level != "bad" || !strings.Contains(f.Text, "nvironment failed in 3 of") {
		t.Errorf("%+v", f)
	}

	view, _, err := View(r.Dir, 60, 40)
	for _, want := range []string{"reward 0.500, turns 1.75, episodes failed 3\n", "\n[0.25] 1+\n  environment answers 33\n3\n"} {
		if err != nil || !strings.Contains(view, want) {
			t.Errorf("%v: the view lacks %q:\n%s", err, want, view)
		}
	}
	samples, err := readSamples(r.Dir, 1, 4)
	if want := "**Policy, reward 0.25**\n\n    1+\n\n**Environment**\n\n    33\n\n**Policy**\n\n    3\n\n"; err != nil || len(samples) != 1 || !strings.HasSuffix(markdown(&samples[0], 1), want) {
		t.Errorf("%v: %v", err, samples)
	}
}

// TestTurnsFold: an observation takes one line of the view, however long it is, and a
// mark shows that it was cut.
func TestTurnsFold(t *testing.T) {
	dir := episodeRun(t, strings.Repeat("a page\nof text ", 5000))
	for height := 5; height < 40; height++ {
		view, _, err := View(dir, 60, height)
		if err != nil || strings.Count(view, "environment answers") > 1 || strings.Count(view, "\n") > height || strings.Count(view, "a page") > 6 {
			t.Errorf("%v at a height of %d:\n%s", err, height, view)
		}
		if strings.Contains(view, "[0.25] 1+") && !strings.Contains(view, "[0.25] 1+…") && !strings.Contains(view, "environment answers a page of text") {
			t.Errorf("at a height of %d nothing says that more follows:\n%s", height, view)
		}
	}
}

// TestTurnsDamaged: turns that do not fit the response are an error that names the file,
// the line and the turn.
func TestTurnsDamaged(t *testing.T) {
	for damage, want := range map[string]string{
		`"from":2,"to":4|"from":3,"to":4`:             "turns[1]",
		`"from":4,"to":6|"from":4,"to":9`:             "turns[2]",
		`"from":4,"to":6|"from":4,"to":5`:             "turns have 5 of the response's 6 tokens",
		`"author":"environment"|"author":"nobody"`:    `the author is "nobody"`,
		`"from":0,"to":2|"from":0,"to":-2`:            "turns[0]",
		`"ids":[3,12,5,5,5,1]|"ids":[3,12,5,5,5,1,1]`: "turns have 6 of the response's 7 tokens",
	} {
		dir := episodeRun(t, "33")
		path := filepath.Join(dir, "rollouts", "round-00001.jsonl")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, after, _ := strings.Cut(damage, "|")
		if err := os.WriteFile(path, bytes.Replace(text, []byte(before), []byte(after), 1), 0o666); err != nil {
			t.Fatal(err)
		}
		err = mustRead(t, dir).ChooseRollouts(1 << 20)
		if err == nil || !strings.Contains(err.Error(), "round-00001.jsonl: line 1: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", damage, err, want)
		}
	}
}
