package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"onering/sampler"
	"onering/tokenize"
)

// letters is the vocabulary of the tests: id 0 ends a response, 1 to 26 are the
// letters, and the others are signs.
const letters = "abcdefghijklmnopqrstuvwxyz<>!."

// tokenizer returns a tokenizer of letters with a chat template.
func tokenizer(t testing.TB) *tokenize.Tokenizer {
	return tokenizerWith(t, "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}!{% endif %}{% if add_generation_prompt %}<a>{% endif %}")
}

// tokenizerWith returns a tokenizer with this chat template, or with none if it is empty.
func tokenizerWith(t testing.TB, template string) *tokenize.Tokenizer {
	t.Helper()
	vocab := map[string]int{"<|end|>": 0}
	for i, r := range letters {
		vocab[string(r)] = i + 1
	}
	settings := map[string]any{
		"tokenizer_class":      "Qwen2Tokenizer",
		"added_tokens_decoder": map[string]any{"0": map[string]any{"content": "<|end|>", "special": true}},
	}
	if template != "" {
		settings["chat_template"] = template
	}
	dir := t.TempDir()
	for name, content := range map[string]any{
		"vocab.json":            vocab,
		"tokenizer_config.json": settings,
	} {
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "merges.txt"), []byte("#version: 0.2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenize.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// A fake decodes letters: the uniform decides the next letter. If there is a gate, a step
// waits for its value, which may make the step fail.
type fake struct {
	slots, room int
	busy        map[int]int // tokens by slot
	prefixes    map[int]int
	gate        chan bool // true lets a step pass, false makes it fail

	script  func(prompt []int32) []int32 // the tokens of a response, if it is not nil
	prompts map[int][]int32              // by prefix
	left    map[int][]int32              // for each slot, the tokens still to come
}

func newFake(slots, room int) *fake {
	return &fake{slots: slots, room: room, busy: map[int]int{}, prefixes: map[int]int{}, prompts: map[int][]int32{}, left: map[int][]int32{}}
}

func (d *fake) Slots() int      { return d.slots }
func (d *fake) MaxTokens() int  { return d.room }
func (d *fake) Free(slot int)   { delete(d.busy, slot) }
func (d *fake) Drop(prefix int) { delete(d.prefixes, prefix) }
func (d *fake) Prefill(prompts [][]int32) (h []int, _ error) {
	for _, p := range prompts {
		d.prefixes[len(d.prefixes)+1] = len(p)
		h = append(h, len(d.prefixes))
		d.prompts[len(d.prefixes)] = p
	}
	return h, nil
}

func (d *fake) choose(rows []sampler.Row) {
	for i := range rows {
		if rows[i].Idle {
			continue
		}
		u := rows[i].Uniform
		rows[i].Out = sampler.Drawn{ID: int32(u * float32(len(letters)+1)), LogProb: -u, Entropy: u}
		for k := range rows[i].Top { // The letters come in their order.
			rows[i].Out.Likeliest = append(rows[i].Out.Likeliest, sampler.Candidate{ID: int32(k + 1), LogProb: -1 - float32(k)})
		}
		if left := d.left[rows[i].Slot]; len(left) > 0 {
			rows[i].Out.ID, d.left[rows[i].Slot] = left[0], append(left[1:], left[0])
		}
		allowed := func(id int32) bool {
			return rows[i].Score == nil || !math.IsInf(float64(rows[i].Score(sampler.Candidate{ID: id})), -1)
		}
		for id := int32(0); !allowed(rows[i].Out.ID) && id < 300; id++ {
			if allowed(id) {
				rows[i].Out.ID = id
			}
		}
	}
}

func (d *fake) Begin(rows []sampler.Row) error {
	for _, r := range rows {
		if d.busy[r.Slot] = d.prefixes[r.Prefix]; d.script != nil {
			d.left[r.Slot] = d.script(d.prompts[r.Prefix])
		}
	}
	d.choose(rows)
	return nil
}

func (d *fake) Step(rows []sampler.Row) error {
	if d.gate != nil && !<-d.gate {
		return errors.New("the device is gone")
	}
	d.choose(rows)
	return nil
}

// A tester is a server over fakes.
type tester struct {
	*testing.T
	url     string
	server  *Server
	decoder *fake
	stop    func()
	key     string
}

func newTester(t *testing.T, decoder *fake, change func(*Options)) *tester {
	t.Helper()
	template, err := tokenize.ParseTemplate("chat")
	if err != nil {
		t.Fatal(err)
	}
	tok := tokenizer(t)
	o := Options{MaxTokens: 20, Queue: 2, Models: []*Model{
		{Name: "base", Tokenizer: tok, Template: template, EOS: []int32{0}, Vocab: 31, Decoder: decoder},
		{Name: "bare", Parent: "base", EOS: []int32{0}, Vocab: 31, Decoder: newFake(2, 50)},
	}}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	web := httptest.NewServer(s.Handler())
	x := &tester{T: t, url: web.URL, server: s, decoder: decoder, key: o.Key, stop: func() { cancel(); <-ended }}
	t.Cleanup(func() { x.stop(); web.Close() })
	return x
}

// send sends a request and returns the answer.
func (t *tester) send(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, t.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("Authorization", "Bearer "+t.key)
	return http.DefaultClient.Do(r)
}

// ask returns the status and the body.
func (t *tester) ask(method, path, body string) (int, []byte) {
	t.Helper()
	r, err := t.send(context.Background(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, text
}

// answered has the fields of both kinds of answers.
type answered struct {
	Object  string
	Model   string
	Choices []struct {
		Index          int
		Text           string
		Message, Delta struct{ Role, Content string }
		Finish         *string `json:"finish_reason"`
		IDs            []int32 `json:"token_ids"`
		Logprobs       *struct {
			Tokens  []string
			LogP    []float32 `json:"token_logprobs"`
			Offsets []int     `json:"text_offset"`
			Content []struct {
				Token string
				LogP  float32 `json:"logprob"`
				Top   []any   `json:"top_logprobs"`
			}
		}
	}
	Usage     *usage
	PromptIDs []int32 `json:"prompt_token_ids"`
	RequestID string  `json:"request_id"`
	Error     *struct{ Message, Type, Param, Code string }
}

// post sends a request, wants this status, and returns the answer.
func (t *tester) post(path, body string, status int) (a answered) {
	t.Helper()
	got, text := t.ask("POST", path, body)
	if err := json.Unmarshal(text, &a); err != nil || got != status {
		t.Fatalf("%s: status %d, want %d: %s (%v)", body, got, status, text, err)
	}
	return a
}

// pieces reads the pieces of a streamed answer up to its end.
func (t *tester) pieces(path, body string) (list []answered) {
	t.Helper()
	status, text := t.ask("POST", path, body)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", body, status, text)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return list
		}
		var a answered
		if !is {
			continue
		}
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			t.Fatal(err, data)
		}
		list = append(list, a)
	}
	t.Fatalf("%s: there is no end: %s", body, text)
	return nil
}

// TestWholeAndStreamed sends the same request both ways: the answers must have the same
// texts, ids, log-probs and ends, which must be the sampler's.
func TestWholeAndStreamed(t *testing.T) {
	x := newTester(t, newFake(3, 60), nil)
	for path, prompt := range map[string]string{
		"/v1/completions":      `"prompt": ["abc", "d"], "logprobs": 0`,
		"/v1/chat/completions": `"messages": [{"role": "u", "content": "abc"}], "logprobs": true`,
	} {
		for _, stop := range []string{"", `, "stop": ["e", "zz"]`, `, "stop": "pq"`} {
			body := `{` + prompt + stop + `, "seed": 3, "n": 2, "max_tokens": 19, "return_token_ids": true, "stream_options": {"include_usage": true}, "stream": `
			whole := x.post(path, body+"false}", 200)
			type said struct {
				text, finish string
				ids          []int32
				logp         []float32
			}
			got := map[int]*said{}
			var use *usage
			for _, piece := range x.pieces(path, body+"true}") {
				if len(piece.Choices) == 0 {
					use = piece.Usage
				}
				for _, c := range piece.Choices {
					if got[c.Index] == nil {
						got[c.Index] = &said{}
					}
					s := got[c.Index]
					s.text += c.Text + c.Delta.Content
					s.ids = append(s.ids, c.IDs...)
					if c.Finish != nil {
						s.finish += *c.Finish
					}
					if c.Logprobs != nil {
						s.logp = append(s.logp, c.Logprobs.LogP...)
						for _, l := range c.Logprobs.Content {
							s.logp = append(s.logp, l.LogP)
						}
					}
				}
			}
			if use == nil || *use != *whole.Usage || len(got) != len(whole.Choices) {
				t.Fatalf("%s: usage %v and %v, %d and %d choices", body, use, whole.Usage, len(got), len(whole.Choices))
			}
			total := 0
			for _, c := range whole.Choices {
				logp := c.Logprobs.LogP
				for _, l := range c.Logprobs.Content {
					logp = append(logp, l.LogP)
				}
				s := got[c.Index]
				if text := c.Text + c.Message.Content; s.text != text || s.finish != *c.Finish || !slices.Equal(s.ids, c.IDs) || !slices.Equal(s.logp, logp) {
					t.Errorf("%s: choice %d is %+v, streamed %+v", body, c.Index, c, s)
				}
				for i, id := range c.IDs {
					u := sampler.Uniform(3, uint64(c.Index/2), c.Index%2, i)
					if want := int32(u * 31); id != want || logp[i] != -u {
						t.Fatalf("%s: choice %d, token %d is %d with %v, want %d", body, c.Index, i, id, logp[i], want)
					}
				}
				total += len(c.IDs)
			}
			if whole.Usage.Completion != total || whole.Usage.Total != total+whole.Usage.Prompt {
				t.Errorf("%s: usage %+v of %d tokens", body, whole.Usage, total)
			}
		}
	}
	if got := x.post("/v1/chat/completions", `{"messages": [{"role": "u", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "return_token_ids": true, "max_tokens": 1}`, 200); len(got.PromptIDs) != len("<u>ab<a>") {
		t.Errorf("the prompt has the ids %v", got.PromptIDs)
	}
	bare := x.post("/v1/completions", `{"model": "bare", "prompt": [1, 2], "seed": 1, "logprobs": 0}`, 200)
	if c := bare.Choices[0]; c.Text != "" || c.Logprobs.Tokens[0] != fmt.Sprint("token_id:", int32(sampler.Uniform(1, 0, 0, 0)*31)) {
		t.Errorf("without a tokenizer: %+v", c)
	}
}

// TestChoice compares a text that comes in pieces and is cut at a stop text with the
// whole text, cut at the same place.
func TestChoice(t *testing.T) {
	m := &Model{Tokenizer: tokenizer(t), EOS: []int32{0}}
	rapid.Check(t, func(t *rapid.T) {
		stops := rapid.SliceOfN(rapid.StringMatching(`[ab]{1,3}`), 0, 3).Draw(t, "stops")
		ids := rapid.SliceOf(rapid.Int32Range(1, 3)).Draw(t, "ids")
		c, got := (&job{common: new(common), model: m, options: sampler.Options{EOS: m.EOS, Stops: stops}}).choice(), ""
		for _, id := range ids {
			got += c.add(event{id: id}).text
		}
		got += c.add(event{finish: sampler.Stop}).text
		want := m.Tokenizer.Decode(ids, true)
		at := len(want)
		for n := range len(want) + 1 { // The stop text that is complete first counts.
			cut := slices.ContainsFunc(stops, func(s string) bool { return strings.HasSuffix(want[:n], s) })
			if cut {
				for _, s := range stops {
					if strings.HasSuffix(want[:n], s) {
						at = min(at, n-len(s))
					}
				}
				break
			}
		}
		if got != want[:at] || c.text.String() != got {
			t.Fatalf("%q cut at %q is %q, want %q", want, stops, got, want[:at])
		}
	})
}

// TestRefused: a bad request is refused with an error that names its field.
func TestRefused(t *testing.T) {
	x := newTester(t, newFake(3, 60), nil)
	const completions, chats = "/v1/completions", "/v1/chat/completions"
	for _, tt := range []struct {
		path, body string
		status     int
		param      string
	}{
		{completions, `{`, 400, ""},
		{completions, `[]`, 400, ""},
		{completions, `{"prompt": "a"} {}`, 400, ""},
		{completions, `{}`, 400, "prompt"},
		{completions, `{"prompt": ""}`, 400, "prompt"},
		{completions, `{"prompt": "A"}`, 400, "prompt"},
		{completions, `{"prompt": [99]}`, 400, "prompt"},
		{completions, `{"prompt": [[1], [-1]]}`, 400, "prompt"},
		{completions, `{"prompt": {"a": 1}}`, 400, "prompt"},
		{completions, `{"prompt": "` + strings.Repeat("a", 60) + `"}`, 400, "prompt"},
		{completions, `{"prompt": "a", "model": "other"}`, 404, "model"},
		{completions, `{"prompt": "a", "model": "bare"}`, 400, "prompt"},
		{completions, `{"prompt": [1], "model": "bare", "stop": "a"}`, 400, "stop"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "model": "bare"}`, 400, "messages"},
		{completions, `{"prompt": "a", "temprature": 1}`, 400, "temprature"},
		{completions, `{"prompt": "a", "temperature": "1"}`, 400, "temperature"},
		{completions, `{"prompt": "a", "temperature": -1}`, 400, "temperature"},
		{completions, `{"prompt": "a", "temperature": 1e9}`, 400, "temperature"},
		{completions, `{"prompt": "a", "top_p": 1.5}`, 400, "top_p"},
		{completions, `{"prompt": "a", "top_k": -2}`, 400, "top_k"},
		{completions, `{"prompt": "a", "min_p": 1}`, 400, "min_p"},
		{completions, `{"prompt": "a", "max_tokens": 0}`, 400, "max_tokens"},
		{completions, `{"prompt": "a", "max_tokens": -2}`, 400, "max_tokens"},
		{completions, `{"prompt": "a", "n": 0}`, 400, "n"},
		{completions, `{"prompt": "a", "n": 8}`, 400, "n"}, // 3 + 2 slots, 2 waiting
		{completions, `{"prompt": "a", "stop": ""}`, 400, "stop"},
		{completions, `{"prompt": "a", "stop": [1]}`, 400, "stop"},
		{completions, `{"prompt": "a", "echo": true}`, 400, "echo"},
		{completions, `{"prompt": "a", "best_of": 3}`, 400, "best_of"},
		{completions, `{"prompt": "a", "logprobs": 21}`, 400, "logprobs"},
		{completions, `{"prompt": "a", "suffix": "b"}`, 400, "suffix"},
		{completions, `{"prompt": "a", "logit_bias": {"31": 2}}`, 400, "logit_bias"},
		{completions, `{"prompt": "a", "logit_bias": {"1": 101}}`, 400, "logit_bias"},
		{completions, `{"prompt": "a", "logit_bias": {"a": 1}}`, 400, "logit_bias"},
		{completions, `{"prompt": "a", "presence_penalty": 3}`, 400, "presence_penalty"},
		{completions, `{"prompt": "a", "frequency_penalty": -3}`, 400, "frequency_penalty"},
		{completions, `{"prompt": "a", "repetition_penalty": -1}`, 400, "repetition_penalty"},
		{completions, `{"prompt": "a", "prompt_logprobs": 0}`, 400, "prompt_logprobs"},
		{completions, `{"prompt": "a", "guided_regex": "a("}`, 400, "guided_regex"},
		{completions, `{"prompt": "a", "guided_regex": "a", "min_tokens": 3}`, 400, "min_tokens"},
		{completions, `{"prompt": "a", "guided_regex": "a", "regex": "b"}`, 400, "regex"},
		{completions, `{"prompt": "a", "guided_grammar": "root ::= x"}`, 400, "guided_grammar"},
		{completions, `{"prompt": "a", "structured_outputs": {"regex": "a", "choice": ["b"]}}`, 400, "structured_outputs"},
		{completions, `{"model": "bare", "prompt": [1], "regex": "a"}`, 400, "regex"},
		{completions, `{"prompt": "a", "structured_outputs": {"grammar": "root ::= x"}}`, 400, "structured_outputs"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "response_format": {"type": "xml"}}`, 400, "response_format"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}`, 400, "response_format"},
		{completions, `{"prompt": "a", "continue_final_message": true}`, 400, "continue_final_message"},
		{chats, `{"messages": [{"role": "user", "content": "a"}], "continue_final_message": true, "add_generation_prompt": true}`, 400, "messages"},
		{chats, `{"messages": [{"role": "user", "content": "a"}], "reasoning": {"effort": "high"}}`, 400, "reasoning"},
		{chats, `{"messages": []}`, 400, "messages"},
		{chats, `{"messages": ["a"]}`, 400, "messages"},
		{chats, `{"messages": [{"role": "u", "content": [{"type": "image_url"}]}]}`, 400, "messages"},
		{chats, `{"messages": [{"role": "user", "content": null}]}`, 400, "messages"},
		{chats, `{"messages": [{"role": "system"}]}`, 400, "messages"},
		{chats, `{"messages": [{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}]}`, 400, "messages"},
		{chats, `{"messages": [{"role": "user", "content": "a"}], "functions": [{"name": "f"}]}`, 400, "functions"},
		{chats, `{"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "high"}`, 400, "reasoning_effort"},
		{chats, `{"messages": [{"role": "user", "content": "a"}], "enable_thinking": false}`, 400, "enable_thinking"},
		{completions, `{"prompt": "a", "min_tokens": -1}`, 400, "min_tokens"},
		{completions, `{"prompt": "a", "stop_token_ids": [-2]}`, 400, "stop_token_ids"},
		{completions, `{"prompt": "a", "": 1}`, 400, ""},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tools": [{}]}`, 400, "tools"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tools": {"a": 1}}`, 400, "tools"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`, 400, "tools"}, // a template that does not show tools
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tool_choice": {"type": "function", "function": {"name": "f"}}}`, 400, "tool_choice"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tool_choice": {"type": "allowed_tools"}}`, 400, "tool_choice"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tool_choice": "any"}`, 400, "tool_choice"},
		{"/v1/responses", `{}`, 400, "input"},
		{"/v1/responses", `{"input": "a", "previous_response_id": "resp_x"}`, 404, "previous_response_id"},
		{"/v1/responses", `{"input": [{"type": "item_reference", "id": "x"}]}`, 400, "input"},
		{"/v1/responses", `{"input": "a", "tools": [{"type": "web_search"}]}`, 400, "tools"},
		{"/v1/responses", `{"input": "a", "background": true}`, 400, "background"},
		{"/v1/responses", `{"input": "a", "truncation": "auto"}`, 400, "truncation"},
		{"/inference/v1/generate", `{}`, 400, "token_ids"},
		{"/inference/v1/generate", `{"token_ids": [99]}`, 400, "token_ids"},
		{"/inference/v1/generate", `{"token_ids": [1], "sampling_params": {"logprobs": 21}}`, 400, "logprobs"},
		{"/inference/v1/generate", `{"token_ids": [1], "sampling_params": {"stream": true}}`, 400, "stream"},
		{"/inference/v1/generate", `{"token_ids": [1], "sampling_params": {"presence_penalty": 3}}`, 400, "presence_penalty"},
		{"/inference/v1/generate", `{"token_ids": [1], "sampling_params": []}`, 400, "sampling_params"},
		{"/inference/v1/generate", `{"token_ids": [1], "stream": true}`, 400, "stream"},
		{"/tokenize", `{}`, 400, "prompt"},
		{"/tokenize", `{"model": "bare", "prompt": "a"}`, 400, "model"},
		{"/detokenize", `{"tokens": [-1]}`, 400, "tokens"},
		{completions, `{"prompt": "a", "greedy": true}`, 400, "greedy"},
		{completions, `{"prompt": "a", "a_field_of_next_year": 1}`, 400, "a_field_of_next_year"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "top_logprobs": 2}`, 400, "top_logprobs"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "logprobs": true, "top_logprobs": 21}`, 400, "top_logprobs"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "tool_choice": "required"}`, 400, "tool_choice"},
		{chats, `{"messages": [{"role": "u", "content": "a"}], "response_format": {"type": "json_object"}}`, 400, "response_format"},
		{"/v1/embeddings", `{}`, 404, ""},
	} {
		if got := x.post(tt.path, tt.body, tt.status); got.Error == nil || got.Error.Message == "" || got.Error.Param != tt.param {
			t.Errorf("%s: %+v, want an error about %q", tt.body, got.Error, tt.param)
		}
	}
	x.post(completions, `{"prompt": "a", "user": "me", "metadata": {"a": 1}, "presence_penalty": 0, "logit_bias": {}, "stop": null, "top_k": -1, "best_of": 1}`, 200)
	x.post(completions, `{"prompt": "a", "echo": false, "suffix": "", "ignore_eos": false, "min_tokens": 0, "stop_token_ids": [], "skip_special_tokens": true,
		"repetition_penalty": 1.0, "repeat_penalty": 1, "frequency_penalty": null, "n": null, "max_tokens": null, "temperature": null, "use_beam_search": false, "a_field_of_next_year": null}`, 200)
	x.post(chats, `{"messages": [{"role": "user", "content": "a", "name": null}], "functions": null, "function_call": "none", "reasoning_effort": null, "response_format": {"type": "text"},
		"tools": [], "tool_choice": null, "logprobs": null, "top_logprobs": 0, "parallel_tool_calls": true, "stream_options": null, "modalities": ["text"], "audio": null, "prediction": null}`, 200)
	x.post(completions, `{"prompt": "a", "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"1": 2, "2": -100}, "min_tokens": 3, "include_stop_str_in_output": true, "max_tokens": 32000, "spaces_between_special_tokens": false}`, 200)
	x.post(chats, `{"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": -1, "prediction": {"type": "content", "content": "a"}, "reasoning": {"effort": "medium"}, "separate_reasoning": true, "include_reasoning": true, "logit_bias": null, "return_tokens_as_token_ids": true}`, 200)
	x.post(chats, `{"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "medium", "stream_options": {"include_usage": false, "include_obfuscation": false}}`, 200)
	if status, _ := x.ask("GET", completions, ""); status != 405 {
		t.Errorf("GET has the status %d", status)
	}
	if status, _ := x.ask("POST", completions, `{"prompt": "`+strings.Repeat("a", maxBody)+`"}`); status != 413 {
		t.Errorf("a large body has the status %d", status)
	}
	if r, err := http.Post(x.url+completions, "text/plain", strings.NewReader(`{"prompt": "a"}`)); err != nil || r.StatusCode != 415 {
		t.Errorf("text/plain: %v, %v", r, err)
	}
}

