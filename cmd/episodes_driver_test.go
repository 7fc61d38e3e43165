package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
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
				status, begun := post("/rl/start", "", map[string]any{})
				if status != http.StatusOK {
					return
				}
				n := played.Add(1)
				key := begun["api_key"].(string)
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
				if status, _ := post("/rl/reward", key, map[string]any{"reward": 1e300}); status != http.StatusBadRequest {
					t.Errorf("a reward that no step can be computed with: %d", status)
				}
				if n != 7 {
					post("/rl/reward", key, map[string]any{"reward": n % 2})
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
			}
		}
	}
	if want := map[string]int{"part": 1, "nothing": 1, "rewarded": 14, "graded": 1}; fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("episodes are %v, want %v", counts, want)
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
