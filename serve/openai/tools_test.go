package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"onering/tokenize"
)

// hermes is a template with Qwen's form of tools and calls, llama one with Llama's.
const (
	hermes = `{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`
	llama = `{% for m in messages %}<{{ m.role }}>{% if loop.first and tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}{% if 'tool_calls' in m %}{{ '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}{{ m.tool_calls[0].function.arguments | tojson }}{{ '}' }}{% else %}{{ m.content }}{% endif %}{% endfor %}<assistant>`
)

// bytesTokenizer has a token for each byte, behind <|end|> and <|python_tag|>, which are special.
func bytesTokenizer(t *testing.T, template string) *tokenize.Tokenizer {
	t.Helper()
	vocab, next := map[string]int{}, rune(256)
	for b := range rune(256) {
		if b > ' ' && b < 0x7f || b >= 0xa1 && b != 0xad {
			vocab[string(b)] = int(b) + 2
		} else {
			vocab[string(next)] = int(b) + 2
			next++
		}
	}
	special := func(name string) map[string]any { return map[string]any{"content": name, "special": true} }
	files := map[string]any{"vocab.json": vocab, "tokenizer_config.json": map[string]any{"tokenizer_class": "Qwen2Tokenizer", "chat_template": template,
		"added_tokens_decoder": map[string]any{"0": special("<|end|>"), "1": special("<|python_tag|>")}}}
	dir := t.TempDir()
	for name, content := range files {
		text, _ := json.Marshal(content)
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

// newScripted returns a server whose model writes a given text and ends.
func newScripted(t *testing.T, template, text string) *tester {
	x := newTester(t, newFake(2, 4000), func(o *Options) {
		o.MaxTokens = 8192
		o.Models[0].Tokenizer, o.Models[0].Vocab = bytesTokenizer(t, template), 258
	})
	ids := append(x.server.Models[0].Tokenizer.Encode(text), 0)
	x.decoder.script = func([]int32) []int32 { return slices.Clone(ids) }
	return x
}

// A called is a chat's answer, or a piece of an answer, with calls.
type called struct {
	Choices []struct {
		Message, Delta struct {
			Content *string
			Thought string `json:"reasoning_content"`
			Calls   []call `json:"tool_calls"`
		}
		Logprobs *chatLogprobs
		Finish   *string `json:"finish_reason"`
		IDs      []int32 `json:"token_ids"`
	}
}

const withTools = `"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}]`

// TestCalls: a model writes calls, in whole answers and in streams, which must agree.
func TestCalls(t *testing.T) {
	const one, two = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", `<tool_call>{"name": "g", "arguments": {}}</tool_call>`
	for _, tt := range []struct {
		template, text, request string
		content                 string // "" for null beside calls
		calls                   []string
		finish                  string
	}{
		{hermes, "I call.\n" + one + "\n" + two, withTools, "I call.", []string{`f {"n": 1}`, `g {}`}, "tool_calls"},
		{hermes, one + two, withTools + `, "tool_choice": "auto", "parallel_tool_calls": false, "store": false`, "", []string{`f {"n": 1}`}, "tool_calls"},
		{hermes, one, withTools + `, "tool_choice": "none"`, one, nil, "stop"},
		{hermes, one, `"messages": [{"role": "user", "content": "a"}]`, one, nil, "stop"},
		{hermes, "é <tool_call>{nothing}</tool_call> b", withTools, "é <tool_call>{nothing}</tool_call> b", nil, "stop"},
		{hermes, one, withTools + `, "max_tokens": 20`, one[:20], nil, "length"},
		{hermes, one + two, withTools + fmt.Sprintf(`, "max_tokens": %d`, len(one)+20), strings.TrimSpace(two[:20]), []string{`f {"n": 1}`}, "length"},
		{hermes, one + "and so on", withTools + fmt.Sprintf(`, "max_tokens": %d`, len(one)+5), "and s", []string{`f {"n": 1}`}, "tool_calls"},
		{hermes, "I call STOP " + one, withTools + `, "stop": "STOP"`, "I call ", nil, "stop"},
		{hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 3}}\n</tool_call>", withTools + `, "tool_choice": "required"`, "", []string{`f {"n": 3}`}, "tool_calls"},
		{hermes, "no", withTools + `, "tool_choice": "required", "max_tokens": 12`, "<tool_call>\n", nil, "length"},
		{llama, `{"name": "f", "parameters": {"n": 3}}`, withTools + `, "tool_choice": {"type": "function", "function": {"name": "f"}}`, "", []string{`f {"n": 3}`}, "tool_calls"},
		{hermes, "I call.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 7}}\n</tool_call>", strings.Replace(withTools, `"name"`, `"strict": true, "name"`, 1), "I call.", []string{`f {"n": 7}`}, "tool_calls"},
		{hermes, `{"a":1}`, withTools + `, "response_format": {"type": "json_object"}`, `{"a":1}`, nil, "stop"},
		{hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", withTools + `, "response_format": {"type": "json_object"}`, "", []string{"f {}"}, "tool_calls"},
		{llama, `{"name": "f", "parameters": {"n": 2}}`, withTools, "", []string{`f {"n": 2}`}, "tool_calls"},
		{llama, `<|python_tag|>f.call(n="2")`, withTools, "", []string{`f {"n": "2"}`}, "tool_calls"},
		{llama, `{"name": "f"`, withTools, `{"name": "f"`, nil, "stop"},
	} {
		x := newScripted(t, tt.template, tt.text)
		body := `{"return_token_ids": true, ` + tt.request + `, "stream": `
		_, text := x.ask("POST", "/v1/chat/completions", body+"false}")
		var whole called
		if err := json.Unmarshal(text, &whole); err != nil || len(whole.Choices) != 1 {
			t.Fatalf("%s: %s", tt.text, text)
		}
		c := whole.Choices[0]
		var calls []string
		ids := map[string]bool{}
		for _, x := range c.Message.Calls {
			calls = append(calls, x.Function.Name+" "+x.Function.Arguments)
			if ids[x.ID] = true; x.Type != "function" || x.ID == "" {
				t.Errorf("%+v", x)
			}
		}
		content := ""
		if c.Message.Content != nil {
			content = *c.Message.Content
		} else if !strings.Contains(string(text), `"content":null`) || len(calls) == 0 {
			t.Errorf("%s: there is no content: %s", tt.text, text)
		}
		if content != tt.content || !slices.Equal(calls, tt.calls) || *c.Finish != tt.finish || len(ids) != len(calls) {
			t.Errorf("%s: %q %q %s, want %q %q %s", tt.text, content, calls, *c.Finish, tt.content, tt.calls, tt.finish)
		}
		said, finish, names, arguments, tokens := "", "", map[int]string{}, map[int]string{}, 0
		_, stream := x.ask("POST", "/v1/chat/completions", body+"true}")
		for line := range strings.Lines(string(stream)) {
			data, is := strings.CutPrefix(line, "data: ")
			if !is || strings.HasPrefix(data, "[DONE]") {
				continue
			}
			var piece called
			if err := json.Unmarshal([]byte(data), &piece); err != nil || finish != "" {
				t.Fatal(err, data, finish)
			}
			c := piece.Choices[0]
			if tokens += len(c.IDs); c.Delta.Content != nil {
				said += *c.Delta.Content
			}
			for _, x := range c.Delta.Calls {
				if x.ID != "" { // The first piece of a call has the function's name.
					if x.Type != "function" || x.Function.Name == "" || *x.Index != len(names) || x.Function.Arguments != "" {
						t.Errorf("%s", data)
					}
					names[*x.Index] = x.Function.Name
				}
				arguments[*x.Index] += x.Function.Arguments
			}
			if c.Finish != nil {
				finish = *c.Finish
			}
		}
		var streamed []string
		for _, i := range slices.Sorted(maps.Keys(names)) {
			streamed = append(streamed, names[i]+" "+arguments[i])
		}
		if said != content || finish != *c.Finish || !slices.Equal(streamed, calls) || tokens != len(c.IDs) {
			t.Errorf("%s: streamed %q %q %s with %d tokens, whole %q %q %s with %d", tt.text, said, streamed, finish, tokens, content, calls, *c.Finish, len(c.IDs))
		}
	}
}

// TestConstrained: answers have the form that is asked for, whatever the model likes, and the same
// seed gives the same text.
func TestConstrained(t *testing.T) {
	x := newScripted(t, hermes, "\"{[0123,:]}a\\é \n</think>")
	const schema = `{"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 9}, "minItems": 2, "maxItems": 3}}, "required": ["a", "b"]}`
	for path, base := range map[string]string{"/v1/chat/completions": `{"messages": [{"role": "user", "content": "a"}], "seed": 1, `, "/v1/completions": `{"prompt": "a", "seed": 1, "max_tokens": 900, `} {
		for asked, want := range map[string]string{
			`"response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": true, "schema": ` + schema + `}}`: `^\{\s*"a":\s*"[xy]",\s*"b":\s*\[\s*[3-9],\s*[3-9](,\s*[3-9])?\s*\]\s*\}$`,
			`"guided_json": ` + schema:                                              `^\{\s*"a":\s*"[xy]"`,
			`"guided_regex": "a[0-3]{3}b?"`:                                         `^a[0-3]{3}b?$`,
			`"regex": "(x|y)z"`:                                                     `^(x|y)z$`,
			`"structured_outputs": {"choice": ["no", "yes"]}`:                       `^(no|yes)$`,
			`"structured_outputs": {"json": "{\"type\": \"null\"}", "regex": null}`: `^null$`,
			`"guided_regex": "ab", "ignore_eos": true`:                              `^ab$`,
		} {
			var texts []string
			for range 2 {
				got := x.post(path, base+asked+`}`, 200)
				c := got.Choices[0]
				text := c.Text + c.Message.Content
				if texts = append(texts, text); *c.Finish != "stop" || !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("%s %s: %q %s", path, asked, text, *c.Finish)
				}
			}
			if texts[0] != texts[1] {
				t.Errorf("%s: %q", asked, texts)
			}
		}
	}
	if got := x.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "[nu"}], "continue_final_message": true, "guided_regex": "\\[null, 1\\]"}`, 200); got.Choices[0].Message.Content != "ll, 1]" {
		t.Errorf("%+v", got.Choices[0])
	}
	x.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"}], "continue_final_message": true, "guided_regex": "y"}`, 400)
}

