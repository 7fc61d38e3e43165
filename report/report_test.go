package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/train/rundir"
)

// fakeRun writes a run folder with the given number of steps, eight per round, and
// returns it.
func fakeRun(t testing.TB, dir, objective string, seed uint64, steps int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for _, sub := range []string{"rollouts", "checkpoints/step-000008"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("run.toml", fmt.Sprintf("[model]\npath = \"m\"\n[objective]\nname = %q\nclip = 0.4\n[train]\nseed = %d\nrounds = %d\n[output]\ndir = %q\n", objective, seed, steps/8, dir))
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"eval","round":0,"step":0,"eval/sums/pass@1":0.25,"eval/sums/pass@1_low":0.2,"eval/sums/pass@1_high":0.3}`+"\n")
	for s := 1; s <= steps; s++ {
		x := float64(s) / float64(steps)
		fmt.Fprintf(&b, `{"kind":"step","step":%d,"round":%d,"loss":%.17g,"grad_norm":%.17g,"learning_rate":0.0002,"p/mean":%.17g,"p/max":0.99,"p/share_at_max":%.17g,"ess":%.17g,"ess_at_p_max":0.98,"target_ess":0.2,"clip_fraction":%.17g,"clipped":0.01,"log_ratio/mean":%.17g,"log_ratio/max":0.2,"log_ratio/min":-0.2,"p/mean/pos":0.8,"ess/pos":0.98,"p/mean/neg":%.17g,"ess/neg":0.9,"grad_share/top10/pos":0.2,"grad_share/top50/pos":0.7,"grad_share/top10/neg":null}`+"\n",
			s, (s+7)/8, r.NormFloat64(), 0.1+r.Float64(), 0.9+0.09*r.Float64(), r.Float64(), 0.9+0.1*r.Float64(), 0.1*r.Float64(), 0.1*r.NormFloat64(), r.Float64())
		if s%8 == 0 {
			fmt.Fprintf(&b, `{"kind":"round","round":%d,"step":%d,"reward":%.17g,"entropy":%.17g,"response_length/mean":30,"response_length/max":40,"truncated_share":0,"frac_reward_zero_std":0.1,"tokens":1000,"logp_gap_max":1e-6,"seconds/rollout":0.1,"seconds/backward":0.4,"seconds/other":0.01}`+"\n", s/8, s, 0.2+0.7*x, 0.2-0.15*x)
		}
	}
	fmt.Fprintf(&b, `{"kind":"eval","round":%d,"step":%d,"eval/sums/pass@1":0.75,"eval/sums/pass@1_low":0.7,"eval/sums/pass@1_high":0.8}`+"\n", steps/8, steps)
	write("metrics.jsonl", b.String())

	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := fs.ReadFile(data.ArithmeticModel(), name)
		if err != nil {
			t.Fatal(err)
		}
		write(filepath.Join("checkpoints/step-000008", name), string(text))
	}
	more := ""
	if objective == "pmpo" { // Some runs lack these fields.
		more = `,"right":%t,"delta":[0.3,0],"w":[-%g,0.01]`
	}
	for _, round := range []int{1, 2, steps / 8} {
		var b strings.Builder
		for i := range 30 {
			fmt.Fprintf(&b, `{"problem":"q%d","sample":%d,"prompt":"1+%d="`, i%5, i/5, i%5)
			if i < 5 && more != "" {
				fmt.Fprintf(&b, `,"prompt_text":"Q: 1+%d=","prompt_ids":[3,12,%d]`, i, 2+i)
			}
			fmt.Fprintf(&b, `,"response":"3","answers":["3"],"answer":"3","reward":%d,"advantage":0.5,"ids":[5,1],"logp":[-0.5,-0.0001]`, i%2)
			if more != "" {
				fmt.Fprintf(&b, more, i%2 == 1, 0.1+float64(i)/100)
			}
			b.WriteString("}\n")
		}
		write(fmt.Sprintf("rollouts/round-%05d.jsonl", round), b.String())
	}
	return dir
}

func mustRead(t testing.TB, dir string) *Run {
	t.Helper()
	r, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReadRun(t *testing.T) {
	dir := fakeRun(t, filepath.Join(t.TempDir(), "a"), "pmpo", 1, 16)
	// ReadRun must ignore a last line without a newline.
	f, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"kind":"step","step":17,`)
	f.Close()
	r := mustRead(t, dir)
	if r.Steps.Len() != 16 || r.Rounds.Len() != 2 || r.Evals.Len() != 2 {
		t.Errorf("%d steps, %d rounds, %d evaluations, want 16, 2, 2", r.Steps.Len(), r.Rounds.Len(), r.Evals.Len())
	}
	if got := r.Rounds.Step[1]; got != 16 {
		t.Errorf("round 2 ends with step %d, want 16", got)
	}
	if got := r.Steps.Column("grad_share/top10/neg"); got != nil {
		t.Errorf("a column of nulls is %v, want none", got)
	}
	if got := r.Rounds.Last("reward"); math.Abs(got-0.9) > 1e-9 {
		t.Errorf("last reward %v, want 0.9", got)
	}
	if got := r.Config["objective.name"]; got != "pmpo" {
		t.Errorf("objective.name = %q", got)
	}
}

