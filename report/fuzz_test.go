package report

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A user may have edited the files of a run: for any content, either the page and the
// view are written or the error names the file.
func FuzzRun(f *testing.F) {
	f.Add(
		`{"kind":"step","step":1,"round":1,"loss":0.5,"grad_norm":1,"ess/fraction":0.4}`,
		`{"kind":"round","round":1,"step":2,"reward":0.5,"seconds/rollout":2,"time":"2026-01-02T03:04:05Z","rewards/math":0.5}`,
		`{"kind":"eval","round":1,"step":2,"eval/sums/pass@1":0.25,"eval/sums/pass@1/low":0.2}`,
		`{"problem":"a","sample":0,"prompt_text":"1+1","prompt":"1","prompt_ids":[1],"response":"2","answers":["2"],"answer":"2","status":"ok","reward":1,"right":true,"advantage":0.5,"ids":[3],"logp":[-0.5],"w":[0.1],"delta":[0.01]}`,
		"[objective]\nname = \"pmpo\"\n[data]\ntrain = [\"a\", {path = \"b\"}]\n",
	)
	f.Add(`{"kind":"step"}`, `{"kind":"round","round":1,"seconds/rollout":0}`, `{"kind":"round","round":2,"seconds/rollout":1,"seconds/learn":-1}`, ``, ``)
	f.Add(`{"kind":[]}`, `{"kind":{"step":1},"step":[]}`, `{"kind":"eval","step":1e300}`, `{"problem":[]}`, "[a.b]\nc = [[]]")
	f.Fuzz(func(t *testing.T, step, round, eval, rollout, config string) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"run.toml": config, "metrics.jsonl": step + "\n" + round + "\n" + eval + "\n",
			"rollouts/round-00001.jsonl": rollout + "\n" + rollout + "\n", "rollouts/round-00002.jsonl": rollout + "\n",
		} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := ReadRun(dir); err == nil {
			_ = Write(io.Discard, []*Run{r, r}, Options{})
		}
		_, _, _ = View(dir, 80, 24)
		m := &mirror{run: dir, stepMetrics: map[string]bool{}}
		for _, line := range []string{step, round, eval} {
			_, _ = m.appendLine(nil, []byte(line))
		}
	})
}
