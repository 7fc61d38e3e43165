package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"onering/sampler"
)

// thinking is a chat template that writes thoughts of answers, and begins the answer with a
// thought if it is asked to.
const thinking = `{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}<tool_call>{"name": {% endif %}{% if add_generation_prompt %}[assistant]{% if enable_thinking %}<think>
{% endif %}{% endif %}`

// streamed joins the pieces of a stream of one choice.
func (t *tester) streamed(body string) (thought, content, calls string, tokens, logprobs int) {
	t.Helper()
	_, text := t.ask("POST", "/v1/chat/completions", strings.TrimSuffix(body, "}")+`, "stream": true}`)
	for line := range strings.Lines(string(text)) {
		data, is := strings.CutPrefix(line, "data: ")
		if !is || strings.HasPrefix(data, "[DONE]") {
			continue
		}
		var piece called
		if err := json.Unmarshal([]byte(data), &piece); err != nil || len(piece.Choices) != 1 {
			t.Fatalf("%v: %s", err, data)
		}
		c := piece.Choices[0]
		thought += c.Delta.Thought
		if tokens += len(c.IDs); c.Logprobs != nil {
			logprobs += len(c.Logprobs.Content)
		}
		if c.Delta.Content != nil {
			content += *c.Delta.Content
		}
		for _, x := range c.Delta.Calls {
			calls += x.Function.Name + x.Function.Arguments
		}
	}
	return thought, content, calls, tokens, logprobs
}

// TestThoughts: what a model thinks is told beside what it says, whole and streamed, with all
// tokens and their log-probs; a completion is the text as it is.
func TestThoughts(t *testing.T) {
	const call = `<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>`
	const user, think = `"messages": [{"role": "user", "content": "a"}]`, `, "chat_template_kwargs": {"enable_thinking": true}`
	for _, tt := range []struct{ text, request, thought, content, calls string }{
		{"<think>a</think>b", user, "a", "b", ""},
		{"<think>\na é\n\nb\n</think>\n\nc <think>d</think>\n", user, "a é\n\nb", "c <think>d</think>\n", ""},
		{"\n<think>\n\n</think>\n\nRIGHT", user, "", "RIGHT", ""},
		{"a </think> b", user, "", "a </think> b", ""},
		{"a\n</think>\n\nb", user + think, "a", "b", ""},
		{"<think>a</think>b", user + think, "<think>a", "b", ""},
		{"a thought without an end", user + think, "a thought without an end", "", ""},
		{"<think>a STOP b</think>c", user + `, "stop": "STOP"`, "a", "", ""},
		{"<think>a</think>b <thi", user, "a", "b <thi", ""},
		{"<thinking> b", user, "", "<thinking> b", ""},
		{"<think>\n\n</think>\n\n" + call, withTools, "", "", `f{"n": 1}`},
		{"<think>" + call + "</think>\nI call.\n" + call, withTools, call, "I call.", `f{"n": 1}`},
		{"a</think>" + call, withTools + think, "a", "", `f{"n": 1}`},
		{"c", `"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>b"}], "continue_final_message": true`, "c", "", ""},
		{"c</think>d", `"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>b"}], "continue_final_message": true`, "c", "d", ""},
		{" c", `"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "continue_final_message": true`, "", " c", ""},
	} {
		x := newScripted(t, thinking, tt.text)
		body := `{"return_token_ids": true, "logprobs": true, ` + tt.request + `}`
		_, text := x.ask("POST", "/v1/chat/completions", body)
		var whole called
		if err := json.Unmarshal(text, &whole); err != nil || len(whole.Choices) != 1 {
			t.Fatalf("%s: %s", tt.text, text)
		}
		m, content, calls := whole.Choices[0].Message, "", ""
		if m.Content != nil {
			content = *m.Content
		}
		for _, x := range m.Calls {
			calls += x.Function.Name + x.Function.Arguments
		}
		if m.Thought != tt.thought || content != tt.content || calls != tt.calls {
			t.Errorf("%q %s: %q, %q, %q, want %q, %q, %q", tt.text, tt.request, m.Thought, content, calls, tt.thought, tt.content, tt.calls)
		}
		thought, content, calls, tokens, logprobs := x.streamed(body)
		if thought != tt.thought || content != tt.content || calls != tt.calls {
			t.Errorf("%q, streamed: %q, %q, %q, want %q, %q, %q", tt.text, thought, content, calls, tt.thought, tt.content, tt.calls)
		}
		if n := len(whole.Choices[0].IDs); tokens != n || logprobs != n || len(whole.Choices[0].Logprobs.Content) != n {
			t.Errorf("%q: %d tokens and %d log-probs are streamed, %d are whole", tt.text, tokens, logprobs, n)
		}
	}
	x := newScripted(t, thinking, "<think>a</think>b")
	if got := x.post("/v1/completions", `{"prompt": "a", "max_tokens": 30}`, 200); got.Choices[0].Text != "<think>a</think>b" {
		t.Errorf("a completion is %q", got.Choices[0].Text)
	}
}