// The table of settings shows lists and tables in readable form.
func TestSettingText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.toml")
	text := "[data]\ntrain = [\"a\", {path = \"b\", weight = 0.3}]\nseed = 3\n[eval]\nsuites = [\"x\"]\n[[reward.use]]\nname = \"math\"\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := readConfig(path)
	want := `map[data.seed:3 data.train:["a",{"path":"b","weight":0.3}] eval.suites:x reward.use:[{"name":"math"}]]`
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestReadRunRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "is not a run folder") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte("{}\nno json\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a broken line: %v", err)
	}
}

// TestEditedMetrics: for any value of a field, a line is a record, is ignored, or gives
// an error that names it.
func TestEditedMetrics(t *testing.T) {
	dir := t.TempDir()
	for _, key := range []string{"kind", "step", "round", "reward"} {
		for _, value := range []string{`null`, `[]`, `{}`, `[{"a": 1}]`, `"step"`, `1e300`, `-1`, `0.5`, `true`} {
			record := map[string]any{"kind": "step", "step": 3, "round": 1, "reward": 1, key: json.RawMessage(value)}
			line, _ := json.Marshal(record)
			if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), append(line, '\n'), 0o666); err != nil {
				t.Fatal(err)
			}
			r, err := ReadRun(dir)
			count := key == "step" || key == "round"
			switch value {
			case `1e300`, `-1`, `0.5`:
				if count != (err != nil) || err != nil && !strings.Contains(err.Error(), "line 1: \""+key+"\" is "+strings.ReplaceAll(value, "1e300", "1e+300")) {
					t.Errorf("%s of %s: %v", key, value, err)
				}
			default:
				if err != nil {
					t.Errorf("%s of %s: %v", key, value, err)
				} else if want := key != "kind" || value == `"step"`; (r.Steps.Len() == 1) != want {
					t.Errorf("%s of %s: %d steps", key, value, r.Steps.Len())
				}
			}
		}
	}
}

// TestTableLateColumn adds a row with a column that the first row lacks.
func TestTableLateColumn(t *testing.T) {
	table := newTable()
	table.add(1, map[string]any{"a": 1.0})
	table.add(2, map[string]any{"a": 2.0, "b": 5.0})
	table.add(3, map[string]any{"a": nil})
	table.finish()
	for name, want := range map[string]string{"a": "[1 2 NaN]", "b": "[NaN 5 NaN]"} {
		if got := fmt.Sprint(table.Column(name)); got != want {
			t.Errorf("column %s = %s, want %s", name, got, want)
		}
	}
}

