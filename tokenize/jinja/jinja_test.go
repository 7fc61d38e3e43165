package jinja

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestGolden renders the templates and compares with transformers' results, which
// testdata/golden.py wrote.
func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	vars, err := FromJSON(lines.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; lines.Scan(); n++ {
		var r struct {
			Template    string
			Text, Error *string
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		got, err := render(r.Template, vars.(*Dict))
		switch {
		case r.Error != nil && err == nil:
			t.Errorf("%s\n got %q\nwant the error %s", r.Template, got, *r.Error)
		case r.Error != nil:
			t.Logf("%s\n here %v\nthere %s", r.Template, err, *r.Error)
		case err != nil || got != *r.Text:
			t.Errorf("%s\n got %q, %v\nwant %q", r.Template, got, err, *r.Text)
		}
	}
	if lines.Err() != nil || n < 100 {
		t.Fatalf("%d templates, %v", n, lines.Err())
	}
}

func render(source string, vars *Dict) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(vars)
}

// TestErrors wants errors that say what is wrong and where.
func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"\n{{ raise_exception('roles must alternate') }}":                   "line 2: roles must alternate",
		"{% if 1 %}{{ 'a' + raise_exception('no ' + 'tools') }}{% endif %}": "line 1: no tools",
		"{% if true %}\n{{\n1 % 0 }}{% endif %}":                            "line 3: division by zero",
		"\n\n{% include '/etc/passwd' %}":                                   "line 3: include",
		"{% import '/etc/passwd' as p %}":                                   "import",
		"{% from '/etc/passwd' import p %}":                                 "from",
		"{% extends '/etc/passwd' %}":                                       "extends",
		"a\n{{ 'x' | wordwrap }}":                                           "line 2: the filter 'wordwrap' is not supported",
		"{{ 'x'.swapcase() }}":                                              "line 1: the method 'swapcase' of str is not supported",
		"{{ 'a' | urlize }}":                                                "line 1: the filter 'urlize' is not supported",
		"{{ {'b': 1} | dictsort(by='value') }}":                             "dictsort by 'value' is not supported",
		"{{ {'b': 1} | tojson(sort_keys=true) }}":                           "tojson with sort_keys is not supported",
		"{{ [{}] | sort(attribute='a,b') }}":                                "sort by several attributes is not supported",
		"{{ '7' | int(base=8) }}":                                           "int of base 8 is not supported",
		"\n{{ 2 ** 3 }}":                                                    "line 2: the operator ** is not supported",
		"{{ 1 is sameas 1 }}":                                               "sameas is supported with none, true and false",
		"{{ [1] < [2] }}":                                                   "the order of a list is not supported",
		"{{ {(1, 2): 3} }}":                                                 "a tuple as a key is not supported",
		"{{ range(2) == range(2) }}":                                        "comparing a range is not supported",
		"{{ dict([(1, 2)]) }}":                                              "a dict or a namespace that is made of another value is not supported",
		"{{ dict(**{'a': 1}) }}":                                            "arguments out of a dict are not supported",
		"{{ [1].1.5x }}":                                                    "goes on with 'x'",
		"{{ namespace(a=1) }}":                                              "a Namespace cannot be written",
		"{{ 0x1F }}":                                                        "a number that goes on with 'x' is not supported",
		"{{ cycler(1) }}":                                                   "line 1: the function 'cycler' is not supported",
		"{{ x\n.y.z() }}":                                                   "line 2: 'x' is undefined",
		"{% macro f() %}\n{{ f(1) }}{% endmacro %}{{ f() }}":                "line 2: macro 'f' takes not more than 0",
		"{% autoescape true %}{% endautoescape %}":                          "autoescape is not supported",
		"a\n{% call f() %}{% endcall %}":                                    "line 2: call is not supported",
		"{% print 1 %}":                                                     "print is not supported",
		"{% block b %}{% endblock %}":                                       "block is not supported",
		"{% for i in [1]\nif i recursive %}{% endfor %}":                    "line 1: a recursive loop is not supported",
		"{% macro f() %}\n{{ kwargs }}{% endmacro %}":                       "line 2: kwargs in a macro is not supported",
		"{% macro f() %}{% if caller %}{% endif %}{% endmacro %}":           "caller in a macro is not supported",
		"{{ '\\N{BULLET}' }}":                                               "\\N",
		"{{ '{:>5}'.format(1) }}":                                           "line 1: the format has a single",
		"{{ 'a'.endswith() }}":                                              "line 1: endswith is missing the argument",
		"{{ 'a'.rstrip(1, 2) }}":                                            "line 1: rstrip takes at most 1",
		"{{ 'a'.splitlines(true) }}":                                        "keepends is not supported",
		"a\n{# b":                                                           "line 2: a comment",
		"\n{%- raw -%}{{ x }}{% endraw %}":                                  "line 2: raw is not supported",
		"{{ 'a":                                                             "a string has no end",
		"{{ 7.你 }}":                                                         "",
		strings.Repeat("{{ 1 }}", 10000):                                    "longer than",
		"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000): "brackets open",
		"{{ " + strings.Repeat("[", 60000):                                  "brackets open",
		"{{ " + strings.Repeat("-", 60000) + "x }}":                         "nested deeper",
		"{% if " + strings.Repeat("not ", 16000) + "%}":                     "nested deeper",
		strings.Repeat("{% if 1 %}", 6500):                                  "nested deeper",
		"{{ 1" + strings.Repeat(" if 1 else 1", 5000) + " }}":               "nested deeper",
		"{{ '" + strings.Repeat("9", 5000) + "' | int * 2 }}":               "",
		"{{ 9" + strings.Repeat("9", 5000) + " }}":                          "not a number",
	} {
		got, err := render(source, NewDict())
		var place *fault
		switch {
		case err == nil && want != "":
			t.Errorf("%.60s: rendered %.60q, want an error with %q", source, got, want)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%.60s: error %.200q, want %q in it", source, err, want)
		case err != nil && (!errors.As(err, &place) || place.Line < 1):
			t.Errorf("%.60s: the error %.200q has no place", source, err)
		}
	}
}

