package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"onering/sampler"
	"onering/tokenize"
)

// TestHistory: conversations with calls of tools, as the clients of OpenAI's API hold them, reach
// the chat template. The ids of the prompts equal those of the text that the template should write.
func TestHistory(t *testing.T) {
	x := newTester(t, newFake(3, 200), func(o *Options) {
		o.Models[0].Tokenizer = tokenizerWith(t, `{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{% for c in m.tool_calls %}!{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}{% endfor %}{% else %}{{ m.content + '.' }}{% endif %}{% endfor %}`)
	})
	tok := x.server.Models[0].Tokenizer
	for messages, want := range map[string]string{
		`{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null, "function_call": null,
			"tool_calls": [{"id": "x", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"b\": \"c\"}"}}]}, {"role": "tool", "tool_call_id": "x", "content": "d"}`: "<user>a.<assistant>!fbc<tool>d.",
		`{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}]}, {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "d"}]}`: "<user>a.<assistant>!f<tool>d.",
		`{"role": "developer", "content": "b"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "c", "tool_calls": null}, {"role": "user", "content": "d"}`:                                                                    "<system>b.<user>a.<assistant>c.<user>d.",
		`{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": []}, {"role": "user", "content": "d"}`:                                                                                                            "<user>a.<assistant>.<user>d.",
	} {
		got := x.post("/v1/chat/completions", `{"max_tokens": 1, "return_token_ids": true, "messages": [`+messages+`]}`, 200)
		if text := tok.Decode(got.PromptIDs, false); text != want {
			t.Errorf("%s:\n got %s\nwant %s", messages, text, want)
		}
	}
}

// parts is a tokenizer in which é and ☃ are two and three tokens.
func parts(t *testing.T) *tokenize.Tokenizer {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"vocab.json":            `{"<|end|>": 0, "a": 1, "Ã": 2, "©": 3, "â": 4, "ĺ": 5, "ĥ": 6, "ab": 7}`,
		"merges.txt":            "#version: 0.2\n",
		"tokenizer_config.json": `{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"0": {"content": "<|end|>", "special": true}}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenize.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestParts: a token that is a part of a character has this part's bytes and the
// character's place, and the joined bytes are the text.
func TestParts(t *testing.T) {
	m := &Model{Tokenizer: parts(t)}
	ids := []int32{1, 2, 3, 7, 4, 5, 6, 1, 0}
	logp := make([]float32, len(ids))
	var joined []byte
	for _, x := range m.chatLogprobs(ids, logp, nil).Content {
		for _, b := range x.Bytes {
			joined = append(joined, byte(b))
		}
		if !utf8.ValidString(x.Token) {
			t.Errorf("the token %q is not a text", x.Token)
		}
	}
	if want := "aéab☃a<|end|>"; string(joined) != want {
		t.Errorf("the bytes are %q, want %q", joined, want)
	}
	whole, streamed := (&job{common: new(common), model: m, options: sampler.Options{EOS: m.EOS, Stops: nil}}).choice(), (&job{common: new(common), model: m, options: sampler.Options{EOS: m.EOS, Stops: nil}}).choice()
	want := []int{0, 1, 1, 2, 4, 4, 4, 5, 6}
	if got := m.completionLogprobs(ids, logp, nil, whole).Offsets; !slices.Equal(got, want) {
		t.Errorf("text_offset %v, want %v", got, want)
	}
	for i := range ids {
		if got := m.completionLogprobs(ids[i:i+1], logp[i:i+1], nil, streamed).Offsets; got[0] != want[i] {
			t.Errorf("streamed: text_offset %v of token %d, want %d", got, i, want[i])
		}
	}
}

// TestHalfClosed: a client that ends its side of the connection gets its answer, and a
// client that has gone frees its slot.
func TestHalfClosed(t *testing.T) {
	d := newFake(1, 60)
	d.gate = make(chan bool)
	x := newTester(t, d, nil)
	begin := func(stream bool) *net.TCPConn {
		c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"prompt": "a", "max_tokens": 4, "seed": 1, "stream": %v}`, stream)
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return c.(*net.TCPConn)
	}
	for _, stream := range []bool{false, true} {
		c := begin(stream)
		c.CloseWrite()
		r := make(chan string)
		go func() {
			text, _ := io.ReadAll(c)
			r <- string(text)
		}()
		for answered := false; !answered; {
			select {
			case d.gate <- true:
			case text := <-r:
				if answered = true; !strings.HasPrefix(text, "HTTP/1.1 200 OK") || !strings.Contains(text, `"finish_reason":"length"`) {
					t.Errorf("stream %v: %s", stream, text)
				}
			}
		}
		c.Close()
	}
	begin(false).Close()
	done := make(chan struct{})
	go func() {
		x.post("/v1/completions", `{"prompt": "a", "max_tokens": 2}`, 200)
		close(done)
	}()
	for answered := false; !answered; {
		select {
		case d.gate <- true:
		case <-done:
			answered = true
		}
	}
}

