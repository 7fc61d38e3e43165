package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"onering/train/rundir"
)

// TestPrograms: programs that connect on their own play the episodes of a run. Some play
// badly: one asks for nothing, one rewrites its history, one gives no reward.
func TestPrograms(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	dir := filepath.Join(t.TempDir(), "run")
	c := program("train", "--config", filepath.Join("..", "examples", "calculator", "agent.toml"), "--set", "model.path="+filepath.Join("..", "examples", "calculator", "model"),
		"--set", "environment.command=[]", "--set", "train.rounds=2", "--set", "rollout.prompts_per_round=2", "--set", "rollout.samples_per_prompt=4", "--set", "train.batch_size=4",
		"--serve", "localhost:0", "--out", dir)
	c.Stderr = nil
	said, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	url, log := addressOf(t, said)
	post := func(path, key string, body any) (status int, answer map[string]any) {
		text, _ := json.Marshal(body)
		q, _ := http.NewRequest("POST", url+path, bytes.NewReader(text))
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer "+key)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, nil // the run has ended
		}
		defer r.Body.Close()
		json.NewDecoder(r.Body).Decode(&answer)
		return r.StatusCode, answer
	}
	var played atomic.Int64
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for {
				apart := played.Load()%2 == 0 // the key that asks tells no rewards then
				status, begun := post("/rl/start", "", map[string]any{"reward_key": apart})
				if status != http.StatusOK {
					return
				}
				n := played.Add(1)
				key := begun["api_key"].(string)
				pays, separate := begun["reward_key"].(string)
				if !separate {
					pays = key
				} else if status, _ := post("/v1/completions", pays, map[string]any{"prompt": "1+1="}); status != http.StatusForbidden {
					t.Errorf("the key for rewards asks: %d", status)
				} else if status, _ := post("/rl/reward", key, map[string]any{"reward": 1}); status != http.StatusForbidden {
					t.Errorf("the key that asks pays: %d", status)
				}
				if separate != apart {
					t.Errorf("a key for rewards is there: %v, want %v", separate, apart)
				}
				text := begun["problem"].(map[string]any)["text"].(string)
				for turn := 0; turn < 2 && n != 2; turn++ {
					status, answer := post("/v1/completions", key, map[string]any{"prompt": text, "max_tokens": 12, "stop": "="})
					if status != http.StatusOK {
						t.Errorf("%d: %v", status, answer)
						break
					}
					if text += answer["choices"].([]any)[0].(map[string]any)["text"].(string) + "=7"; n == 5 {
						text = "12+34=" // which is another history
					}
				}
				if status, _ := post("/rl/reward", pays, map[string]any{"reward": 1e300}); status != http.StatusBadRequest {
					t.Errorf("a reward that no step can be computed with: %d", status)
				}
				if n != 7 {
					if status, answer := post("/rl/reward", pays, map[string]any{"reward": n % 2}); status != http.StatusOK {
						t.Errorf("a reward: %d %v", status, answer)
					}
				}
				if status, _ := post("/rl/end", key, map[string]any{}); status != http.StatusOK {
					t.Errorf("/rl/end: %d", status)
				}
				for _, over := range []string{key, "sk-onering-OTHER"} {
					if status, _ := post("/v1/completions", over, map[string]any{"prompt": "1+1="}); status < 400 && status != 0 {
						t.Errorf("the key of no episode under way is answered: %d", status)
					}
				}
				if status, _ := post("/rl/end", key, map[string]any{}); status < 400 && status != 0 {
					t.Errorf("/rl/end again: %d", status)
				}
			}
		})
	}
	rest := log()
	clients.Wait()
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, rest)
	}
	if played.Load() != 16 || !strings.Contains(rest, "a new segment of it begins") {
		t.Errorf("%d episodes were played\n%s", played.Load(), rest)
	}
	counts := map[string]int{}
	for round := 1; round <= 2; round++ {
		text, err := os.ReadFile(filepath.Join(dir, "rollouts", fmt.Sprintf("round-%05d.jsonl", round)))
		if err != nil {
			t.Fatal(err)
		}
		for one := range strings.Lines(string(text)) {
			var x rundir.RolloutLine
			if err := json.Unmarshal([]byte(one), &x); err != nil {
				t.Fatal(err)
			}
			switch {
			case x.Part:
				counts["part"]++
			case strings.Contains(x.Reason, "has asked for nothing"):
				counts["nothing"]++
			case x.Reason == "the environment's":
				counts["rewarded"]++
			default:
				counts["graded"]++
				t.Logf("graded: %.300s", one)
			}
		}
	}
	if want := map[string]int{"part": 1, "nothing": 1, "rewarded": 14, "graded": 1}; fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("episodes are %v, want %v", counts, want)
	}
}