// TestHeard: a message is read in the forms in which clients send it, and the prompt has what
// the chat template makes of it.
func TestHeard(t *testing.T) {
	x := newScripted(t, thinking, "a")
	for messages, want := range map[string]string{
		`{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "y"}]}, {"role": "user", "content": "b"}`:     "[user]a[assistant]<think>x</think>y[user]b[assistant]",
		`{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, {"role": "user", "content": "b"}`:                                                                       "[assistant]no[user]b[assistant]",
		`{"role": "assistant", "content": [{"type": "reasoning", "text": "x"}, {"type": "output_text", "text": "y"}]}, {"role": "user", "content": [{"type": "input_text", "text": "b"}]}`: "[assistant]<think>x</think>y[user]b[assistant]",
		`{"role": "assistant", "content": "y", "reasoning_content": "x"}, {"role": "user", "content": "b"}`:                                                                                "[assistant]<think>x</think>y[user]b[assistant]",
		`{"role": "assistant", "content": "y", "reasoning": "x", "refusal": null}, {"role": "user", "content": "b"}`:                                                                       "[assistant]<think>x</think>y[user]b[assistant]",
		`{"role": "assistant", "content": "", "reasoning_content": null}, {"role": "user", "content": "b", "name": "me"}`:                                                                  "[assistant][user]b[assistant]",
		`{"role": "user", "content": "a"}, {"role": "tool", "content": null, "tool_call_id": "c"}`:                                                                                         "[user]a[tool][assistant]",
		`{"role": "user", "content": []}`: "[user][assistant]",
	} {
		got := x.post("/v1/chat/completions", `{"max_tokens": 1, "return_token_ids": true, "messages": [`+messages+`]}`, 200)
		if text := x.server.Models[0].Tokenizer.Decode(got.PromptIDs, false); text != want {
			t.Errorf("%s: the prompt is %q, want %q", messages, text, want)
		}
	}
	for fields, want := range map[string]string{
		`"add_generation_prompt": false`:                                    "[user]a[assistant]b",
		`"add_generation_prompt": true`:                                     "[user]a[assistant]b[assistant]",
		`"add_generation_prompt": false, "continue_final_message": true`:    "[user]a[assistant]b",
		`"continue_final_message": true`:                                    "[user]a[assistant]b",
		`"chat_template_kwargs": {"enable_thinking": true}`:                 "[user]a[assistant]b[assistant]<think>\n",
		`"continue_final_message": false, "add_generation_prompt": null`:    "[user]a[assistant]b[assistant]",
		`"chat_template_kwargs": {"enable_thinking": false, "unread": "a"}`: "[user]a[assistant]b[assistant]",
	} {
		got := x.post("/v1/chat/completions", `{"max_tokens": 1, "return_token_ids": true, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], `+fields+`}`, 200)
		if text := x.server.Models[0].Tokenizer.Decode(got.PromptIDs, false); text != want {
			t.Errorf("%s: the prompt is %q, want %q", fields, text, want)
		}
	}
}

// TestUntold: a message whose role the chat template does not write is refused with the role.
func TestUntold(t *testing.T) {
	x := newTester(t, newFake(3, 200), func(o *Options) {
		o.Models[0].Tokenizer = tokenizerWith(t, `{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}<a>`)
	})
	for messages, want := range map[string]string{
		`{"role": "critic", "content": "a"}, {"role": "user", "content": "b"}`:                                                 `"critic"`,
		`{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "function", "content": "b"}`:        `"function"`,
		`{"role": "user", "content": "b"}, {"role": "assistant", "content": null}, {"role": "tool", "content": "b"}`:           `"tool"`,
		`{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}, {"role": "critic", "content": ""}`:           "",
		`{"role": "system", "content": "a"}, {"role": "system", "content": "a"}, {"role": "user", "content": ""}`:              "",
		`{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": "", "tool_calls": []}`: "",
	} {
		body := `{"max_tokens": 1, "messages": [` + messages + `]}`
		if want == "" {
			x.post("/v1/chat/completions", body, 200)
		} else if got := x.post("/v1/chat/completions", body, 400); !strings.Contains(got.Error.Message, want) || got.Error.Param != "messages" {
			t.Errorf("%s: %+v, want %s", messages, got.Error, want)
		}
	}
}

