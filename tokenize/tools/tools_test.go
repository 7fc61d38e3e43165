package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/internal/grammar"
	"onering/tokenize"
)

// These templates write tools and calls as the families do.
var templates = map[string]string{
	"hermes": `{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}`,
	"xml": `{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
<function={{ c.function.name }}>
{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>
{{ v }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]<think>
{% endif %}`,
	"llama": `{% for m in messages %}<{{ m.role }}>{% if loop.first and tools is not none %}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{% endif %}{% if 'tool_calls' in m %}{% set c = m.tool_calls[0].function %}{{ '{"name": "' + c.name + '", ' }}{{ '"parameters": ' }}{{ c.arguments | tojson }}{{ '}' }}{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`,
	// SmolLM3's template writes no calls of a history and reads another name.
	"smollm3": `{% if xml_tools %}{% for t in xml_tools %}{{ t | string }}{% endfor %}Answer with <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`,
	"mistral":   `{% if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('ids of 9') }}{% endif %}{{ (c.function | tojson)[:-1] + ', "id": "' + c.id + '"}' }}{% if not loop.last %}, {% endif %}{% endfor %}]</s>{% elif m.role == 'tool' %}[TOOL_RESULTS] {"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]{% else %} {{ m.content }}</s>{% endif %}{% endfor %}`,
	"ministral": `{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% else %}{{ m.content }}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>{% endif %}{% endfor %}`,
	"lfm2": `{% if tools %}List of tools: [{% for t in tools %}{{ t | tojson }}{% endfor %}]{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if m.tool_calls %}<|tool_call_start|>[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}='{{ v }}'{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]<|tool_call_end|>{% endif %}<|im_end|>
{% endfor %}`,
	"lfm2 of before": `{% if tools %}List of tools: <|tool_list_start|>[{% for t in tools %}{{ t | tojson }}{% endfor %}]<|tool_list_end|>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}`,
	"gemma": `{% for t in tools or [] %}<start_function_declaration>declaration:{{ t.function.name }}{}<end_function_declaration>{% endfor %}{% for m in messages %}<start_of_turn>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<start_function_call>call:{{ c.function.name }}{{ '{' }}{% for k, v in c.function.arguments.items() %}{{ k }}:<escape>{{ v }}<escape>{% endfor %}{{ '}' }}<end_function_call>{% endfor %}{% endfor %}`,
	"pythonic": `{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<start_of_turn>{{ m.role }}
{{ m.content }}{% if m.tool_calls %}[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }}{% endfor %}){% endfor %}]{% endif %}{% endfor %}`,
	"glm":   `{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}<arg_key>x</arg_key></tool_call>{% endfor %}{% endfor %}`,
	"plain": `{% for m in messages %}{{ m.content }}{% endfor %}{# tools #}`,
}

const described = `[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
	"n": {"type": "integer"}, "x": {"type": "number"}, "s": {"type": "string"}, "b": {"type": "boolean"}, "o": {"type": "object"},
	"l": {"type": ["array", "null"]}, "m": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "r": {"$ref": "#/$defs/R"}, "any": true}}}}]`