// TestShared: only scripts of the named origins may send requests and preflight requests.
func TestShared(t *testing.T) {
	x := newTester(t, newFake(1, 60), func(o *Options) { o.Key, o.Origins = "secret", []string{"https://page.example", "null"} })
	ask := func(method, path, origin string) http.Header {
		r, _ := http.NewRequest(method, x.url+path, nil)
		r.Header.Set("Origin", origin)
		if method == "OPTIONS" {
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,x-stainless-os")
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if origin == "https://page.example" && method == "OPTIONS" && got.StatusCode != 204 {
			t.Errorf("the status is %d", got.StatusCode)
		}
		return got.Header
	}
	if h := ask("OPTIONS", "/v1/chat/completions", "https://page.example"); h.Get("Access-Control-Allow-Origin") != "https://page.example" || h.Get("Access-Control-Allow-Headers") != "authorization,content-type,x-stainless-os" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("%v", h)
	}
	if h := ask("GET", "/v1/models", "https://page.example"); h.Get("Access-Control-Allow-Origin") == "" { // an error that the script must be able to read
		t.Errorf("%v", h)
	}
	for _, method := range []string{"OPTIONS", "GET"} {
		if h := ask(method, "/v1/models", "https://other.example"); h.Get("Access-Control-Allow-Origin") != "" || h.Get("Vary") != "Origin" {
			t.Errorf("%s: %v", method, h)
		}
	}
	plain := newTester(t, newFake(1, 60), nil)
	if x.url = plain.url; ask("OPTIONS", "/v1/models", "https://other.example").Get("Access-Control-Allow-Origin") != "" {
		t.Error("a server that was not asked for it allows other pages")
	}
}