// TestRewardKey: programs of a run that take the keys of those beside them from /proc, and
// their own from the environment, change no reward; the key that each reads first does. What
// the programs tell is not counted as responses without an answer.
func TestRewardKey(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || !libraryFound() {
		t.Skip("no ONNX Runtime library or no Python")
	}
	dir := t.TempDir()
	const agent = `
import glob, json, os, urllib.request, urllib.error
base, own = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def post(url, body, key):
    try:
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer " + key}))
        return 200
    except urllib.error.HTTPError as e:
        return e.code
with open(int(os.environ["ONERING_REWARD_FD"])) as secret:
    pays = secret.readline().strip()
post(base + "/completions", {"prompt": json.loads(os.environ["ONERING_PROBLEM"])["text"], "max_tokens": 4}, own)
keys = [own]
for name in glob.glob("/proc/[0-9]*/environ"):
    try:
        keys += [x[15:] for x in open(name).read().split("\0") if x.startswith("OPENAI_API_KEY=sk-onering")]
    except OSError:
        pass
for name in glob.glob("/proc/[0-9]*/fd/3"):
    try:
        keys.append(open(name).readline().strip())
    except OSError:
        pass
reward = base.removesuffix("/v1") + "/rl/reward"
if any(post(reward, {"reward": -5}, k) == 200 for k in keys if k.startswith("sk-onering")) or post(reward, {"reward": 0.5}, pays) != 200:
    raise SystemExit("a key tells what it may not, or not what it may")
`
	script := filepath.Join(dir, "agent.py")
	if err := os.WriteFile(script, []byte(agent), 0o666); err != nil {
		t.Fatal(err)
	}
	c := program("train", "--config", filepath.Join("..", "examples", "calculator", "agent.toml"), "--set", "model.path="+filepath.Join("..", "examples", "calculator", "model"),
		"--set", fmt.Sprintf("environment.command=[%q, %q]", python, script), "--set", "train.rounds=1", "--set", "rollout.prompts_per_round=1", "--set", "rollout.samples_per_prompt=4",
		"--set", "train.batch_size=4", "--out", filepath.Join(dir, "run"))
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, c.Stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
	if said := c.Stderr.(*bytes.Buffer).String(); err != nil || !strings.Contains(string(text), `"reward":0.5,`) || strings.Contains(string(text), "no_answer_share") || !strings.Contains(said, "does not count") {
		t.Errorf("%v: %s\n%s", err, text, said)
	}
}

// addressOf reads the address at which a program serves, and returns a function that
// reads the rest of its output.
func addressOf(t *testing.T, said io.Reader) (url string, rest func() string) {
	t.Helper()
	var text []byte
	for one := make([]byte, 1); url == ""; {
		if _, err := said.Read(one); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if text = append(text, one[0]); one[0] == '\n' {
			if m := regexp.MustCompile(`url=(http\S+)/v1`).FindSubmatch(text); m != nil {
				url = string(m[1])
			}
		}
	}
	return url, func() string {
		more, _ := io.ReadAll(said)
		return string(text) + string(more)
	}
}