// TestSilent: if the chat template writes no calls, the prompt still has the calls of
// earlier answers.
func TestSilent(t *testing.T) {
	x := newScripted(t, `{% if xml_tools %}<tool_call>
{"name": <function-name>}{{ xml_tools | length }}{{ xml_tools[0].function.name }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`, "a")
	got := x.post("/v1/chat/completions", `{"return_token_ids": true, "tools": [{"type": "function", "function": {"name": "f"}}], "messages": [{"role": "user", "content": "a"},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 1}"}}]},
		{"role": "assistant", "content": "b", "tool_calls": [{"id": "y", "type": "function", "function": {"name": "g", "arguments": ""}}]}, {"role": "tool", "tool_call_id": "x", "content": "c"}]}`, 200)
	want := "<tool_call>\n{\"name\": <function-name>}1f[user]a[assistant]<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>[assistant]b\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>[tool]c"
	if text := x.server.Models[0].Tokenizer.Decode(got.PromptIDs, false); text != want {
		t.Errorf("the prompt is\n%s, want\n%s", text, want)
	}
}

// TestEnds: ids that end a response are not in its text, ignore_eos continues after the
// end of a sequence, and special tokens are in the text on request.
func TestEnds(t *testing.T) {
	x := newScripted(t, hermes, "ab<|python_tag|>cd")
	for fields, want := range map[string]string{
		``:                               "abcd stop 6",
		`, "stop_token_ids": [101]`:      "ab stop 4", // c
		`, "stop_token_ids": [1, 500]`:   "ab stop 3",
		`, "skip_special_tokens": false`: "ab<|python_tag|>cd stop 6",
		`, "skip_special_tokens": false, "ignore_eos": true, "max_tokens": 8`: "ab<|python_tag|>cd<|end|>ab length 8",
		`, "ignore_eos": true, "max_tokens": 8`:                               "abcdab length 8",
		`, "ignore_eos": true, "stop_token_ids": [0]`:                         "abcd stop 6",
	} {
		for _, prompt := range []string{`"prompt": "a", "max_tokens": 20`, `"messages": [{"role": "user", "content": "a"}]`} {
			path := map[bool]string{true: "/v1/completions", false: "/v1/chat/completions"}[strings.HasPrefix(prompt, `"p`)]
			if strings.Contains(fields, "max_tokens") {
				prompt = strings.TrimSuffix(prompt, `, "max_tokens": 20`)
			}
			c := x.post(path, `{"return_token_ids": true, `+prompt+fields+`}`, 200).Choices[0]
			if got := fmt.Sprintf("%s %s %d", c.Text+c.Message.Content, *c.Finish, len(c.IDs)); got != want {
				t.Errorf("%s %s: %q, want %q", path, fields, got, want)
			}
		}
	}
}

