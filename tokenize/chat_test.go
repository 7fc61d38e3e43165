package tokenize

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func chatOf(source string) *Tokenizer {
	return &Tokenizer{chat: templateSource{plain: source}.template(map[string]string{"bos_token": "<s>"})}
}

// A conversation in JSON reaches the template in the form that transformers 5.23 gives it.
func TestConversation(t *testing.T) {
	for _, c := range []struct{ row, template, want string }{
		{`{"messages": [{"role": "user", "content": "x"}]}`, "{{ bos_token }}{{ messages[0].content }}{{ tools }}{{ add_generation_prompt }}", "<s>xNoneFalse"},
		{`{"messages": [], "add_generation_prompt": true, "tools": [{"z": 1, "a": 2}]}`, "{{ tools | tojson }}{{ add_generation_prompt }}", `[{"z": 1, "a": 2}]True`},
		{`{"messages": [], "chat_template_kwargs": {"enable_thinking": false, "bos_token": "B"}}`, "{{ enable_thinking }}{{ bos_token }}", "FalseB"},
		{`{"messages": [{"role": "user", "content": null, "n": null}]}`, "{{ messages[0] }}", "{'role': 'user'}"},
		{`{"messages": [{"content": "x", "reasoning": "r"}]}`, "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", "rr"},
		{`{"messages": [{"content": "x", "reasoning_content": "a", "thinking": "b"}]}`, "{{ messages[0] }}", "{'thinking': 'b', 'content': 'x', 'reasoning_content': 'a'}"},
		{`{"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": {"b": 1.0, "a": 12345678901234567890}}}]}]}`,
			"{{ messages[0].tool_calls[0].function.arguments | tojson }}", `{"b": 1.0, "a": 12345678901234567890}`},
		{`{"messages": [{"tool_calls": [{"function": {"arguments": "{\"b\": 1}"}}], "tool_call_id": "7"}]}`,
			"{{ messages[0].tool_calls[0].function.arguments }}{{ messages[0].tool_call_id }}", `{"b": 1}7`},
		{`{"messages": [{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}`,
			"{% for part in messages[0].content %}{{ part.text }}{% endfor %}", "ab"},
		{`{"messages": [], "documents": [{"title": "T"}], "chat_template_kwargs": null}`, "{{ documents[0].title }}", "T"},
	} {
		var chat Conversation
		if err := json.Unmarshal([]byte(c.row), &chat); err != nil {
			t.Fatalf("%s: %v", c.row, err)
		}
		if got, err := chatOf(c.template).Chat(chat); err != nil || got != c.want {
			t.Errorf("%s in %s:\n got %q, %v\nwant %q", c.row, c.template, got, err, c.want)
		}
	}
	for _, bad := range []string{`{"messages": ["x"]}`, `{"messages": [null]}`, `{"chat_template_kwargs": 1}`, `{"messages": [{"a": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}]}`} {
		if err := json.Unmarshal([]byte(bad), new(Conversation)); err == nil {
			t.Errorf("%.60s is read", bad)
		}
	}
}

// Arguments of a run file, a flag or a table reach the template with their types.
func TestArgTexts(t *testing.T) {
	const template = "{% for v in [a, b, c] %}{{ v is string }} {{ v | tojson }};{% endfor %}"
	for _, c := range []struct {
		from any
		want string
	}{
		{[]any{"a=false", "b=03 Feb 2025", "c=[1, \"x\"]"}, `False false;True "03 Feb 2025";False [1, "x"];`},
		{[]any{"a=False", "b=None", "c = 1.5 "}, `False false;False null;False 1.5;`},
		{map[string]any{"a": false, "b": "false", "c": "x=y"}, `False false;True "false";True "x=y";`},
		{map[string]any{"a": int64(26), "b": "26", "c": map[string]any{"k": []any{int64(1)}}}, `False 26;True "26";False {"k": [1]};`},
		{map[string]any{"a": "", "b": "None", "c": 2.5}, `True "";True "None";False 2.5;`},
	} {
		var texts ArgTexts
		if err := texts.UnmarshalTOML(c.from); err != nil {
			t.Fatalf("%v: %v", c.from, err)
		}
		tok := chatOf(template)
		tok.bpe = newBPE()
		tok.bpe.startCache(1)
		got, _, err := tok.Prompt(Template{Chat: true, Args: texts}, "q")
		if err != nil || got != c.want {
			t.Errorf("%v: %q, %v, want %q", c.from, got, err, c.want)
		}
	}
	for _, bad := range []any{7, []any{1}, map[string]any{"a": struct{}{}}} {
		if err := new(ArgTexts).UnmarshalTOML(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	for _, bad := range []string{"", "=1", "a", "messages=[]"} {
		if _, err := (ArgTexts{bad}).Parse(); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, s := range []TemplateSettings{{Template: "qwen_math", Args: ArgTexts{"a=1"}}, {Template: "chat", Args: ArgTexts{"a"}}} {
		if _, err := s.PromptTemplate(); err == nil || !strings.Contains(err.Error(), "template_args") {
			t.Errorf("%+v: %v, want an error with template_args", s, err)
		}
	}
}

// TestChatLong renders a long conversation within the limits.
func TestChatLong(t *testing.T) {
	messages := make([]Message, 1000)
	want := 0
	for i := range messages {
		messages[i] = Message{Role: "user", Content: strings.Repeat("word ", 1000)}
		want += len(messages[i].Content) + 5
	}
	const source = "{% set ns = namespace(last=0) %}{% for m in messages %}{% set content = m.content %}" +
		"{% if 'x' in content or messages[loop.index0].role != 'user' %}?{% endif %}" +
		"{% set ns.last = loop.index0 %}{{ '<' + m.role + content + ('-' * 0) }}{% endfor %}"
	if got, err := chatOf(source).Chat(Talk(messages...)); err != nil || len(got) != want {
		t.Errorf("%d bytes, %v, want %d bytes", len(got), err, want)
	}
}

// TestChatErrors: an error names the template's line.
func TestChatErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ raise_exception('no ' + messages[0].role) }}": "tokenize: chat template: line 2: no user",
		"a\n\n{% if": "tokenize: chat template: line 3: ",
	} {
		if got, err := chatOf(source).Chat(Talk(Message{Role: "user"})); err == nil || !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
}