// TestThin checks that thin keeps single extreme values and the order of the points.
func TestThin(t *testing.T) {
	p := make(points, 10_000)
	for i := range p {
		p[i] = [2]float64{float64(i), 1}
	}
	p[7321][1], p[123][1] = 50, -50
	got := thin(p, 200)
	if len(got) > 200 {
		t.Errorf("%d points, want at most 200", len(got))
	}
	low, high := math.Inf(1), math.Inf(-1)
	for i, xy := range got {
		low, high = min(low, xy[1]), max(high, xy[1])
		if i > 0 && xy[0] <= got[i-1][0] {
			t.Fatalf("point %d is not after the one before", i)
		}
	}
	if low != -50 || high != 50 {
		t.Errorf("values from %v to %v, want -50 to 50", low, high)
	}
	if short := thin(p[:50], 200); len(short) != 50 {
		t.Errorf("50 points became %d", len(short))
	}
}

func TestAverage(t *testing.T) {
	got := meanLine([]points{{{1, 10}, {2, 20}, {3, 30}}, {{1, 20}, {4, 40}}, {{1, 30}}})
	if want := (points{{1, 20}, {3, 30}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("average %v, want %v", got, want)
	}
}

func TestGroups(t *testing.T) {
	runs := []*Run{
		{Name: "a", Config: map[string]string{"objective.name": "pmpo", "objective.p": "1", "train.seed": "1", "output.dir": "a"}},
		{Name: "b", Config: map[string]string{"objective.name": "pmpo", "objective.p": "1", "train.seed": "2", "output.dir": "b"}},
		{Name: "c", Config: map[string]string{"objective.name": "pmpo", "objective.p": "0.5", "train.seed": "1"}},
		{Name: "d", Config: map[string]string{"objective.name": "grpo", "objective.clip_low": "0.2", "train.seed": "1"}},
		{Name: "e", Config: map[string]string{"objective.name": "grpo", "objective.clip_low": "0.2", "train.seed": "1"}, Group: "mine"},
	}
	var got []string
	for _, g := range groupRuns(runs) {
		got = append(got, fmt.Sprintf("%s:%d", g.name, len(g.runs)))
	}
	if want := "pmpo p=1:2, c:1, d:1, mine:1"; strings.Join(got, ", ") != want {
		t.Errorf("groups %q, want %q", strings.Join(got, ", "), want)
	}
	if got := strings.Join(varyingKeys(runs), " "); got != "objective.name objective.p" {
		t.Errorf("varying keys %q", got)
	}
}

func TestChooseRollouts(t *testing.T) {
	r := mustRead(t, fakeRun(t, filepath.Join(t.TempDir(), "a"), "pmpo", 1, 64))
	if err := r.ChooseRollouts(20_000); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, x := range r.Rollouts {
		if x.Round == 8 && x.Reward == 0 {
			wrong++
		}
		if fmt.Sprint(x.Tokens) != "[3 <eos>]" {
			t.Fatalf("tokens %q", x.Tokens)
		}
		if fmt.Sprintf("%.4g %.4g", x.LogP, x.Delta) != "[-0.5 -0.0001] [0.3 0]" || len(x.Weight) != 2 {
			t.Fatalf("log-probs %v, log-ratios %v, weights %v", x.LogP, x.Delta, x.Weight)
		}
		if p := r.Problems[x.Problem]; p.Round != x.Round || p.Prompt != x.Prompt || p.Text != "Q: "+p.Prompt || p.Tokens != 3 || p.All != 6 || p.Judged != 6 || p.Right != 3 {
			t.Fatalf("%+v of %+v", x, p)
		}
	}
	if wrong < minWrong {
		t.Errorf("%d wrong answers of the last round, want %d", wrong, minWrong)
	}
	data, err := json.Marshal(r.Rollouts)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 30_000 {
		t.Errorf("%d bytes for a budget of 20000", len(data))
	}
}

// TestFindings checks the sentences and levels for a run with known numbers.
func TestFindings(t *testing.T) {
	r := mustRead(t, fakeRun(t, filepath.Join(t.TempDir(), "a"), "pmpo", 1, 80))
	for i := range r.Steps.Column("p/share_at_max") {
		r.Steps.Column("p/share_at_max")[i] = 1
	}
	r.Rounds.Column("reward")[9] = 0.1
	r.Config["rollout.prompts_per_round"] = "64"
	r.Rounds.columns["reward_std"] = slices.Repeat([]float64{0.4}, 10)
	r.Diagnoses = []string{"the reward fell: lower optimizer.learning_rate"}
	if err := r.ChooseRollouts(20_000); err != nil {
		t.Fatal(err)
	}
	byQuestion := map[string]finding{}
	for _, f := range r.Findings() {
		byQuestion[f.Question] = f
	}
	for _, tt := range []struct{ question, level, part string }{
		{"What went wrong?", "bad", "the reward fell: lower optimizer.learning_rate."},
		{"Did it learn?", "good", "sums pass@1 25.0 % before, 75.0 % after"},
		{"Is it stable?", "bad", "the reward fell from"},
		{"What did p do?", "note", "acted as one with a fixed p"},
		{"Where does the time go?", "note", "backward 78 %"},
		{"What is wrong?", "note", "15 of the 30 responses of round 10: 15 with a wrong answer"},
	} {
		f := byQuestion[tt.question]
		if f.Level != tt.level || !strings.Contains(strings.ToLower(f.Text), tt.part) {
			t.Errorf("%s: %s %q, want %s with %q", tt.question, f.Level, f.Text, tt.level, tt.part)
		}
	}
}

// TestNothingLearned checks that a run whose gradients were all 0 is not stable, and that a
// panel without change becomes a sentence.
func TestNothingLearned(t *testing.T) {
	for _, tt := range []struct {
		name         string
		rounds       int
		flat, reward float64 // of each round
		norm         float64 // of each step
		stable       string  // level
	}{
		{"no reward, one round", 1, 1, 0, 0, "bad"},
		{"all right", 3, 1, 1, 0, "bad"},
		{"weights of zero", 3, 0.5, 0.5, 0, "bad"},
		{"some signal", 3, 0.9, 0.5, 0.1, "good"},
		{"equal sums of parts that have advantages", 3, 1, 2, 1.7, "good"},
	} {
		dir := t.TempDir()
		var b strings.Builder
		ratio := "null"
		if tt.norm > 0 {
			ratio = "0.1"
		}
		for round := 1; round <= tt.rounds; round++ {
			for i := range 4 {
				fmt.Fprintf(&b, `{"kind":"step","step":%d,"round":%d,"grad_norm":%g,"log_ratio/mean/pos":%s,"p/mean":1,"p/max":1,"p/mean/pos":1,"ess/pos":0.9}`+"\n", 4*round-3+i, round, tt.norm, ratio)
			}
			fmt.Fprintf(&b, `{"kind":"round","step":%d,"round":%d,"reward":%g,"frac_reward_zero_std":%g}`+"\n", 4*round, round, tt.reward, tt.flat)
		}
		if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		r := mustRead(t, dir)
		stable := r.Findings()[1]
		if stable.Level != tt.stable {
			t.Errorf("%s: stable: %s %q, want %s", tt.name, stable.Level, stable.Text, tt.stable)
		}
		for _, f := range figures([]*Run{r}) {
			want := map[string]string{"p": "The same from the first step to the last: mean 1, max 1.", "p-ess": "p was 1 in every step."}[f.ID]
			if want != "" && (f.Chart != nil || f.Note != want) {
				t.Errorf("%s: panel %s: %q, chart %v, want %q", tt.name, f.ID, f.Note, f.Chart != nil, want)
			}
		}
	}
}

// TestWriteEscapes writes a page with text that would be markup if it were not escaped.
func TestWriteEscapes(t *testing.T) {
	r := mustRead(t, fakeRun(t, filepath.Join(t.TempDir(), "a"), "pmpo", 1, 8))
	const evil = "</script><script>alert(1)</script>"
	r.Rollouts, r.Problems = []rolloutView{{Answer: evil, Tokens: []string{evil}}}, []problem{{ID: evil, Prompt: evil, Text: evil, Gold: []string{evil}}}
	r.Name = `<img src=x>`
	var b bytes.Buffer
	if err := Write(&b, []*Run{r}, Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script>alert") || strings.Contains(b.String(), "<img src=x") {
		t.Error("text of a run is markup in the page")
	}
	for _, outside := range []string{`src="http`, `href="http`, "@import"} {
		if strings.Contains(b.String(), outside) {
			t.Errorf("the page refers to the outside: %s", outside)
		}
	}
}

// TestPolicy checks that the page has a policy that names the page's two scripts by their hash, so that
// no other script runs.
func TestPolicy(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, []*Run{mustRead(t, fakeRun(t, filepath.Join(t.TempDir(), "a"), "pmpo", 1, 8))}, Options{}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	found := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatal("the page has no policy")
	}
	policy := html.UnescapeString(found[1])
	_, scripts, _ := strings.Cut(policy, "script-src ")
	scripts, _, _ = strings.Cut(scripts, ";")
	var want []string
	for _, m := range regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(m[1]))
		want = append(want, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	if len(want) != 2 || scripts != strings.Join(want, " ") {
		t.Errorf("script-src %s, want the hashes of the page's two scripts: %s", scripts, want)
	}
}