// TestPaths: a slash at the end of a path changes nothing.
func TestPaths(t *testing.T) {
	x := newTester(t, newFake(1, 60), func(o *Options) { o.Models[1].Name = "org/bare" })
	for path, want := range map[string]string{
		"/v1/models": `"object":"list"`, "/v1/models/": `"object":"list"`, "/v1/models/base": `"id":"base"`, "/v1/models/base/": `"id":"base"`,
		"/v1/models/org/bare": `"id":"org/bare"`, "/v1/models/org%2Fbare": `"id":"org/bare"`, "/health/": `"ok"`, "/v1/models/none": "model_not_found",
	} {
		if _, text := x.ask("GET", path, ""); !strings.Contains(string(text), want) || !json.Valid(text) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
	x.post("/v1/completions/", `{"prompt": "a"}`, 200)
	x.post("/v1/completions", `{"prompt": "a", "temperature": 1e-8, "top_p": 0}`, 200)
}

// TestMetrics: the page for Prometheus counts requests and sampled tokens, and needs the key.
func TestMetrics(t *testing.T) {
	x := newTester(t, newFake(3, 60), func(o *Options) { o.Key = "secret" })
	got := x.post("/v1/completions", `{"prompt": "abc", "seed": 3, "n": 2, "max_tokens": 9}`, 200)
	x.pieces("/v1/chat/completions", `{"messages": [{"role": "u", "content": "ab"}], "max_tokens": 1, "ignore_eos": true, "stream": true}`)
	x.post("/v1/completions", `{"prompt": ""}`, 400)
	_, text := x.ask("GET", "/metrics", "")
	for _, want := range []string{
		`onering_serve_requests_total{code="200",path="/v1/completions"} 1`, `onering_serve_requests_total{code="400",path="/v1/completions"} 1`,
		`onering_serve_requests_total{code="200",path="/v1/chat/completions"} 1`, fmt.Sprintf("onering_serve_prompt_tokens_total %d", 3+len("<u>ab<a>")),
		fmt.Sprintf("onering_serve_generated_tokens_total %d", got.Usage.Completion+1), "onering_serve_responses 0", "onering_serve_room 7", "go_goroutines",
	} {
		if !strings.Contains(string(text), "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
	x.key = ""
	if status, _ := x.ask("GET", "/metrics", ""); status != 401 {
		t.Errorf("without the key the status is %d", status)
	}
}

// TestPage: the page needs no key, may load no files, and names no other host.
func TestPage(t *testing.T) {
	x := newTester(t, newFake(3, 60), func(o *Options) { o.Key = "secret" })
	x.key = ""
	r, err := x.send(t.Context(), "GET", "/", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v: status %d, %v", err, r.StatusCode, r.Header)
	}
	for _, bad := range []string{"http:", "https:", "src=", "href=", "innerHTML", "@import", "url("} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(string(text), `fetch("v1/chat/completions"`) {
		t.Error("the page asks nothing")
	}
}

// TestAdapters loads adapters while others answer requests, and unloads them: requests in
// progress are answered before an adapter is closed.
func TestAdapters(t *testing.T) {
	ended := make(chan string, 9)
	gated := newFake(1, 60)
	gated.gate = make(chan bool)
	var asked []string
	x := newTester(t, newFake(1, 60), func(o *Options) {
		o.Load = func(name, path string) (*Model, error) {
			if asked = append(asked, path); path == "missing" {
				return nil, errors.New("there is no folder missing")
			}
			d := newFake(1, 60)
			if name == "slow" {
				d = gated
			}
			return &Model{Name: name, Parent: "base", EOS: []int32{0}, Vocab: 31, Decoder: d, Close: func() { ended <- name }}, nil
		}
	})
	load := func(name, path, more string, want int, part string) {
		t.Helper()
		status, text := x.ask("POST", "/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name": %q, "lora_path": %q%s}`, name, path, more))
		if status != want || !strings.Contains(string(text), part) {
			t.Errorf("loading %s: status %d: %s", name, status, text)
		}
	}
	unload := func(name string, want int, part string) {
		t.Helper()
		status, text := x.ask("POST", "/v1/unload_lora_adapter", fmt.Sprintf(`{"lora_name": %q, "lora_int_id": null}`, name))
		if status != want || !strings.Contains(string(text), part) {
			t.Errorf("unloading %s: status %d: %s", name, status, text)
		}
	}
	load("one", "a", "", 200, "Success: LoRA adapter 'one' added successfully.")
	load("one", "a", "", 400, "already been loaded")
	load("one", "b", `, "load_inplace": true`, 200, "Success")
	if got := <-ended; got != "one" {
		t.Errorf("%s was ended", got)
	}
	load("base", "a", `, "load_inplace": true`, 400, "began with")
	load("two", "missing", "", 400, "there is no folder missing")
	load("two", "", "", 400, "lora_path")
	if !slices.Equal(asked, []string{"a", "b", "missing"}) {
		t.Errorf("the paths %q were looked at", asked)
	}
	unload("base", 400, "began with")
	unload("none", 404, "cannot be found")
	unload("", 404, "cannot be found")
	if _, text := x.ask("GET", "/v1/models", ""); !strings.Contains(string(text), `"id":"one"`) || !strings.Contains(string(text), `"parent":"base"`) {
		t.Errorf("%s", text)
	}
	x.post("/v1/completions", `{"model": "one", "prompt": [1], "max_tokens": 3}`, 200)

	load("slow", "a", "", 200, "Success")
	room := x.server.engine.capacity.Load()
	done := make(chan answered)
	go func() {
		done <- x.post("/v1/completions", `{"model": "slow", "prompt": [1], "max_tokens": 4, "ignore_eos": true}`, 200)
	}()
	gated.gate <- true
	go unload("slow", 200, "removed successfully")
	for range 2 {
		gated.gate <- true
	}
	if got := <-done; got.Choices[0].Finish == nil {
		t.Errorf("%+v", got)
	}
	if got := <-ended; got != "slow" {
		t.Errorf("%s was ended", got)
	}
	x.post("/v1/completions", `{"model": "slow", "prompt": [1]}`, 404)
	if now := x.server.engine.capacity.Load(); now != room-1 {
		t.Errorf("there is room for %d, and was for %d", now, room)
	}
	x.stop()
	if got := <-ended; got != "one" {
		t.Errorf("%s was ended", got)
	}
	plain := newTester(t, newFake(1, 60), nil)
	if got := plain.post("/v1/load_lora_adapter", `{"lora_name": "a", "lora_path": "/etc"}`, 403); !strings.Contains(got.Error.Message, "--lora-root") {
		t.Errorf("%+v", got.Error)
	}
}

// TestResponses: a conversation goes on by the id of its newest response, or by references to its
// items, and not from what was not stored. Anthropic's clients get errors in their form.
func TestResponses(t *testing.T) {
	x := newScripted(t, hermes, "ab")
	ask := func(body string, want int) (got struct {
		ID     string
		Output []struct{ ID, Type, Status string }
	}) {
		t.Helper()
		status, text := x.ask("POST", "/v1/responses", body)
		if json.Unmarshal(text, &got); status != want {
			t.Fatalf("%s: %d %s", body, status, text)
		}
		return got
	}
	var prompts []string
	x.decoder.script = func(prompt []int32) []int32 {
		prompts = append(prompts, x.server.Models[0].Tokenizer.Decode(prompt, false))
		return []int32{99, 100, 0}
	}
	first := ask(`{"instructions": "s", "input": "q"}`, 200)
	ask(`{"input": [{"role": "user", "content": [{"type": "input_text", "text": "r"}]}], "previous_response_id": "`+first.ID+`", "max_output_tokens": 1}`, 200)
	ask(`{"input": [{"role": "user", "content": "q"}, {"type": "item_reference", "id": "`+first.Output[0].ID+`"}, {"role": "user", "content": "r"}]}`, 200)
	if want := []string{"[system]s[user]q[assistant]", "[user]q[assistant]ab[user]r[assistant]", "[user]q[assistant]ab[user]r[assistant]"}; !slices.Equal(prompts, want) {
		t.Errorf("the prompts are %q, want %q", prompts, want)
	}
	ask(`{"input": "r", "previous_response_id": "`+ask(`{"input": "q", "store": false}`, 200).ID+`"}`, 404)
	c := conversations{}
	for i := range 5 {
		c.put(conversation{id: fmt.Sprint(i), requestBytes: maxConversations / 3})
	}
	if _, old := c.find("1"); old || len(c.newest) != 3 {
		t.Errorf("%d conversations are kept", len(c.newest))
	}
	x.key = "no"
	x.server.Key = "yes"
	if status, text := x.ask("POST", "/v1/messages", `{}`); status != 401 || !strings.Contains(string(text), `"error":{"message":`) || !strings.Contains(string(text), `"authentication_error"`) {
		t.Errorf("%d %s", status, text)
	}
}