// TestRoom: a request for more tokens than there is room gets as many as there is room for.
func TestRoom(t *testing.T) {
	x := newTester(t, newFake(3, 60), func(o *Options) { o.MaxTokens = 8192 })
	for _, most := range []string{`"max_tokens": 8192`, `"max_tokens": 16384`, `"max_tokens": 32000`, `"max_tokens": 1000000000`, `"max_completion_tokens": 32000`, `"max_completion_tokens": 32000, "max_tokens": 1`} {
		got := x.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "ignore_eos": true, `+most+`}`, 200)
		if got.Usage.Total != 60 || *got.Choices[0].Finish != "length" {
			t.Errorf("%s: %+v", most, got.Usage)
		}
	}
	x = newTester(t, newFake(3, 60), nil)
	for path, body := range map[string]string{"/v1/completions": `"prompt": "a", `, "/v1/chat/completions": `"messages": [{"role": "user", "content": "a"}], `} {
		if got := x.post(path, `{`+body+`"ignore_eos": true, "max_tokens": 32000}`, 200); got.Usage.Completion != 20 {
			t.Errorf("%s: %+v, and the server gives up to 20", path, got.Usage)
		}
	}
}

// TestOptions: what clients ask for beside the common fields.
func TestOptions(t *testing.T) {
	x := newScripted(t, hermes, "abcdef")
	for fields, want := range map[string]string{
		`"stop": "cd"`: "ab stop",
		`"stop": "cd", "include_stop_str_in_output": true`:            "abcd stop",
		`"stop": ["e", "cd"], "include_stop_str_in_output": true`:     "abcd stop",
		`"stop_token_ids": [101], "include_stop_str_in_output": true`: "abc stop",
		`"stop": "cd", "min_tokens": 3`:                               "ab stop", // the text is complete with the fourth token
		`"stop": "ab", "min_tokens": 3`:                               "abcdef stop",
		`"include_stop_str_in_output": true`:                          "abcdef stop",
		`"stop": "cd", "include_stop_str_in_output": true, "n": 1`:    "abcd stop",
		`"presence_penalty": 0.5, "logit_bias": {"5": -5}, "seed": 1`: "abcdef stop", // the script chooses
	} {
		for path, prompt := range map[string]string{"/v1/completions": `"prompt": "a", "max_tokens": 20`, "/v1/chat/completions": `"messages": [{"role": "user", "content": "a"}]`} {
			c := x.post(path, `{`+prompt+`, `+fields+`}`, 200).Choices[0]
			if got := c.Text + c.Message.Content + " " + *c.Finish; got != want {
				t.Errorf("%s %s: %q, want %q", path, fields, got, want)
			}
		}
	}
	got := x.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 1, "return_tokens_as_token_ids": true, "return_token_ids": true}`, 200)
	for i, l := range got.Choices[0].Logprobs.Content {
		if want := fmt.Sprintf("token_id:%d", got.Choices[0].IDs[i]); l.Token != want {
			t.Errorf("token %d is named %+v, want %s", i, l, want)
		}
	}
	done := x.post("/v1/completions", `{"prompt": "a", "logprobs": 1, "max_tokens": 3, "return_tokens_as_token_ids": true, "return_token_ids": true}`, 200).Choices[0]
	for i, name := range done.Logprobs.Tokens {
		if want := fmt.Sprintf("token_id:%d", done.IDs[i]); name != want || done.Logprobs.Offsets[i] != i {
			t.Errorf("token %d is named %s at %d, want %s", i, name, done.Logprobs.Offsets[i], want)
		}
	}
}

// TestSteered: penalties and biases reach the sampler, except in an episode, where the run says
// how tokens are sampled.
func TestSteered(t *testing.T) {
	fields := `"logit_bias": {"5": -5, "7": 3}, "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.5, "min_tokens": 4`
	want := sampler.Steering{Bias: map[int32]float64{5: -5, 7: 3}, Presence: 0.5, Frequency: 0.25, Repetition: 1.5, MinTokens: 4}
	var c chat
	m := &Model{Sampling: sampler.Plain(9)}
	if _, err := parse([]byte(`{"messages": [{"role": "user", "content": "a"}], `+fields+`}`), &c, &c.common, func(string) (*Model, error) { return m, nil }); err != nil {
		t.Fatal(err)
	}
	if got := c.options(m, c.Sampling, nil).Steering; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	x, episode := conversing(t, 4)
	x.post("/v1/chat/completions", strings.Replace(chatOf("ab"), "{", "{"+fields+", ", 1), 200)
	if segments, err := episode.End(x.server); err != nil || len(segments) != 1 {
		t.Errorf("%+v, %v", segments, err)
	}
	if got := episode.segments[0]; got.response.IDs == nil {
		t.Errorf("%+v", got)
	}
}