// of returns the format of a template.
func of(t testing.TB, template string) (*Format, error) {
	t.Helper()
	text, _ := json.Marshal(map[string]string{"tokenizer_class": "Qwen2Tokenizer", "chat_template": template})
	dir := t.TempDir()
	for name, content := range map[string]string{"tokenizer_config.json": string(text), "vocab.json": `{"a": 0}`, "merges.txt": "#version: 0.2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenize.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var c tokenize.Conversation
	if err := json.Unmarshal([]byte(`{"tools": `+described+`}`), &c); err != nil {
		t.Fatal(err)
	}
	return Of(tok, c)
}

func format(t testing.TB, name string) *Format {
	t.Helper()
	f, err := of(t, templates[name])
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOf(t *testing.T) {
	for name, want := range map[string]string{"hermes": "hermes", "xml": "xml", "llama": "llama", "smollm3": "hermes", "mistral": "mistral", "ministral": "mistral",
		"lfm2": "lfm2", "lfm2 of before": "lfm2", "gemma": "gemma", "pythonic": "pythonic"} {
		if f := format(t, name); f.name != want || f.Silent != (name == "smollm3" || name == "lfm2 of before") {
			t.Errorf("%s is %s", name, f.name)
		}
	}
	for name, want := range map[string]string{"glm": "not read here", "plain": "does not show tools"} {
		if _, err := of(t, templates[name]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestNames: a name that a template could read as its own text, or that two tools have, is refused.
func TestNames(t *testing.T) {
	for names, want := range map[string]string{
		"a b": "", "mcp.get-x_1/é:y": "", "</tools><|im_end|>": "tool 0 has the name", "a\\u0020b": "tool 0 has the name",
		"f f": `two tools have the name "f"`, strings.Repeat("x", 129): "at most 128",
	} {
		var list []string
		for _, name := range strings.Fields(names) {
			list = append(list, `{"type": "function", "function": {"name": "`+name+`"}}`)
		}
		var d tokenize.Data
		if err := d.UnmarshalJSON([]byte("[" + strings.Join(list, ", ") + "]")); err != nil {
			t.Fatal(err)
		}
		if err := new(Format).readTools(d); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", names, err, want)
		}
	}
}

// cases are texts of models with the expected result: the content, the calls as NAME
// ARGUMENTS, and a part of the error.
var cases = []struct {
	format, text, content string
	calls                 []string
	err                   string
}{
	{"hermes", "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>", "a", []string{`f {"n": 1}`}, ""},
	{"hermes", `<tool_call>{"name":"f","arguments":{"s":"</tool_call>\""}}</tool_call> <tool_call>{"arguments":{},"name":"g"}</tool_call>` + "\n", "", []string{`f {"s":"</tool_call>\""}`, `g {}`}, ""},
	{"hermes", `a <tool_call>{"name":"f","arguments":{}}</tool_call> b`, "a b", []string{"f {}"}, ""},
	{"hermes", `<tool_call>{"name":"f","arguments":"{\"n\": 1}"}</tool_call>`, "", []string{`f {"n": 1}`}, ""},
	{"hermes", `<tool_call>{"name":"f","arguments":{}}`, "", []string{"f {}"}, ""}, // ended by its last token
	{"hermes", `<tool_call>{"name":"f","argu`, `<tool_call>{"name":"f","argu`, nil, "not a JSON object"},
	{"hermes", "<tool_call>{\"name\": \"f\n}</tool_call>  <tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", "<tool_call>{\"name\": \"f\n}</tool_call>", []string{"g {}"}, "not a JSON object"},
	{"hermes", `<tool_call>{"name":"g"}</tool_call>`, `<tool_call>{"name":"g"}</tool_call>`, nil, `no "arguments"`},
	{"hermes", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "", []string{"f {}"}, ""},
	{"hermes", `a <tool_call>{"name":"f","arguments":null}</tool_call><tool_call>{"name":"f","arguments":""}</tool_call><tool_call>{"arguments":"null","name":"f"}</tool_call>`, "a", []string{"f {}", "f {}", "f {}"}, ""},
	{"hermes", `<tool_call>{"name":"f","arguments":null,"parameters":{"n":1}}</tool_call>`, "", []string{`f {"n":1}`}, ""},
	{"hermes", `<tool_call>{"arguments":{}}</tool_call>`, `<tool_call>{"arguments":{}}</tool_call>`, nil, `no "name"`},
	{"hermes", `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, nil, "not a JSON object"},
	{"hermes", "\n a < b <tool \n", "\n a < b <tool \n", nil, ""},
	{"hermes", `{"name":"f","arguments":{}}`, `{"name":"f","arguments":{}}`, nil, ""},
	{"hermes", `<tool_call>{"name":"f","arguments":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5001) + `</tool_call>`, `<tool_call>{"name":"f","arguments":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5001) + `</tool_call>`, nil, "deeper"},
	{"mistral", `[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}, "id": "abcdefghi"}, {"name": "g", "arguments": "{}"}]`, "", []string{`f {"n": 1}`, "g {}"}, ""},
	{"mistral", `I call.[TOOL_CALLS][{"arguments": {"s": "]"}, "name": "f"}] `, "I call.", []string{`f {"s": "]"}`}, ""},
	{"mistral", `[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}`, `[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}`, nil, "not a list of JSON objects"},
	{"mistral", `a [1, 2]`, `a [1, 2]`, nil, ""},
	{"ministral", `[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{"s": "[TOOL_CALLS]{"}`, "", []string{`f {"n": 1}`, `g {"s": "[TOOL_CALLS]{"}`}, ""},
	{"ministral", `so[TOOL_CALLS]f{"n": 1}`, "so", []string{`f {"n": 1}`}, ""},
	{"ministral", `[TOOL_CALLS]f[ARGS]{"n": 1} and more`, `[TOOL_CALLS]f[ARGS]{"n": 1} and more`, nil, "text stands behind"},
	{"ministral", `[TOOL_CALLS]f[ARGS]`, `[TOOL_CALLS]f[ARGS]`, nil, "not a JSON object"},
	{"lfm2", `<|tool_call_start|>[f(s='it\'s, "so"', n=3, b=True, o={"a": [1, null]}, l=(1, 2)), g()]<|tool_call_end|>Now.`, "Now.", []string{`f {"s": "it's, \"so\"", "n": 3, "b": true, "o": {"a": [1, null]}, "l": [1, 2]}`, "g {}"}, ""},
	{"lfm2", `Let me see. <|tool_call_start|>[f(s="]<x>)")]<|tool_call_end|>`, "Let me see.", []string{`f {"s": "]<x>)"}`}, ""},
	{"lfm2", `<|tool_call_start|>[{"name": "f", "arguments": {"n": 1}}]<|tool_call_end|>`, "", []string{`f {"n": 1}`}, ""},
	{"lfm2", `<|tool_call_start|>f(n=1)<|tool_call_end|>`, "", []string{`f {"n": 1}`}, ""},
	{"lfm2", `<|tool_call_start|>[f(n)]<|tool_call_end|>`, `<|tool_call_start|>[f(n)]<|tool_call_end|>`, nil, "not KEY=VALUE"},
	{"lfm2", `<|tool_call_start|>[f(s='a]<|tool_call_end|>`, `<|tool_call_start|>[f(s='a]<|tool_call_end|>`, nil, "not a list [NAME"},
	{"gemma", `<start_function_call>call:f{s:<escape>a, {b}: "c"<escape>,n:3,b:true,o:{k:<escape>v<escape>,l:[1,<escape>x<escape>]}}<end_function_call>`, "", []string{`f {"s": "a, {b}: \"c\"", "n": 3, "b": true, "o": {"k": "v", "l": [1, "x"]}}`}, ""},
	{"gemma", "Yes.\n<start_function_call>call:f{n:<escape>3<escape>,s:<escape>3<escape>}<end_function_call><start_function_call>call:g{}<end_function_call>", "Yes.", []string{`f {"n": 3, "s": "3"}`, "g {}"}, ""},
	{"gemma", `<start_function_call>call:f{s:<escape>a}<end_function_call>`, `<start_function_call>call:f{s:<escape>a}<end_function_call>`, nil, "a text without"},
	{"gemma", `<start_function_call>f(1)<end_function_call>`, `<start_function_call>f(1)<end_function_call>`, nil, "not call:NAME"},
	{"pythonic", `[f(s="a", n=1)]`, "", []string{`f {"s": "a", "n": 1}`}, ""},
	{"pythonic", `[1, 2]`, `[1, 2]`, nil, ""},
	{"pythonic", `[h(x)] is a list`, `[h(x)] is a list`, nil, ""},
	{"xml", "I call.\n\n<tool_call>\n<function=f>\n<parameter=n>\n 3 \n</parameter>\n<parameter=s>\n\n 3\n</parameter>\n<parameter=x>\n1e3\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>", "I call.", []string{`f {"n": 3, "s": "\n 3", "x": 1e3, "b": true}`}, ""},
	{"xml", "<tool_call><function=f><parameter=o>{\"a\": [1]}</parameter><parameter=l>None</parameter><parameter=m>null</parameter><parameter=r>{\"a\": 1}</parameter><parameter=any>{1</parameter><parameter=zz>7</parameter></function></tool_call>", "", []string{`f {"o": {"a": [1]}, "l": null, "m": null, "r": {"a": 1}, "any": "{1", "zz": "7"}`}, ""},
	{"xml", "<tool_call>\n<function=g>\n</function>\n</tool_call><tool_call><function=f><parameter=s><a> & </function>\"</parameter><parameter=n>many</parameter></function></tool_call>", "", []string{`g {}`, `f {"s": "<a> & </function>\"", "n": "many"}`}, ""},
	{"xml", "<function=f>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>", "", []string{`f {"n": 3}`}, ""},
	{"xml", "I call.\n<function=f>\n</function>\n", "I call.", []string{"f {}"}, ""},
	{"xml", "<function=f>\n</function>\n</tool_call>\n<function=f>\n<parameter=s>\n</function></tool_call>\n</parameter>\n</function> so <tool_call>\n<function=g>\n</function>\n</tool_call>", " so", []string{"f {}", `f {"s": "</function></tool_call>"}`, "g {}"}, ""},
	{"xml", "<function=g>\n</function>\n</tool_call>", "<function=g>\n</function>\n</tool_call>", nil, ""},
	{"xml", "a <function=f>\n<parameter=n>\n3", "a <function=f>\n<parameter=n>\n3", nil, "<function=NAME>"},
	{"xml", "a <function=f", "a <function=f", nil, ""},
	{"xml", "<tool_call><function=f><parameter=l>\n['a', 'it\\'s', True, None, 1.5]\n</parameter><parameter=o>{'a': [1, (2, 3)], \"b\": {'c': False}}</parameter><parameter=s>['a']</parameter><parameter=any>['a']</parameter></function></tool_call>", "", []string{`f {"l": ["a", "it's", true, null, 1.5], "o": {"a": [1, [2, 3]], "b": {"c": false}}, "s": "['a']", "any": "['a']"}`}, ""},
	{"xml", "<tool_call><function=f><parameter=l>['a', b]</parameter><parameter=o>['a']</parameter></function></tool_call>", "", []string{`f {"l": "['a', b]", "o": "['a']"}`}, ""},
	{"xml", "<tool_call><function=f><parameter=s>1</function></tool_call>", "<tool_call><function=f><parameter=s>1</function></tool_call>", nil, "something else"},
	{"xml", "<tool_call><function=f><parameter=s>1</parameter></tool_call>", "<tool_call><function=f><parameter=s>1</parameter></tool_call>", nil, "<function=NAME>"},
	{"llama", ` {"name": "f", "parameters": {"n": 1}}`, "", []string{`f {"n": 1}`}, ""},
	{"llama", `{"type": "function", "name": "f", "parameters": {}}; {"name": "g", "parameters": {"s": "}"}}`, "", []string{"f {}", `g {"s": "}"}`}, ""},
	{"llama", `<|python_tag|>{"name": "f", "parameters": {}}`, "", []string{"f {}"}, ""},
	{"llama", `<|python_tag|>brave_search.call(query="a, (b)", n=3)`, "", []string{`brave_search {"query": "a, (b)", "n": 3}`}, ""},
	{"llama", `<|python_tag|>print(1)`, `<|python_tag|>print(1)`, nil, "code"},
	{"llama", `{"answer": 4}`, `{"answer": 4}`, nil, ""},
	{"llama", `{"name": "f"}`, "", []string{"f {}"}, ""},
	{"llama", `{"name": "f", "parameters": null}; {"name": "f", "parameters": {"n": 1}}`, "", []string{"f {}", `f {"n": 1}`}, ""},
	{"llama", `{"name": "Ada"}`, `{"name": "Ada"}`, nil, `no "arguments"`},
	{"llama", `{"name": "f", "parameters": {`, `{"name": "f", "parameters": {`, nil, "not a JSON object"},
	{"llama", `I call {"name": "f", "parameters": {}}`, `I call {"name": "f", "parameters": {}}`, nil, ""},
	{"llama", "", "", nil, ""},
}

func list(calls []Call) (out []string) {
	for _, c := range calls {
		out = append(out, c.Name+" "+string(c.Arguments))
	}
	return out
}

// TestParse reads the cases whole and byte by byte.
func TestParse(t *testing.T) {
	for _, tt := range cases {
		f := format(t, tt.format)
		content, calls, err := f.Parse(tt.text)
		if content != tt.content || !slices.Equal(list(calls), tt.calls) || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s %.200q:\n got %.200q %q %v\nwant %.200q %q %s", tt.format, tt.text, content, list(calls), err, tt.content, tt.calls, tt.err)
		}
		for _, c := range calls {
			if !json.Valid(c.Arguments) {
				t.Errorf("%q are not JSON", c.Arguments)
			}
		}
		s := f.Stream()
		said, called := "", []Call(nil)
		for i := range len(tt.text) {
			more, calls := s.Add(tt.text[i : i+1])
			said, called = said+more, append(called, calls...)
		}
		more, rest, failed := s.End()
		if said+more != content || !slices.Equal(list(append(called, rest...)), list(calls)) || fmt.Sprint(failed) != fmt.Sprint(err) {
			t.Errorf("%s %.200q in pieces: %.200q %v %v, whole %.200q %v %v", tt.format, tt.text, said+more, called, failed, content, calls, err)
		}
	}
}

// TestWrite: the text written for a silent template is read back the same.
func TestWrite(t *testing.T) {
	for _, name := range []string{"smollm3", "lfm2 of before"} {
		f := format(t, name)
		calls := []Call{{"f", json.RawMessage(`{"s": "a\nb's", "l": [1, null]}`)}, {"g", nil}}
		content, got, err := f.Parse(f.Write("I call.", calls))
		if calls[1].Arguments = json.RawMessage("{}"); content != "I call." || !slices.Equal(list(got), list(calls)) || err != nil {
			t.Errorf("%s: %q %v %v", name, content, got, err)
		}
	}
}

// TestCalling: the form of calls has those that Parse reads, with arguments of the schema, and no others.
func TestCalling(t *testing.T) {
	bytes := grammar.NewVocabulary(256, func(id int32) ([]byte, bool) { return []byte{byte(id)}, false }, nil)
	for name, tt := range map[string]struct{ good, bad string }{
		"hermes":    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>;;<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": 1}}\n</tool_call>;;<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>"},
		"llama":     {`{"name": "f", "parameters": {"s": "a", "n": 2}}`, `{"name": "f", "parameters": {"n": "2"}}`},
		"smollm3":   {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\":1}}\n</tool_call>", "<tool_call>\n{}\n</tool_call>"},
		"mistral":   {`[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}}]`, `[TOOL_CALLS] [{"name": "f", "arguments": {"n": 1}}`},
		"ministral": {`[TOOL_CALLS]f[ARGS]{"n": 1}`, `[TOOL_CALLS]f[ARGS]`},
		"lfm2":      {`<|tool_call_start|>[f(n=1)]<|tool_call_end|>;;<|tool_call_start|>[g()]<|tool_call_end|>`, `<|tool_call_start|>[f(n=a)]<|tool_call_end|>`},
		"gemma":     {`<start_function_call>call:f{n:1}<end_function_call>`, `<start_function_call>call:h{}<end_function_call>`},
		"xml":       {"<tool_call>\n<function=f>\n<parameter=s>\na \"b\"\n</parameter>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>;;<tool_call>\n<function=g>\n</function>\n</tool_call>", "<tool_call>\n<function=f>\n<parameter=n>\nx\n</parameter>\n</function>\n</tool_call>"},
		"pythonic":  {`[f(s="a", n=1)]`, `[f(n="a")]`},
	} {
		var c tokenize.Conversation
		if err := json.Unmarshal([]byte(`{"tools": [{"function": {"name": "f", "strict": true, "parameters": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}}, {"function": {"name": "g"}}]}`), &c); err != nil {
			t.Fatal(err)
		}
		f := format(t, name)
		if err := f.readTools(c.Tools); err != nil || !f.Strict {
			t.Fatal(err)
		}
		only, free, _, err := f.Calling("", false)
		if err != nil {
			t.Fatal(err)
		}
		for form, prefix := range map[*grammar.Form]string{&only: "", &free: "I call. "} {
			if name == "llama" || name == "pythonic" {
				prefix = ""
			}
			g, err := bytes.Grammar(*form)
			if err != nil {
				t.Fatal(err)
			}
			for i, texts := range []string{tt.good, tt.bad} {
				for _, text := range strings.Split(texts, ";;") {
					m, ends := g.Begin(), false
					err := m.Say(prefix + text)
					if err == nil {
						_, ends, err = m.Next()
					}
					if is := err == nil && ends; is != (i == 0) {
						t.Errorf("%s: %s is a call: %v, %v", name, text, is, err)
					}
					if _, calls, err := f.Parse(text); i == 0 && (err != nil || len(calls) == 0) {
						t.Errorf("%s: %s is not read: %v", name, text, err)
					}
				}
			}
		}
		if _, _, _, err := f.Calling("h", false); err == nil {
			t.Errorf("%s: a tool that is not there is called", name)
		}
	}
}

// TestPieces: the cut of a text into pieces changes nothing, and text outside of calls is kept.
func TestPieces(t *testing.T) {
	formats := []*Format{format(t, "hermes"), format(t, "xml"), format(t, "llama"), format(t, "smollm3"), format(t, "mistral"), format(t, "ministral"), format(t, "lfm2"), format(t, "gemma"), format(t, "pythonic")}
	words := []string{"<tool_call>", "</tool_call>", python, `{"name": "f", `, `"arguments": {}}`, `"parameters": {"s": "`, `"}}`, "<function=f>", "</function>", "<parameter=s>", "</parameter>", " ", "\n", "a", "é", `\`, `"`, "<", ";", `.call(q="a")`,
		"[TOOL_CALLS]", `[{"name": "f", `, "f[ARGS]", "{}", "]", "<|tool_call_start|>", "[f(s=", "'b')]", "<|tool_call_end|>", "<start_function_call>", "call:f{s:", gemmaText, "}", "<end_function_call>"}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(formats).Draw(t, "format")
		pieces := rapid.SliceOfN(rapid.SampledFrom(words), 0, 30).Draw(t, "text")
		text := strings.Join(pieces, "")
		content, calls, err := f.Parse(text)
		s := f.Stream()
		said, called := "", []Call(nil)
		for _, p := range pieces {
			more, calls := s.Add(p)
			said, called = said+more, append(called, calls...)
		}
		more, rest, failed := s.End()
		if said+more != content || !slices.Equal(list(append(called, rest...)), list(calls)) || fmt.Sprint(failed) != fmt.Sprint(err) {
			t.Fatalf("%s %q in pieces: %q %v %v, whole %q %v %v", f.name, text, said+more, called, failed, content, calls, err)
		}
		if len(calls) == 0 && content != text {
			t.Fatalf("%s: without a call %q became %q", f.name, text, content)
		}
	})
}

// TestBudget: beyond a limit, many calls or a call without an end count as content.
func TestBudget(t *testing.T) {
	f := format(t, "hermes")
	one := `<tool_call>{"name":"f","arguments":{}}</tool_call>`
	content, calls, err := f.Parse(strings.Repeat(one, maxCalls+2))
	if len(calls) != maxCalls || content != one+one || err == nil {
		t.Errorf("%d calls, %q, %v", len(calls), content, err)
	}
	if content, calls, err := f.Parse(strings.Repeat("<tool_call></tool_call>", 40_000) + one); len(calls) != 1 || len(content) != 40_000*23 || err == nil {
		t.Errorf("%d calls, %d bytes, %v", len(calls), len(content), err)
	}
	for _, name := range []string{"hermes", "llama"} {
		long := map[string]string{"hermes": `<tool_call>{"name":"`, "llama": `{"name":"`}[name] + strings.Repeat("a", maxCallBytes+9) + `","parameters":{}}`
		s := format(t, name).Stream()
		said, most := "", 0
		for rest := long; rest != ""; {
			n := min(1<<16, len(rest))
			more, _ := s.Add(rest[:n])
			said, rest, most = said+more, rest[n:], max(most, len(s.pending))
		}
		more, calls, err := s.End()
		if said+more != long || len(calls) > 0 || err == nil || most > maxCallBytes+1<<17 {
			t.Errorf("%s: %d bytes of %d, %d held, %v", name, len(said+more), len(long), most, err)
		}
	}
}