// TestPageText plays text.js in Node.js: text of a run is neither markup in a
// tooltip nor a formula in a CSV file.
func TestPageText(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no Node.js on this machine")
	}
	const play = `
const evil = "<img src=x onerror='alert(1)'>", p = (value) => ({ seriesName: evil, seriesIndex: 0, name: evil, value, marker: "" });
const charts = ["line", "bar", "scatter"].map((kind) => tooltip({ kind, x: evil, labels: [evil] }, [p(kind === "bar" ? evil : [evil, evil])], false));
charts.push(tooltip({ kind: "line", x: evil, labels: [evil] }, [p([1, 2])], true));
console.log(JSON.stringify({ markup: charts.join("").replace(/<\/?(br|b|i)>/g, ""),
  csv: csvLine(["=1+1", "+a", "-0.5", "-1e-7", "+2", "@x", "-x", "\t=1", "a,b", 'say "x"', "\r", -0.25, null, "plain"]) }));`
	out, err := exec.Command(node, "-e", textJS+play).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Markup, CSV string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(got.Markup, "<>'\"") || !strings.Contains(got.Markup, "img src") {
		t.Errorf("tooltips hold markup of a name: %s", got.Markup)
	}
	if want := "'=1+1,'+a,-0.5,-1e-7,+2,'@x,'-x,'\t=1,\"a,b\",\"say \"\"x\"\"\",\"'\r\",-0.25,,plain\n"; got.CSV != want {
		t.Errorf("CSV %q, want %q", got.CSV, want)
	}
}

