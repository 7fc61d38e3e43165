package tokenize

import (
	"encoding/json"
	"strings"
	"testing"
)

// conversationOf reads messages as JSON.
func conversationOf(t *testing.T, messages string) (c Conversation) {
	t.Helper()
	if err := json.Unmarshal([]byte(`{"messages": `+messages+`}`), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A turn whose message says so is not learned, whether the template marks turns or not.
func TestUnlearnedTurns(t *testing.T) {
	const plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
	const marked = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
	for _, c := range []struct{ first, second, want string }{
		{``, ``, "one two"}, {`, "weight": 0`, ``, "two"}, {`, "weight": 1`, `, "weight": 0`, "one"}, {`, "loss": false`, ``, "two"},
		{`, "train": false`, ``, "two"}, {`, "trainable": "False"`, ``, "two"}, {`, "loss_weight": 0.0`, `, "loss_weight": 1.0`, "two"},
		{`, "weight": null`, ``, "one two"}, {`, "weight": 0.5`, ``, "error: message 2: its weight is 0.5"}, {`, "loss": false`, `, "loss": 0`, "error: no turn of the assistant"},
	} {
		chat := conversationOf(t, `[{"role": "user", "content": "q", "weight": 0}, {"role": "assistant", "content": "one"`+c.first+`}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "two"`+c.second+`}]`)
		for _, template := range []string{plain, marked} {
			d, err := chatOf(template).Dialogue(chat, 0)
			var learned []string
			for _, s := range d.Turns {
				learned = append(learned, strings.TrimRight(d.Text[s.Start:s.End], ";"))
			}
			got := strings.Join(learned, " ")
			if want, fails := strings.CutPrefix(c.want, "error: "); fails != (err != nil) || fails && !strings.Contains(err.Error(), want) || !fails && got != want {
				t.Errorf("%s and %s in %s: %q, %v", c.first, c.second, template, got, err)
			}
		}
	}
}

// Texts in parts are one text for a template that takes no parts.
func TestTextParts(t *testing.T) {
	chat := conversationOf(t, `[{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]}]`)
	for template, want := range map[string]string{
		"{{ messages[0].content }}": "ab",
		"{% if messages[0].content.startswith('a') %}{{ messages[0].content + '!' }}{% endif %}":                                   "ab!",
		"{{ messages[0].content | tojson }}":                                                                                       `"ab"`,
		"{% if messages[0].content is string %}s{% else %}{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}{% endif %}": "<a><b>",
		"{% set c = messages[0].content %}{{ c if c is string else c | map(attribute='text') | join('+') }}":                       "a+b",
	} {
		if got, err := chatOf(template).Chat(chat); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", template, got, err, want)
		}
	}
}

// What a template does not write is named once.
func TestUntold(t *testing.T) {
	tok := chatOf("{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }}{% endif %}{{ m.mood }}{% endfor %}")
	for _, c := range []struct{ messages, want string }{
		{`[{"role": "user", "content": "q", "name": "n", "mood": 1}, {"role": "assistant", "content": ""}]`, ""},
		{`[{"role": "user", "content": "q"}, {"role": "critic", "content": "no"}]`, `messages of the role "critic"`},
		{`[{"role": "critic", "content": "no"}, {"role": "user", "content": [{"type": "text", "text": "q"}]}]`, ""},
		{`[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "mask": 1, "weight": 1}, {"role": "tool", "content": "7"}]`, `the field "mask" of messages and messages of the role "tool"`},
		{`[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "thinking": "t", "mask": 1}]`, `the field "reasoning_content" of messages`},
		{`[{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [], "annotations": []}]`, ""},
		{`[{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]`, `the field "tool_calls" of messages`},
	} {
		want := c.want
		if want != "" {
			want = "the chat template does not write " + want + ": the model does not see them"
		}
		if got := conversationOf(t, c.messages).NewlyUntold(tok); got != want {
			t.Errorf("%s: %q, want %q", c.messages, got, want)
		}
	}
}