// TestGenerate sends ids and gets ids with their log-probs, the same as those of a completion.
func TestGenerate(t *testing.T) {
	x := newTester(t, newFake(3, 60), nil)
	for _, model := range []string{"base", "bare"} {
		want := x.post("/v1/completions", `{"model": "`+model+`", "prompt": [1, 2], "seed": 4, "n": 2, "max_tokens": 9, "logprobs": 0, "return_token_ids": true}`, 200)
		got := x.post("/inference/v1/generate", `{"model": "`+model+`", "token_ids": [1, 2], "cache_salt": "0", "priority": 3, "request_id": "mine", "sampling_params": {"seed": 4, "n": 2, "max_tokens": 9,
			"logprobs": 1, "stop_token_ids": [0], "skip_special_tokens": false, "detokenize": false, "routed_experts_prompt_start": 7, "temperature": 1.0, "top_k": -1}}`, 200)
		if got.RequestID != "mine" || *got.Usage != *want.Usage || len(got.Choices) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, c := range got.Choices {
			if !slices.Equal(c.IDs, want.Choices[i].IDs) || *c.Finish != *want.Choices[i].Finish || len(c.Logprobs.Content) != len(c.IDs) || c.Text != "" {
				t.Fatalf("%+v, want %+v", c, want.Choices[i])
			}
			for k, l := range c.Logprobs.Content {
				if l.Token != fmt.Sprintf("token_id:%d", c.IDs[k]) || l.LogP != want.Choices[i].Logprobs.LogP[k] {
					t.Errorf("token %d is %+v", k, l)
				}
			}
		}
	}
	// Without max_tokens a response may be as long as the server allows.
	if c := x.post("/inference/v1/generate", `{"token_ids": [1], "sampling_params": {"ignore_eos": true}}`, 200).Choices[0]; len(c.IDs) != 20 || c.Logprobs != nil {
		t.Errorf("%+v", c)
	}
}