func TestWriteNothing(t *testing.T) {
	if err := Write(new(bytes.Buffer), nil, Options{}); err == nil {
		t.Error("a page about no runs")
	}
	// A run without records also has a page.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Write(new(bytes.Buffer), []*Run{mustRead(t, dir)}, Options{}); err != nil {
		t.Error(err)
	}
}

// A response without a grade is neither right nor wrong: it has no verdict.
func TestReadRolloutsSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "round-00001.jsonl")
	text := `{"prompt":"a","response":"x","reward":1}` + "\n" + `{"prompt":"a","response":"y","reward":null,"skipped":true}` + "\n" + `{"prompt":"a","response":"z","reward":0}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	lines, err := readRollouts(path)
	if err != nil || len(lines) != 2 || countVerdicts(1, lines) != (verdicts{round: 1, all: 2, wrong: 1, unanswered: 1}) {
		t.Errorf("%+v, %v", lines, err)
	}
	if err := os.WriteFile(path, []byte(text+"{\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readRollouts(path); err == nil || !strings.Contains(err.Error(), "line 4: ") {
		t.Errorf("error %v", err)
	}
}

// TestTallyESS compares with one response computed by hand: z = log 2, log 2, 0, 0 has
// ESS(1) = (2+2+1+1)^2 / (4 (4+4+1+1)) = 0.9. Half of its log-ratios are beyond
// eps_ess, so the target is 1/4 + 1/2 * 3/4. A clip of 0 makes all of z equal, and the
// ESS is 1.
func TestTallyESS(t *testing.T) {
	line := func(advantage float64, delta ...float32) rolloutLine {
		return rolloutLine{RolloutLine: rundir.RolloutLine{Advantage: advantage, Delta: delta}}
	}
	lines := []rolloutLine{
		line(1, math.Ln2, math.Ln2, 0, 0),
		line(0, 9, 0), // ignored: this response has no advantage
		line(-1),      // ignored: no step used it
	}
	for clip, want := range map[string]float64{"1": 0.9, "0": 1} {
		r := &Run{Config: map[string]string{"objective.clip": clip, "objective.p_max": "1"}}
		r.tallyESS(lines)
		got := r.ess
		if got.n != [2]int{1, 0} || math.Abs(got.ess[0][exponentSteps]-want) > 1e-6 || got.ess[0][0] != 1 || got.target[0] != 0.625 {
			t.Errorf("clip %s: %+v", clip, got)
		}
		f := essOverExponent([]*group{{name: "a", runs: []*Run{r}}})
		if clip == "0" { // the curve is flat
			if f.Chart != nil || !strings.HasPrefix(f.Note, "ESS was 1 at every p") {
				t.Errorf("clip %s: %q", clip, f.Note)
			}
		} else if strings.Join(f.Labels, "; ") != "A > 0; target, A > 0" {
			t.Errorf("clip %s: labels %q", clip, f.Labels)
		}
	}
}

// TestSelectResponsesVaries checks that the first ten responses are wrong answers to ten different
// problems.
func TestSelectResponsesVaries(t *testing.T) {
	var lines []rolloutLine
	for i := range 96 {
		reward := float64(i % 2)
		lines = append(lines, rolloutLine{rundir.RolloutLine{Prompt: fmt.Sprint(i / 8), Reward: &reward, Response: "x"}, i / 8})
	}
	var got []string
	all, problems := selectResponses(lines, 1, 1<<20, nil)
	for _, x := range all[:minWrong] {
		got = append(got, fmt.Sprint(x.Prompt, ":", x.Reward))
	}
	if want := "0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 8:0 9:0"; strings.Join(got, " ") != want {
		t.Errorf("first %q, want %q", got, want)
	}
	// The next ones are, by turns, the rest of the first problem and responses to others.
	got = got[:0]
	for _, x := range all[minWrong : minWrong+6] {
		got = append(got, fmt.Sprint(x.Prompt, ":", x.Reward))
	}
	if want := "0:1 10:0 0:0 11:0 0:1 10:1"; strings.Join(got, " ") != want {
		t.Errorf("then %q, want %q", got, want)
	}
	if len(all) != len(lines) || len(problems) != 12 {
		t.Errorf("%d of %d responses to %d problems with a budget for all", len(all), len(lines), len(problems))
	}
	for _, p := range problems {
		if p.All != 8 || p.Judged != 8 || p.Right != 4 || p.Reward != 0.5 {
			t.Errorf("problem %+v", p)
		}
	}
}

// TestEmbeddedTokens checks that responses are split into tokens for a run on the
// embedded model that has no checkpoint yet.
func TestEmbeddedTokens(t *testing.T) {
	r := &Run{Dir: t.TempDir(), Config: map[string]string{"model.path": "builtin:arithmetic"}}
	x := (&rolloutLine{RolloutLine: rundir.RolloutLine{IDs: []int32{3, 1}, LogP: []float64{-1, -2}, W: []float32{0.5, 0}}}).toView(1, r.tokenizer())
	if strings.Join(x.Tokens, "|") != "1|<eos>" || len(x.Weight) != 2 {
		t.Errorf("tokens %q, weights %v", x.Tokens, x.Weight)
	}
}
