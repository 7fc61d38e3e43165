//go:build !windows

package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"onering/policy"
)

// TestServe serves the embedded model in a process: requests with seeds get the same
// bytes together and alone, a greedy one what generate gives, and SIGTERM ends the
// server without an error.
func TestServe(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	root := t.TempDir()
	m, err := policy.ReadModel("builtin:arithmetic")
	if err == nil {
		err = newAdapter(m, "tiny", filepath.Join(root, "adapters", "a"))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := program("serve", "--model", "builtin:arithmetic", "--template", "no", "--addr", "localhost:0", "--slots", "3", "--name", "tiny", "--lora-root", root)
	c.Stderr = nil
	said, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	url, _ := addressOf(t, said)
	url += "/v1"
	post := func(body string) string {
		r, err := http.Post(url+"/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		var answer struct{ Choices json.RawMessage }
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil || r.StatusCode != 200 {
			return fmt.Sprint(r.Status, err, string(text))
		}
		return string(answer.Choices)
	}
	body := func(i int) string {
		return fmt.Sprintf(`{"model": "tiny", "prompt": "%d+%d=", "seed": %d, "temperature": %v, "top_p": %v, "max_tokens": 30, "n": %d, "logprobs": 0, "return_token_ids": true}`,
			100+i, 200+7*i, i, 0.5*float64(i%3), 1-0.2*float64(i%2), 1+i%4)
	}
	adapted := loadedAdapter(t, url, post)
	const requests = 12
	var together [requests]string
	var wait sync.WaitGroup
	for i := range together {
		wait.Go(func() { together[i] = post(body(i)) })
	}
	wait.Wait()
	for i, got := range together {
		if want := post(body(i)); got != want {
			t.Errorf("request %d: alone %s, beside others %s", i, want, got)
		}
	}
	g := program("generate", "--model", "builtin:arithmetic", "--greedy", "--max-tokens", "30", "-q")
	g.Stdin = strings.NewReader(`{"prompt": "103+221="}`)
	if err := g.Run(); err != nil {
		t.Fatal(err)
	}
	var line generated
	if err := json.Unmarshal(g.Stdout.(*bytes.Buffer).Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	ids, _ := json.Marshal(line.IDs)
	if !strings.Contains(together[3], `"token_ids":`+string(ids)+"}") {
		t.Errorf("greedy: %s, generate has %s", together[3], ids)
	}
	if plain := post(body(1)); plain == adapted {
		t.Errorf("with the adapter the answer is the model's: %s", plain)
	}
	if r, err := http.NewRequest("GET", url+"/models", nil); err == nil {
		r.Host = "example.org"
		if got, err := http.DefaultClient.Do(r); err != nil || got.StatusCode != http.StatusForbidden {
			t.Errorf("another host's name: %v, %v", got, err)
		}
	}
	c.Process.Signal(syscall.SIGTERM)
	if _, err := io.ReadAll(said); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestServeTaken says that the address is taken before it reads a model.
func TestServeTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := program("serve", "--model", t.TempDir(), "--addr", taken.Addr().String())
	var said bytes.Buffer
	c.Stderr = &said
	err = c.Run()
	if err == nil || !strings.Contains(said.String(), "--addr "+taken.Addr().String()) {
		t.Errorf("%v: %s", err, &said)
	}
}

// loadedAdapter loads an adapter from the folder of --lora-root, asks it a question and
// unloads it. Paths that lead out of the folder are refused.
func loadedAdapter(t *testing.T, url string, post func(body string) string) string {
	t.Helper()
	send := func(path, body, want string) {
		t.Helper()
		r, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if text, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s %s: %s, %v", path, body, text, err)
		}
	}
	for _, path := range []string{"../a", "/etc", "adapters/none", "adapters"} {
		send("/load_lora_adapter", fmt.Sprintf(`{"lora_name": "a", "lora_path": %q}`, path), "lora_path")
	}
	send("/load_lora_adapter", `{"lora_name": "a", "lora_path": "adapters/a"}`, "Success: LoRA adapter 'a' added successfully.")
	got := post(`{"model": "a", "prompt": "101+207=", "seed": 1, "temperature": 0.5, "top_p": 0.8, "max_tokens": 30, "n": 2, "logprobs": 0, "return_token_ids": true}`)
	send("/unload_lora_adapter", `{"lora_name": "a"}`, "removed")
	if !strings.Contains(got, `"index":1`) {
		t.Errorf("the adapter says %s", got)
	}
	return got
}