// TestTokenize counts and encodes texts and chats, and decodes.
func TestTokenize(t *testing.T) {
	x := newScripted(t, hermes, "a")
	for body, want := range map[string]string{
		`{"prompt": "aé<|end|>"}`:                             "aé<|end|>",
		`{"prompt": "a", "add_special_tokens": false}`:        "a",
		`{"messages": [{"role": "user", "content": "a"}]}`:    "[user]a[assistant]",
		`{` + withTools + `, "add_generation_prompt": false}`: `{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}[user]a`,
	} {
		status, text := x.ask("POST", "/tokenize", strings.TrimSuffix(body, "}")+`, "return_token_strs": true}`)
		var got struct {
			Count, Max_model_len int
			Tokens               []int32
			Token_strs           []string
		}
		if err := json.Unmarshal(text, &got); err != nil || status != 200 || got.Count != len(got.Tokens) || got.Count != len(got.Token_strs) || got.Max_model_len != 4000 {
			t.Fatalf("%s: %s", body, text)
		}
		ids, _ := json.Marshal(got.Tokens)
		_, text = x.ask("POST", "/detokenize", `{"tokens": `+string(ids)+`}`)
		var back struct{ Prompt string }
		if json.Unmarshal(text, &back); back.Prompt != want {
			t.Errorf("%s: %q, want %q", body, back.Prompt, want)
		}
	}
}

