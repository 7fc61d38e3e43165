package tokenize

import (
	"strings"
	"testing"
	"time"
)

func chatOf(source string) *Tokenizer {
	return &Tokenizer{chat: &chatTemplate{source: source, tokens: map[string]string{"bos_token": "<s>"}}}
}

// What templates use, with what jinja2 3.1.6 makes of it.
func TestJinja(t *testing.T) {
	messages := []Message{{"system", "Be 'brief'."}, {"user", "a</think>\n\nb <é> 中"}}
	for source, want := range map[string]string{
		"{{ bos_token }}|{{ pad_token }}|{% if tools %}t{% endif %}|{{ tools is none }}":                                         "<s>|||True",
		"x\n{% if true %}\n  y\n{% endif %}\nz\n":                                                                                "x\n  y\nz",
		"  {%- for m in messages -%}\n [{{ m.role }}] \n{%- endfor %}":                                                           "[system][user]",
		"{{ messages[-1]['content'].split('</think>')[-1].lstrip('\\n') }}":                                                      "b <é> 中",
		"{{ messages[-2].role }}{{ messages[:1][-1] is defined }}":                                                               "systemTrue",
		"{{ 'abc'.split('x')[-1] }}{{ 'a,b,c'.split(',', 1) | length }}":                                                         "abc2",
		"{{ ' a  b '.split() | join('-') }}":                                                                                     "a-b",
		"[{{ ' \n a '.strip() }}][{{ 'xax'.strip('x') }}][{{ ' a '.rstrip() }}]":                                                 "[a][a][ a]",
		"{{ messages[0].content | tojson }}":                                                                                     `"Be 'brief'."`,
		"{{ {'b': [1, true, none, '<é>'], 'a': {}} | tojson }}":                                                                  `{"a": {}, "b": [1, true, null, "<é>"]}`, // python keeps b first
		"{{ [1, {'a': 2}] | tojson(indent=2) }}":                                                                                 "[\n  1,\n  {\n    \"a\": 2\n  }\n]",
		"{% for i in range(3) %}{{ i }}{% endfor %}{{ range(5, 0, -2) | list | length }}":                                        "0123",
		"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}": "02",
		"{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}":                    "2",
		"{{ messages | map(attribute='role') | join(',') }}":                                                                     "system,user",
		"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}":                                                 "1",
		"{{ (messages | first).role }}{{ loop is defined }}{{ 'x' if not nothing }}":                                             "systemFalsex",
		"{{ messages[0].content is string and messages is not string }}":                                                         "True",
		"{# comment #}{{ messages[1].content | length }}{{ '\\\\boxed' ~ \"\\t\" ~ 1 }}":                                         "18\\boxed\t1",
		"{% if messages[0].role == 'system' and 'tool_calls' not in messages[0] %}y{% endif %}{{ add_generation_prompt }}":       "yTrue",
		"{{ strftime_now('%Y-%m-%d %%') | length }}":                                                                             "",
	} {
		got, err := chatOf(source).Chat(messages, true)
		if strings.Contains(source, "%%") {
			if err == nil {
				t.Errorf("%s: %q, want an error for %%%%", source, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s\n got %q, %v\nwant %q", source, got, err, want)
		}
	}
	if got, err := chatOf("{{ strftime_now('%d %B %Y') }}").Chat(nil, false); err != nil || got != time.Now().Format("02 January 2006") {
		t.Errorf("strftime_now: %q, %v", got, err)
	}
}

func TestJinjaErrors(t *testing.T) {
	for source, want := range map[string]string{
		"{{ raise_exception('roles must alternate') }}": "roles must alternate",
		"{% if %}":                        "",
		"{{ 1 % 0 }}":                     "divide by zero",
		"{% for x in":                     "",
		"a\n{{ x[7.你] }}":                 "line 2 cannot be read", // gonja steps back too far
		"{{ 7.𝟘x }}":                      "",
		"{{ x.y.z() }}":                   "",
		"{% include '/etc/passwd' %}":     "include",
		"{% import '/etc/passwd' as p %}": "import",
		"{% extends '/etc/passwd' %}":     "extends",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                   "macro",
		"{% for x in [1] recursive -%}{{ loop([1]) }}{% endfor %}":          "recursive",
		"{% for i in range(1000000000000) %}{% endfor %}":                   "100000",
		"{% for i in range(0, 1, 0) %}{% endfor %}":                         "step",
		strings.Repeat("{{ 1 }}", 10000):                                    "longer than",
		"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000): "brackets",
		"{{ " + strings.Repeat("-", 65000) + "x }}":                         "",
		"{% if " + strings.Repeat("not ", 16000) + "%}":                     "",
		strings.Repeat("{% if 1 %}", 6500):                                  "",
	} {
		got, err := chatOf(source).Chat([]Message{{"user", "x"}}, false)
		if err == nil {
			t.Errorf("%.60s: rendered %.60q, want an error with %q", source, got, want)
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tokenize: chat template: ") {
			t.Errorf("%.60s: error %.200q, want %q in it", source, err, want)
		}
	}
}