// TestLimits wants an error from templates that would fill the memory, run for years
// or overflow the stack. An error that comes late would end the test itself.
func TestLimits(t *testing.T) {
	loop := "{% for i in range(100000) %}"
	const work = "too much work"
	for source, want := range map[string]string{
		"a\n{% set ns = namespace() %}\n{% set ns.a = ns %}{{ ns.a }}":                                                                              "line 3: a Namespace cannot be written",
		"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ [ns] == [ns.a] }}":                                                                       "",
		"{% set ns = namespace(a=[]) %}" + loop + "{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}":                                                   "nested deeper",
		"{% set ns = namespace(a=[]) %}" + loop + "{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a | tojson }}":                                          "nested deeper",
		"{% set ns = namespace(a=[], b=[]) %}{% for i in range(500) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}": "nested deeper",
		"\n{{ ('1' * 100000) * 100000 }}":                                                      "line 2: the template does " + work[:8],
		"{{ '' * 100000000000 }}":                                                              "",
		"{{ 'x' | center(100000000000) }}":                                                     "not supported",
		"{{ 'x'.zfill(100000000000) }}":                                                        "not supported",
		"{{ 'x\\t'.expandtabs(100000000000) }}":                                                "not supported",
		"{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}":                                     work,
		"{% set x = 'a' * 1000000 %}{{ x.replace('a', 'b' * 1000, -1) }}":                      work,
		"{{ ('a' * 100000) | replace('', 'b' * 1000) }}":                                       work,
		"{{ ('a' * 1000000) | join('b' * 1000) }}":                                             work,
		"{{ range(100000) | join('b' * 100000) }}":                                             work,
		"{{ [1] | slice(100000000000) | list }}":                                               "not supported",
		"{{ [1] | batch(100000000000, 0) | list }}":                                            work,
		"{{ 'a\\nb' | indent(100000000000) }}":                                                 work,
		"{{ 'a\\nb' | indent(width=100000000000) }}":                                           work,
		"{{ [1] | tojson(indent=100000000000) }}":                                              work,
		"{% set ns = namespace(x=9) %}" + loop + "{% set ns.x = ns.x * ns.x %}{% endfor %}":    "digits",
		"{{ lipsum(1000000) }}":                                                                "lipsum",
		"{% for i in range(1000000000000) %}{% endfor %}":                                      "100000",
		"{% for i in range(0, 1, 0) %}{% endfor %}":                                            "zero",
		loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}":                            work,
		"{% set r = range(100000) %}{% for i in r %}{% for j in r %}x{% endfor %}{% endfor %}": work,
		loop + strings.Repeat("text ", 10000) + "{% endfor %}":                                 work,
		"{% set x %}" + loop + strings.Repeat("text ", 10000) + "{% endfor %}{% endset %}":     work,
		"{% set x = 'x' %}" + strings.Repeat("{% set x = x ~ x %}", 60):                        work,
		"{% set x = 'x' %}" + strings.Repeat("{% set x = x + x %}", 60):                        work,
		"{% set x = [1] %}" + strings.Repeat("{% set x = [x, x] %}", 60) + "{{ x }}":           work,
		"{% set x = [1] %}" + strings.Repeat("{% set x = [x, x] %}", 60) + "{{ x | tojson }}":  work,
		"{% set x = [1] %}" + strings.Repeat("{% set x = [x, x] %}", 60) + "{{ x == x[:] }}":   work,
		"{{ '\"'" + strings.Repeat(" | tojson", 60) + " }}":                                    work,
		"{{ ('a'" + strings.Repeat(".replace('a', 'aa', -1)", 60) + ") }}":                     work,
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                                      "deeper than 150",
		"{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{% macro g(n) %}{% if n %}{{ g(n - 1) }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(100) }}": work,
		"{% set ns = namespace() %}{% macro f() %}{{ ns.f() }}{% endmacro %}{% set ns.f = f %}{{ f() }}":                                             "deeper than 150",
		"{% set x = range(100000) | map('string') %}" + strings.Repeat("{% set x = x | map('upper') %}", 1000) + "{{ x | list }}":                    work,
		"{% set x = ('ab' * 50000) | list %}{% for i in x %}{% if x | sort %}{% endif %}{% endfor %}":                                                work,
		"{% set x = 'a' * 1000000 %}" + loop + "{% if 'b' in x %}{% endif %}{% endfor %}":                                                            work,
		"{% set x = 'é' * 1000000 %}" + loop + "{{ x[999999] }}{% endfor %}":                                                                         work,
		"{{ {'a': 1, 'b': 2}.update({}) }}": "unsafe",
		"{{ ''.__class__.__mro__ }}":        "unsafe",
		"{{ [].append(1) }}":                "unsafe",
	} {
		got, err := render(source, NewDict())
		if want == "" {
			continue // Any result is allowed, but the rendering must end.
		}
		if err == nil {
			t.Errorf("%.90s: rendered %d bytes, want an error with %q", source, len(got), want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%.90s: error %.200q, want %q in it", source, err, want)
		}
	}
}