// TestSessionThoughts: an episode goes on where its client sends back what it was sent, with
// the thought, without it, or with both as one text; sampled tokens stay as they are. Any model's
// name is the policy's.
func TestSessionThoughts(t *testing.T) {
	const thought, said = `"reasoning_content": "x y"`, `"content": "z"`
	for _, tt := range []struct {
		answers  []string // the first answer as the second and the third request have it
		segments int
	}{
		{[]string{said, said}, 1},
		{[]string{said + ", " + thought, said + ", " + thought}, 1},
		{[]string{said, said + ", " + thought}, 1},
		{[]string{said + `, "reasoning": "x y"`, said}, 1},
		{[]string{`"content": "<think>\nx y\n</think>\n\nz"`, said}, 1},
		{[]string{`"content": [{"type": "thinking", "thinking": "x y"}, {"type": "text", "text": "z"}]`, said}, 1},
		{[]string{said + `, "reasoning_content": "another"`}, 2},
		{[]string{`"content": "another", ` + thought}, 2},
	} {
		x := newScripted(t, thinking, "<think>\nx y\n</think>\n\nz")
		episode := &Session{Options: sampler.Options{Sampling: sampler.Plain(3000), EOS: []int32{0}}, MaxTurns: 9}
		x.server.Sessions = func(string) *Session { return episode }
		var ids []int32
		history := `{"role": "user", "content": "a"}`
		for _, again := range append(tt.answers, said) {
			got := x.post("/v1/chat/completions", `{"model": "gpt-4o-mini", "return_token_ids": true, "messages": [`+history+`]}`, 200)
			if tt.segments == 1 && (len(got.PromptIDs) < len(ids) || !slices.Equal(got.PromptIDs[:len(ids)], ids)) {
				t.Errorf("%q: what was sampled has changed", tt.answers)
			}
			ids = slices.Concat(got.PromptIDs, got.Choices[0].IDs)
			history = fmt.Sprintf(`{"role": "user", "content": "a"}, {"role": "assistant", %s}`, again) + strings.Repeat(`, {"role": "user", "content": "b"}, {"role": "assistant", "content": "z"}`, strings.Count(history, `"content": "b"`)) + `, {"role": "user", "content": "b"}`
		}
		segments, err := episode.End(x.server)
		if err != nil || len(segments) != tt.segments {
			t.Errorf("%q: %d segments, %v, want %d", tt.answers, len(segments), err, tt.segments)
		}
	}
}

// TestUnread: what a chat template would not read as it was meant is refused, and a client's
// descriptions of tools are read, or named in the request's own words.
func TestUnread(t *testing.T) {
	x := newScripted(t, hermes, "a")
	for body, want := range map[string]string{
		`"messages": [{"role": "user", "content": 5}]`:                                                                                                                   "the content of a message must be a text",
		`"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]`:                                                                                       "the content of a message must be a text",
		`"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": {"x": 1}}]`:                                                                          "the content of a message must be a text",
		`"messages": [{"role": "user", "content": "a"}], "tools": {}`:                                                                                                    "not a list",
		`"messages": [{"role": "user", "content": "a"}], "tools": ["x"]`:                                                                                                 `[0] is "x", not an object`,
		`"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": 5}}]`:                                                       "[0].function.name is 5, not a text",
		`"messages": [{"role": "user", "content": "a"}], "add_special_tokens": true`:                                                                                     "must be false or left out",
		`"messages": [{"role": "user", "content": "a"}], "add_special_tokens": false`:                                                                                    "",
		`"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": []}}}]`: "",
	} {
		status, text := x.ask("POST", "/v1/chat/completions", "{"+body+"}")
		var got struct{ Error struct{ Message string } }
		_ = json.Unmarshal(text, &got)
		if (status == 200) != (want == "") || !strings.Contains(got.Error.Message, want) {
			t.Errorf("%s: %d %s, want %q", body, status, text, want)
		}
	}
}
