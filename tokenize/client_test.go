package tokenize

import (
	"encoding/json"
	"testing"
)

// TestFitting: conversations as clients of OpenAI's API hold them reach each template in
// the form that it reads; other conversations stay unchanged.
func TestFitting(t *testing.T) {
	const (
		calls = `{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% for c in m.tool_calls %}%s{% endfor %}{% else %}{{ m.content + '.' }}{% endif %}{% endfor %}`
		asked = `{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": %s}}]}, {"role": "tool", "tool_call_id": "a", "content": "r"}`
	)
	in := func(form, value string) string { // Sprintf would read the % of the template.
		for i := range len(form) - 1 {
			if form[i:i+2] == "%s" {
				return form[:i] + value + form[i+2:]
			}
		}
		return form
	}
	text := in(asked, `"{\"z\": 1, \"a\": \"é\"}"`)
	for name, c := range map[string]struct{ template, messages, want string }{
		"an object for tojson":           {in(calls, `{{ c.function.arguments | tojson }}`), text, `[user]q.[assistant]{"z": 1, "a": "é"}[tool]r.`},
		"an object in a function":        {in(calls, `{{ c.function | tojson }}`), text, `[user]q.[assistant]{"name": "f", "arguments": {"z": 1, "a": "é"}}[tool]r.`},
		"an object whose names are read": {in(calls, `{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}`), text, `[user]q.[assistant]z=1;a=é;[tool]r.`},
		"a text that is joined":          {in(calls, `{{ 'x' + c.function.arguments }}`), text, `[user]q.[assistant]x{"z": 1, "a": "é"}[tool]r.`},
		"a text that is written":         {in(calls, `{{ c.function.arguments }}`), text, `[user]q.[assistant]{"z": 1, "a": "é"}[tool]r.`},
		"either, as Qwen3's does":        {in(calls, `{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}`), in(asked, `"{\"a\":1}"`), `[user]q.[assistant]{"a":1}[tool]r.`},
		"an object that was one":         {in(calls, `{{ c.function.arguments | tojson }}`), in(asked, `{"a": [1]}`), `[user]q.[assistant]{"a": [1]}[tool]r.`},
		"no arguments":                   {in(calls, `{{ c.function.arguments | tojson }}`), in(asked, `""`), `[user]q.[assistant]{}[tool]r.`},
		"an empty object":                {in(calls, `{{ c.function.arguments | tojson }}`), in(asked, `"{}"`), `[user]q.[assistant]{}[tool]r.`},
		"a text that is not JSON":        {in(calls, `{{ c.function.arguments | tojson }}`), in(asked, `"a=1"`), `[user]q.[assistant]"a=1"[tool]r.`},
		"none where it is asked for":     {`{% for m in messages %}{% if m['content'] is none %}!{% elif m['content'] is not none %}{{ m['content'].strip() }}{% endif %}{% endfor %}`, text, `q!r`},
		"absent content":                 {`{% for m in messages %}{{ m.content + ';' }}{% endfor %}`, `{"role": "assistant", "tool_calls": []}`, `;`},
		"an empty list of calls":         {`{{ 'tool_calls' in messages[0] }}`, `{"role": "assistant", "content": "x", "tool_calls": []}`, `False`},
		"ids of nine characters":         {`{% for c in messages[1].tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}{{ c.id == messages[2].tool_call_id }}{% endfor %}`, text, `True`},
		"ids where there are none":       {`{% for c in messages[0].tool_calls %}{% if c.id|length != 9 %}{{ raise_exception('ids') }}{% endif %}{{ c.id }}{{ messages[1].tool_call_id }}{% endfor %}`, `{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "r"}`, `call00001call00001`},
		"developer as system":            {`{% for m in messages %}{% if m.role == 'system' %}S{% elif m.role == 'user' %}U{% endif %}{% endfor %}`, `{"role": "developer", "content": "x"}, {"role": "user", "content": "x"}`, `SU`},
		"developer where it is known":    {`{{ messages[0].role in ['developer', 'system'] }}{{ messages[0].role }}`, `{"role": "developer", "content": "x"}`, `Truedeveloper`},
	} {
		var chat Conversation
		if err := json.Unmarshal([]byte(`{"messages": [`+c.messages+`]}`), &chat); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := chatOf(c.template).Chat(chat); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v\nwant %q", name, got, err, c.want)
		}
	}
}

// TestApart: an answer with several calls becomes several answers where the template takes
// one call in each, and stays one elsewhere.
func TestApart(t *testing.T) {
	const (
		one   = `{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}{{ raise_exception('one call at once') }}{% endif %}{{ m.tool_calls[0].function.arguments|tojson }}{% else %}{{ m.content + '.' }}{% endif %}{% endfor %}`
		first = `{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% for k, v in m.tool_calls[0].function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% else %}{{ m.content + '.' }}{% endif %}{% endfor %}`
		all   = `{% for m in messages %}[{{ m.role }}]{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}{{ m.content + '.' }}{% endfor %}`
		none  = `{% for m in messages %}{% if m.tool_calls %}{{ raise_exception('no calls') }}{% endif %}{% endfor %}`
		q     = `{"role": "user", "content": "q"}, `
		two   = q + `{"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}, {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 2}"}}]}`
		back  = two + `, {"role": "tool", "tool_call_id": "b", "content": "rb"}, {"role": "tool", "tool_call_id": "a", "content": "ra"}, {"role": "user", "content": "u"}`
		plain = two + `, {"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"}`
	)
	for _, tt := range []struct{ template, messages, want string }{
		{one, two, `[user]q.[assistant]{"x": 1}[assistant]{"x": 2}`},
		{one, back, `[user]q.[assistant]{"x": 1}[tool]ra.[assistant]{"x": 2}[tool]rb.[user]u.`},
		{one, plain, `[user]q.[assistant]{"x": 1}[tool]r1.[assistant]{"x": 2}[tool]r2.`},
		{first, back, `[user]q.[assistant]x=1[tool]ra.[assistant]x=2[tool]rb.[user]u.`},
		{all, back, `[user]q.[assistant]{"x": 1}{"x": 2}.[tool]rb.[tool]ra.[user]u.`},
		{none, back, ""},
	} {
		var chat Conversation
		if err := json.Unmarshal([]byte(`{"messages": [`+tt.messages+`]}`), &chat); err != nil {
			t.Fatal(err)
		}
		got, err := chatOf(tt.template).Chat(chat)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: got %q, %v\nwant %q", tt.template, got, err, tt.want)
		}
	}
}
