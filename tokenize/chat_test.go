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
		"\n{{ raise_exception('roles must alternate') }}":                   "template: line 2: invalid call to function 'raise_exception': roles must alternate",
		"{% if 1 %}{{ 'a' + raise_exception('no ' + 'tools') }}{% endif %}": "line 1: invalid call to function 'raise_exception': no tools",
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

// TestJinjaLimits wants an error from templates that would fill the memory, run for
// years or overflow the stack. An error that comes late would end the test itself.
func TestJinjaLimits(t *testing.T) {
	loop := "{% for i in range(100000) %}"
	for source, want := range map[string]string{
		"a\n{% set ns = namespace() %}\n{% set ns.a = ns %}{{ ns }}":                                                      "line 3: a namespace cannot be part",
		"{% set a = namespace() %}{% set b = namespace(x=a) %}":                                                           "namespace",
		"{% set ns = namespace() %}{% set ns['a'] = [ns] %}{{ ns | tojson }}":                                             "namespace",
		"{% set ns = namespace() %}{% set ns.a = dict(b=ns) %}":                                                           "namespace",
		"{% set d = {'a': 1} %}{% set d.Pairs = [] %}":                                                                    "namespace only",
		"{% set m = messages[0] %}{% set m.x = messages %}{{ m }}":                                                        "namespace only",
		"\n{{ ('1' * 100000) * 100000 }}":                                                                                 "line 2: the template does too much",
		"{{ 'x' | center(100000000000) }}":                                                                                "filter center: the template does too much",
		"{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}":                                                                "filter replace",
		"{% set x = 'a' * 1000000 %}{{ x.replace('a', 'b' * 1000, -1) }}":                                                 "method replace",
		"{{ ('a' * 100000) | replace('', 'b' * 1000) }}":                                                                  "filter replace",
		"{{ ('a' * 1000000) | join('b' * 1000) }}":                                                                        "filter join",
		"{{ ('b' * 1000000).join(range(1000)) }}":                                                                         "",
		"{{ range(100000) | join('b' * 100000) }}":                                                                        "filter join",
		"{{ [1] | slice(100000000000) | list }}":                                                                          "filter slice",
		"{{ [1] | batch(100000000000, 0) | list }}":                                                                       "filter batch",
		"{{ 'a\\nb' | indent(100000000000) }}":                                                                            "filter indent",
		"{{ 'a\\nb' | indent(width=100000000000) }}":                                                                      "filter indent",
		"{{ '%100000000d' | format(1) }}":                                                                                 "width",
		"{{ '{:>1000000000}'.format(1) }}":                                                                                "width",
		"{{ lipsum(1000000) }}":                                                                                           "lipsum",
		loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}":                                                       "too much",
		"{% set r = range(100000) %}{% for i in r %}{% for j in r %}x{% endfor %}{% endfor %}":                            "too much",
		loop + strings.Repeat("text ", 10000) + "{% endfor %}":                                                            "too much",
		"{% set x %}" + loop + strings.Repeat("text ", 10000) + "{% endfor %}{% endset %}":                                "too much",
		"{% set x = 'x' %}" + strings.Repeat("{% set x = x ~ x %}", 60):                                                   "too much",
		"{% set x = 'x' %}" + strings.Repeat("{% set x = x + x %}", 60):                                                   "too much",
		"{% set x = [1] %}" + strings.Repeat("{% set x = [x, x] %}", 60) + "{{ x }}":                                      "too much",
		"{% set x = [1] %}" + strings.Repeat("{% do x.append(x) %}", 60) + "{{ x }}":                                      "too much",
		"{% set x = 1 %}" + strings.Repeat("{% with x = [x, x] %}", 60) + "{{ x }}" + strings.Repeat("{% endwith %}", 60): "too much",
		"{{ '\"'" + strings.Repeat(" | tojson", 60) + " }}":                                                               "filter tojson",
		"{{ ('a'" + strings.Repeat(".replace('a', 'aa', -1)", 60) + ") }}":                                                "too much",
		"{{ [1].String() }}":             "String",
		"{{ ([1] | attr('String'))() }}": "not a name",
		"{% set f = messages[0].get %}{% set ns = namespace(f=raise_exception) %}": "function",
	} {
		got, err := chatOf(source).Chat([]Message{{"user", "x"}}, false)
		if err == nil {
			t.Errorf("%.90s: rendered %d bytes, want an error with %q", source, len(got), want)
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tokenize: chat template: ") {
			t.Errorf("%.90s: error %.1200q, want %q in it", source, err, want)
		}
	}
}

// TestJinjaLong renders a long conversation within the limits.
func TestJinjaLong(t *testing.T) {
	messages := make([]Message, 1000)
	want := 0
	for i := range messages {
		messages[i] = Message{"user", strings.Repeat("word ", 1000)}
		want += len(messages[i].Content) + 5
	}
	const source = "{% set ns = namespace(last=0) %}{% for m in messages %}{% set content = m.content %}" +
		"{% if 'x' in content or messages[loop.index0].role != 'user' %}?{% endif %}" +
		"{% set ns.last = loop.index0 %}{{ '<' + m.role + content + ('-' * 0) }}{% endfor %}"
	if got, err := chatOf(source).Chat(messages, true); err != nil || len(got) != want {
		t.Errorf("%d bytes, %v, want %d bytes", len(got), err, want)
	}
}