// TestAgents runs other clients that call a tool and answer with its result, or ask for an object,
// if ONERING_AGENTS names a Python that has them.
func TestAgents(t *testing.T) {
	python := os.Getenv("ONERING_AGENTS")
	if python == "" {
		t.Skip("ONERING_AGENTS names no Python with openai, anthropic, instructor, pydantic-ai-slim[openai,anthropic], openai-agents, langchain-openai and langchain-anthropic")
	}
	x := newScripted(t, hermes, "")
	tok := x.server.Models[0].Tokenizer
	x.decoder.script = func(prompt []int32) []int32 {
		asked := tok.Decode(prompt, false)
		call := func(name, arguments string) string {
			return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
		}
		text := "I ask.\n" + call("add", `{"a": 17, "b": 25}`)
		if _, result, told := strings.Cut(asked, "[tool]"); told {
			text = "It is " + strings.TrimSuffix(result, "[assistant]") + "."
		} else if strings.Contains(asked, "Describe") {
			text = `{"name": "Ada", "age": 36}`
			for _, tool := range []string{"final_result", "Person"} {
				if strings.Contains(asked, `"name": "`+tool+`"`) {
					text = call(tool, text)
				}
			}
		}
		return append(tok.Encode(text), 0)
	}
	const person, sum, refused = "name='Ada' age=36", "It is 42.", "refused 404"
	for program, wants := range map[string]map[string]string{
		"clients.py": {"openai": sum, "openai, streamed": sum, "pydantic-ai": sum, "pydantic-ai, streamed": sum, "openai-agents": sum, "openai-agents, streamed": sum},
		"programs.py": {"openai parse": person, "openai responses": sum, "openai responses parse": person, "openai errors": refused, "anthropic": sum,
			"anthropic parse": person, "anthropic errors": refused, "instructor tools": person, "instructor json": person, "instructor schema": person,
			"instructor anthropic": person, "langchain-openai": person, "langchain-openai calls": person, "langchain-openai responses": person,
			"langchain-anthropic": person, "openai-agents responses": sum, "pydantic-ai": person, "pydantic-ai responses": person},
	} {
		url := x.url
		if program == "clients.py" {
			url += "/v1"
		}
		out, err := exec.Command(python, "testdata/"+program, url).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for name, want := range wants {
			if !strings.Contains(string(out), name+": "+want+"\n") {
				t.Errorf("%s did not get to %q", name, want)
			}
		}
		t.Logf("%s", out)
	}
}

// TestVerifiers has the client of verifiers sample by ids, where ONERING_VERIFIERS names a
// Python that has it.
func TestVerifiers(t *testing.T) {
	python := os.Getenv("ONERING_VERIFIERS")
	if python == "" {
		t.Skip("ONERING_VERIFIERS names no Python with verifiers==0.4.0")
	}
	x := newScripted(t, hermes, "It is 42.")
	out, err := exec.Command(python, "testdata/generate.py", x.url+"/v1").CombinedOutput()
	if want := "generate: stop after 10, usage {'prompt_tokens': 2, 'completion_tokens': 10, 'total_tokens': 12, 'prompt_tokens_details': {'cached_tokens': 0}, 'completion_tokens_details': {'reasoning_tokens': 0}}\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

// TestTop: answers, and the pieces of streams, have the likeliest tokens beside the sampled ones.
func TestTop(t *testing.T) {
	x := newTester(t, newFake(2, 60), nil)
	for path, body := range map[string]string{
		"/v1/chat/completions": `"messages": [{"role": "u", "content": "a"}], "logprobs": true, "top_logprobs": 2`,
		"/v1/completions":      `"prompt": "a", "logprobs": 2`,
	} {
		for _, stream := range []bool{false, true} {
			_, text := x.ask("POST", path, fmt.Sprintf(`{%s, "seed": 1, "max_tokens": 3, "ignore_eos": true, "stream": %v}`, body, stream))
			count := strings.Count(string(text), `"top_logprobs":[{"token":"a","logprob":-1,"bytes":[97]},{"token":"b","logprob":-2,"bytes":[98]}]`)
			if path == "/v1/completions" {
				count = strings.Count(string(text), `"a":-1,"b":`)
			}
			if count != 3 {
				t.Errorf("%s, stream %v: %s", path, stream, text)
			}
		}
	}
}