// TestNoChatTemplate: a chat of a model without a template is refused with the remedy.
func TestNoChatTemplate(t *testing.T) {
	x := newTester(t, newFake(1, 60), func(o *Options) { o.Models[0].Tokenizer = tokenizerWith(t, "") })
	got := x.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}]}`, 400)
	if want := "ask /v1/completions, or start onering serve with --template"; !strings.Contains(got.Error.Message, want) {
		t.Errorf("%+v, want %q", got.Error, want)
	}
}

// TestSlow has clients promise a body and never send its end: the server answers and
// closes, in whichever handler reads the body.
func TestSlow(t *testing.T) {
	x := newTester(t, newFake(1, 60), func(o *Options) { o.patience = 20 * time.Millisecond })
	for _, tt := range []struct{ request, want string }{
		{"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json", "408 Request Timeout"},
		{"POST /v1/completions HTTP/1.1\r\nContent-Type: text/plain", "415 Unsupported"},
		{"POST /v1/models HTTP/1.1", "405 Method Not"},
		{"GET /health HTTP/1.1", "200 OK"},
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{\"prompt\":", tt.request)
		got, err := io.ReadAll(c) // The handler ends when the server closes.
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+tt.want) {
			t.Errorf("%s: %q, %v", tt.request, got, err)
		}
		c.Close()
	}
}

// TestTrickle: clients whose bodies never end leave room for others, and the bytes of
// their large bodies are bounded.
func TestTrickle(t *testing.T) {
	x := newTester(t, newFake(1, 60), nil)
	begin := func(sent int) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", maxBody, strings.Repeat(" ", sent))
		return c
	}
	for range 110 {
		begin(1)
	}
	x.post("/v1/completions", `{"prompt": "a", "max_tokens": 3}`, 200)
	for range maxReading/maxBody + 1 {
		begin(maxBody - 1)
	}
	for x.server.bodyBytes.Load() < maxReading-maxBody {
		time.Sleep(time.Millisecond)
	}
	x.post("/v1/completions", `{"prompt": "a", "max_tokens": 3}`, 200)
	const large = 4 * freeBody
	for x.server.bodyBytes.Load() < maxReading-large {
		begin(large)
		time.Sleep(time.Millisecond)
	}
	// A body that began late may be refused, and frees its bytes.
	got := x.post("/v1/completions", strings.Repeat(" ", maxBody/2)+`{"prompt": "a", "max_tokens": 3}`, 429)
	if got.Error.Code != "queue_full" || x.server.openRequests.Load() != 0 {
		t.Errorf("%+v, %d open", got.Error, x.server.openRequests.Load())
	}
}

// TestTypes: fields of a wrong type are refused with the possible types.
func TestTypes(t *testing.T) {
	x := newTester(t, newFake(1, 60), nil)
	for body, want := range map[string]string{
		`[]`:                                      `the body must be a JSON object, such as {"prompt": "1+1="}`,
		"{\"prompt\": \"\xe9\"}":                  "the body is not UTF-8",
		`{"prompt": "a", "max_tokens": 1e30}`:     "max_tokens is 1e30, not a whole number",
		`{"prompt": "a", "seed": 1.5}`:            "seed is 1.5, not a whole number",
		`{"prompt": "a", "temperature": 1e400}`:   "temperature is 1e400, not a number of 64 bits",
		`{"prompt": "a", "stream": "yes"}`:        `stream is "yes", not true or false`,
		`{"prompt": "a", "model": 7}`:             "model is 7, not a text",
		`{"prompt": "a", "stream_options": "x"}`:  `stream_options is "x", not an object`,
		`{"prompt": "a", "logit_bias": [1]}`:      "logit_bias is a list, not an object",
		`{"prompt": "a", "logit_bias": {"a": 1}}`: `logit_bias.a is "a", not a whole number`,
		`{"prompt": "a", "logit_bias": {"99": 1, "98": 1, "97": 1, "96": 1, "95": 1}}`: "logit_bias has 1 for the id 95: the model has ids 0 to 30, and a bias is from -100 to 100",
		`{"prompt": "a", "n": 1} {}`:      "the body is not a request: more text follows the JSON value, at byte 24",
		`{"prompt": "a", "prompt": "b"}`:  `key "prompt" is stated twice`,
		`{"prompt": [9, null]}`:           "prompt: must be a text, a list of token ids, or a list of texts or of lists of token ids: [1] is null, not a whole number",
		`{"prompt": "a", "stop": [null]}`: "stop: must be a text or a list of texts",
	} {
		if got := x.post("/v1/completions", body, 400); got.Error.Message != want {
			t.Errorf("%s: %q, want %q", body, got.Error.Message, want)
		}
	}
}

// TestKey: only requests with the key are answered.
func TestKey(t *testing.T) {
	x := newTester(t, newFake(1, 60), func(o *Options) { o.Key = "secret" })
	x.post("/v1/completions", `{"prompt": "a"}`, 200)
	if status, text := x.ask("GET", "/v1/models", ""); status != 200 || !bytes.Contains(text, []byte(`"bare"`)) {
		t.Errorf("status %d: %s", status, text)
	}
	if status, _ := x.ask("GET", "/v1/models/base", ""); status != 200 {
		t.Errorf("status %d", status)
	}
	for _, key := range []string{"", "secre", "secret2"} {
		x.key = key
		if got := x.post("/v1/completions", `{"prompt": "a"}`, 401); got.Error.Code != "invalid_api_key" {
			t.Errorf("key %q: %+v", key, got.Error)
		}
		if status, _ := x.ask("GET", "/v1/models", ""); status != 401 {
			t.Errorf("key %q: status %d", key, status)
		}
	}
	if status, _ := x.ask("GET", "/health", ""); status != 200 {
		t.Errorf("health has the status %d", status)
	}
}

// TestGone: clients leave while their requests are answered, or wait, and their slots and
// places become free.
func TestGone(t *testing.T) {
	d := newFake(1, 60)
	d.gate = make(chan bool)
	x := newTester(t, d, func(o *Options) { o.Models, o.Queue = o.Models[:1], 1 })
	const long = `{"prompt": "a", "max_tokens": 20, "seed": 8, "stream": true}`
	ctx, leave := context.WithCancel(context.Background())
	first, err := x.send(ctx, "POST", "/v1/completions", long)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	behind, leaveBehind := context.WithCancel(context.Background())
	go func() {
		r, err := x.send(behind, "POST", "/v1/completions", long)
		if err == nil {
			io.ReadAll(r.Body)
		}
		waiting <- err
	}()
	d.gate <- true
	for x.server.engine.reserved.Load() != 2 { // The test waits until the second request has its place.
		time.Sleep(time.Millisecond)
	}
	if got := x.post("/v1/completions", `{"prompt": "a"}`, 429); got.Error.Code != "queue_full" {
		t.Errorf("%+v", got.Error)
	}
	leave()
	leaveBehind()
	first.Body.Close()
	go func() { <-waiting }()
	done := make(chan answered)
	go func() {
		for x.server.engine.reserved.Load() != 0 {
			select {
			case d.gate <- true:
			case <-time.After(time.Millisecond):
			}
		}
		done <- x.post("/v1/completions", `{"prompt": "b", "max_tokens": 3, "seed": 9}`, 200)
	}()
	for {
		select {
		case d.gate <- true:
			continue
		case got := <-done:
			if len(got.Choices) != 1 {
				t.Errorf("%+v", got)
			}
		}
		break
	}
	close(d.gate)
}

// TestDecoderFails: a request whose decoding fails in the middle gets the error, and the
// next request is answered.
func TestDecoderFails(t *testing.T) {
	d := newFake(2, 60)
	d.gate = make(chan bool, 1)
	x := newTester(t, d, nil)
	d.gate <- false
	if got := x.post("/v1/completions", `{"prompt": "a", "seed": 8}`, 500); !strings.Contains(got.Error.Message, "the device is gone") {
		t.Errorf("%+v", got.Error)
	}
	d.gate <- false
	_, text := x.ask("POST", "/v1/completions", `{"prompt": "a", "seed": 8, "stream": true}`)
	if !bytes.Contains(text, []byte(`data: {"error":{"message":"sampler: step with 1 sequences: the device is gone"`)) || bytes.Contains(text, []byte("DONE")) {
		t.Errorf("the stream is %s", text)
	}
	go func() {
		for range 20 {
			d.gate <- true
		}
	}()
	x.post("/v1/completions", `{"prompt": "a", "seed": 8}`, 200)
	x.stop()
	if got := x.post("/v1/completions", `{"prompt": "a"}`, 503); got.Error.Code != "stopping" {
		t.Errorf("%+v", got.Error)
	}
}

// FuzzRequest reads bodies: a body that is not refused must give a call that the sampler accepts.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"prompt": "abc", "n": 2, "stop": ["a", "b"], "temperature": 0, "logprobs": 0}`,
		`{"prompt": [[1, 2], [3]], "top_k": 3, "min_p": 0.1, "seed": -1}`,
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tools": [{"a": {}}], "chat_template_kwargs": {"x": 1}}`,
		`{"messages": [{"role": "user", "content": null, "tool_calls": []}], "tool_choice": "none", "max_completion_tokens": 3}`,
		`{"prompt": "a", "stream_options": null, "logit_bias": {}, "metadata": [1]}`,
	} {
		f.Add([]byte(body))
	}
	template, _ := tokenize.ParseTemplate("chat")
	d := newFake(2, 40)
	m := &Model{Name: "m", Tokenizer: tokenizer(f), Template: template, EOS: []int32{0}, Vocab: 31, Decoder: d, Sampling: sampler.Plain(0)}
	scheduler, err := sampler.NewScheduler(d)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		take := func(c *common, ids []int32, err error) {
			if err != nil {
				return
			}
			way, err := c.sampling(5, 9)
			if err != nil {
				return
			}
			call := new(answer).newCall(c.options(m, way, nil), ids, 0, c.sampleCount())
			if err := scheduler.Check(call); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
		models := func(string) (*Model, error) { return m, nil }
		var c completion
		if _, err := parse(body, &c, &c.common, models); err == nil && c.check() == nil {
			for _, p := range c.Prompt {
				ids, err := m.encode(p)
				take(&c.common, ids, err)
			}
		}
		var talk chat
		if _, err := parse(body, &talk, &talk.common, models); err == nil && talk.check() == nil {
			d, err := talk.dialogue(m)
			if err == nil {
				var p prompt
				p, err = m.prompt(d)
				take(&talk.common, p.ids, err)
			}
		}
	})
}

// TestFatal: a fatal error answers its request, ends the Server with that error and
// refuses waiting and later requests; other errors end only their own requests.
func TestFatal(t *testing.T) {
	d := newFake(1, 50)
	d.gate = make(chan bool, 4)
	template, err := tokenize.ParseTemplate("chat")
	if err != nil {
		t.Fatal(err)
	}
	fatal := false
	s, err := New(Options{
		MaxTokens: 20, Queue: 2, Models: []*Model{{Name: "base", Tokenizer: tokenizer(t), Template: template, EOS: []int32{0}, Vocab: 31, Decoder: d}},
		Fatal: func(err error) bool { return fatal && strings.Contains(err.Error(), "the device is gone") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	x := &tester{T: t, url: web.URL, server: s, decoder: d}
	const request = `{"prompt": [1, 2], "max_tokens": 5, "seed": 1}`
	d.gate <- false
	if status, body := x.ask("POST", "/v1/completions", request); status != 500 || !bytes.Contains(body, []byte("the device is gone")) {
		t.Errorf("status %d, %s", status, body)
	}
	if err := s.engine.betweenSteps(t.Context(), func() error { fatal = true; return nil }); err != nil {
		t.Fatalf("an error that is not fatal: %v", err)
	}
	first, second := make(chan int), make(chan int)
	send := func(to chan int, held int64) {
		go func() {
			status, _ := x.ask("POST", "/v1/completions", request)
			to <- status
		}()
		for s.engine.reserved.Load() != held {
			time.Sleep(time.Millisecond)
		}
	}
	send(first, 1)
	d.gate <- true
	send(second, 2)
	d.gate <- true // The request is in the queue after this step.
	d.gate <- false
	if status := <-first; status != 500 {
		t.Errorf("the request that met it: status %d", status)
	}
	if status := <-second; status != 503 {
		t.Errorf("the one that waited: status %d", status)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the device is gone") {
		t.Errorf("the server ends with %v", err)
	}
	if status, body := x.ask("POST", "/v1/completions", request); status != 503 {
		t.Errorf("later: status %d, %s", status, body)
	}
}
