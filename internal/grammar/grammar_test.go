package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// vocabulary has a token for each byte, some longer ones, two marks and an end.
func vocabulary(t testing.TB, marks ...string) *Vocabulary {
	t.Helper()
	var texts []string
	for c := range 256 {
		texts = append(texts, string([]byte{byte(c)}))
	}
	texts = append(texts, `{"`, `":`, `": "`, `", "`, `"}`, "true", "tr", "12", "nam", "name", "\n  ", "é", "é\"", "\xc3", "</", "the end")
	plain := len(texts)
	texts = append(append(texts, marks...), "<end>", "")
	end := len(texts) - 2
	return NewVocabulary(len(texts), func(id int32) ([]byte, bool) { return []byte(texts[id]), int(id) >= plain }, []int32{int32(end)})
}

// reads reports whether a text is of a form, byte for byte and mark for mark.
func reads(t testing.TB, g *Grammar, text string) bool {
	t.Helper()
	m := g.Begin()
	for len(text) > 0 {
		id, n := g.vocabulary.markAt(text)
		if n == 0 {
			id, n = int32(text[0]), 1
		}
		allowed, _, err := m.Next()
		if err != nil || allowed != nil && !has(allowed, id) {
			return false
		}
		m.Add(id)
		text = text[n:]
	}
	_, ends, err := m.Next()
	return err == nil && ends
}

// write writes a text by drawing tokens evenly, or "" if it does not end.
func write(t testing.TB, g *Grammar, r *rand.Rand) string {
	t.Helper()
	m, text := g.Begin(), ""
	for range 4000 {
		allowed, ends, err := m.Next()
		if err != nil {
			t.Fatalf("behind %q: %v", text, err)
		}
		if allowed == nil {
			allowed = g.vocabulary.withText
		}
		var ids []int32
		for id := range int32(len(g.vocabulary.texts)) {
			if has(allowed, id) {
				ids = append(ids, id)
			}
		}
		if ends && (len(ids) == 0 || r.IntN(4) == 0) {
			return text
		}
		if len(ids) == 0 {
			t.Fatalf("nothing follows %q", text)
		}
		id := ids[r.IntN(len(ids))]
		text += string(g.vocabulary.texts[id])
		m.Add(id)
	}
	return ""
}

func grammar(t testing.TB, f Form, err error) *Grammar {
	t.Helper()
	var g *Grammar
	if err == nil {
		g, err = vocabulary(t, "<call>", "</call>").Grammar(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSchema(t *testing.T) {
	const person = `{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false}`
	for _, tt := range []struct {
		schema    string
		good, bad string // with | between them
	}{
		{person, `{"name":"a","age":1}|{ "name": "é\n", "age": -20 }|` + "{\n  \"name\": \"\",\n  \"age\": 0\n}", `{}|{"age":1,"name":"a"}|{"name":"a"}|{"name":"a","age":1.5}|{"name":"a","age":1,"b":2}|{"name":"a","age":01}|{"name":a,"age":1}`},
		{`{"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"type": "boolean"}}, "required": ["b"]}`, `{"b":null}|{"a":true,"b":null}|{"b":null,"c":false}|{"a":true,"b":null,"c":false}`, `{}|{"a":true}|{,"b":null}|{"b":null,}|{"c":true,"b":null}`},
		{`{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "integer"}}`, `{}|{"a":1}`, `{"b":"x"}|{"b":1,"a":2}|{"a":1,"a":2}`},
		{`{"type": "object", "additionalProperties": {"type": "integer"}}`, `{}|{"a":1}|{"a":1,"b":2}`, `{"c":"x"}`},
		{`{"type": "object"}`, `{}|{"abc": [1, {"bc": null, "de": "fgh"}, "ccc", -1.5e3, true]}`, `[]|1|{"a":}|{"a" :1}`},
		{`{}`, `1|"a"|[]|null|{"a":{}}|-0.5`, `|nul|01|[1,]`},
		{`{"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}`, `[1]|[1,2]|[1, 2, 3]`, `[]|[1,2,3,4]|[,1]|[1 ,2]`},
		{`{"enum": ["a", "b\"c", 3, null, {"d": [1]}]}`, `"a"|"b\"c"|3|null|{"d":[1]}`, `"b"|a|{"d":[2]}`},
		{`{"const": "é"}`, `"é"`, `"e"`},
		{`{"anyOf": [{"type": "integer"}, {"type": "null"}]}`, `1|null`, `"a"`},
		{`{"oneOf": [{"type": "integer"}, {"type": "string"}], "anyOf": [{"enum": [1]}, {"enum": [2]}]}`, `1|2`, `3`},
		{`{"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"const": "b"}, "n": {"type": "integer"}}, "required": ["k", "n"]}], "discriminator": {"propertyName": "k"}}`,
			`{"k":"a"}|{"k":"b","n":1}`, `{"k":"b"}|{"k":"a","n":1}`},
		{`{"type": ["string", "null"], "maxLength": 2}`, `"ab"|""|null|"é☃"`, `"abc"|1`},
		{`{"type": "string", "minLength": 2, "maxLength": 3}`, `"ab"|"abc"|"\"\\"`, `"a"|"abcd"`},
		{`{"type": "string", "pattern": "^[a-c]{2}\\d*$"}`, `"ab"|"ca123"`, `"a"|"abx"|"xab"`},
		{`{"type": "string", "pattern": "b"}`, `"b"|"abc"`, `"ac"|""`},
		{`{"type": "string", "pattern": "^(a|\"|\\n)$"}`, `"a"|"\""|"\n"`, `"""|"b"`},
		{`{"type": "string", "format": "date"}`, `"2024-02-28"|"1999-12-31"`, `"2024-02-30"|"2024-13-01"|"24-01-01"`},
		{`{"type": "string", "format": "date-time"}`, `"2024-02-28T10:00:00Z"|"2024-02-28T10:00:00.5+01:00"`, `"2024-02-28"|"2024-02-28T25:00:00Z"`},
		{`{"type": "string", "format": "uuid"}`, `"123e4567-e89b-42d3-a456-426614174000"`, `"123"`},
		{`{"type": "string", "format": "email"}`, `"a.b@c-d.org"`, `"a"|"a@b"`},
		{`{"type": "string", "format": "ipv4"}`, `"1.20.255.0"`, `"256.1.1.1"|"01.1.1.1"`},
		{`{"type": "string", "format": "password"}`, `"x"`, `x`},
		{`{"type": "integer", "minimum": -12, "maximum": 105}`, `-12|-9|-1|0|7|99|105|100|10`, `-13|106|-0|111|1000|00`},
		{`{"type": "integer", "exclusiveMinimum": 0}`, `1|10|999999999999999`, `0|-1|1000000000000000`},
		{`{"type": "integer", "exclusiveMaximum": 0}`, `-1|-10`, `0|1`},
		{`{"type": "integer", "exclusiveMinimum": -999999999999999, "maximum": 0}`, `-999999999999998|-1|0`, `-999999999999999|1`},
		{`{"type": "integer", "minimum": 17}`, `17|18|20|99|100`, `16|9|1`},
		{`{"type": "number", "minimum": 0, "maximum": 1}`, `0|1|0.5|1.0|0.999`, `1.01|-0.1|2|1.|.5`},
		{`{"type": "number", "exclusiveMinimum": 0.25, "exclusiveMaximum": 10}`, `0.26|0.251|9.99|1|5`, `0.25|0.250|0.2|10|10.0|0`},
		{`{"type": "number"}`, `1|-1.5|2e10|0.5E-3`, `01|1.|+1|.5`},
		{`{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}}}`,
			`{"v":1,"next":null}|{"v":1,"next":{"v":2,"next":{"v":3,"next":null}}}`, `{"v":1}|{"v":1,"next":{}}`},
		{`{"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/definitions/A"}], "description": "d", "default": "x"}}, "required": ["a"], "definitions": {"A": {"enum": ["x", "y"]}}}`, `{"a":"x"}`, `{"a":"z"}`},
		{`{"allOf": [{"type": "object"}, {"properties": {"a": {"type": "null"}}, "required": ["a"]}]}`, `{"a":null}`, `{}`},
		{`{"$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": {"type": "string"}}}`, `"a"`, `"ab"`},
		{`{"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}`, `{"a":null}|{"b":null}|{"a":null,"b":null}`, `{}`},
		{`{"type": "string", "nullable": true, "enum": ["a"]}`, `"a"|null`, `"b"`},
		{`{"type": "array", "items": {"$ref": "#"}}`, `[]|[[],[[]]]`, `[1]`},
		{`{"anyOf": [{"$ref": "#"}, {"type": "null"}]}`, `null`, `1`},
	} {
		f, left, err := Schema([]byte(tt.schema), true)
		g := grammar(t, f, err)
		if len(left) > 0 {
			t.Errorf("%s: %q is left to the model", tt.schema, left)
		}
		for _, text := range strings.Split(tt.good, "|") {
			if !reads(t, g, text) {
				t.Errorf("%s: %s is not read", tt.schema, text)
			}
		}
		for _, text := range strings.Split(tt.bad, "|") {
			if reads(t, g, text) {
				t.Errorf("%s: %s is read", tt.schema, text)
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 30 {
			if text := write(t, g, r); text != "" && (!json.Valid([]byte(text)) || !reads(t, g, text)) {
				t.Errorf("%s: %q was written", tt.schema, text)
			}
		}
	}
}

// TestRefused: what cannot be held is named, or left to the model if it need not be held.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"type": "array", "uniqueItems": true}`: `uniqueItems`, `{"type": "integer", "multipleOf": 5}`: `multipleOf`,
		`{"type": "object", "properties": {"a": {"not": {}}}}`: `#/properties/a: not`,
		`{"type": "string", "pattern": "a(?=b)"}`:              "(?=", `{"type": "string", "pattern": "a", "maxLength": 3}`: "beside pattern",
		`{"allOf": [{"properties": {"a": true}}, {"properties": {"b": true}}]}`: "properties",
	} {
		if _, _, err := Schema([]byte(text), true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if _, left, err := Schema([]byte(text), false); err != nil || len(left) == 0 {
			t.Errorf("%s: %v, %q are left", text, err, left)
		}
	}
	for text, want := range map[string]string{
		`{"type": "text"}`: "#/type", `[]`: "object of keywords", `{"$ref": "#/$defs/A"}`: "#/$defs/A", `{"$ref": "https://a.example/b"}`: "a.example",
		`{"type": "array", "minItems": 3, "maxItems": 2}`: "minItems 3", `{"properties": {"a": false}}`: "#/properties/a", `{"allOf": [{"$ref": "#"}], "type": "null"}`: "lead back",
		`{"enum": 3}`: "#/enum", `{"required": "a"}`: "#/required", `{"type": "string", "minimum": "a", "maxLength": 1e9}`: "maxLength",
	} {
		_, _, err := Schema([]byte(text), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{"type": "string", "maxLength": 100000}`, `{"type": "array", "minItems": 100000, "items": {"type": "object", "properties": {"a": {"enum": [1, 2]}}}}`, `{"$ref": "#"}`, `{"type": "integer", "minimum": 3, "maximum": 2}`, `{"enum": [` + strings.Repeat(`1,`, 20_000) + `2]}`} {
		f, _, err := Schema([]byte(text), true)
		if err == nil {
			_, err = vocabulary(t).Grammar(f)
		}
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestRegexp(t *testing.T) {
	for expression, tt := range map[string][2]string{
		`(\d{3})-\d{4}`: {"123-4567", "123-456|x123-4567"}, `^a*$`: {"|aaa", "b"}, `(?i)yes|no`: {"YES|no|No", "maybe"},
		`[^a-y]`: {"z|é|☃|😀|\n", "a|zz"}, `.`: {"é|😀", "\n|ab"}, `\p{L}+`: {"aé", "1"}, `a{2,3}b?`: {"aa|aaab", "a|aaaa"},
		`[\x{7f0}-\x{1234f}]`: {"\u07f0|ࠀ|\ud7ff|\ue000|𐀀|\U0001234f", "\u07ef|\U00012350|\xed\xa0\x80"}, `(a|b)+c`: {"abac", "c|ab"}, ``: {"", "a"},
	} {
		f, err := Regexp(expression)
		g := grammar(t, f, err)
		for i, want := range []bool{true, false} {
			for _, text := range strings.Split(tt[i], "|") {
				if reads(t, g, text) != want {
					t.Errorf("%s reads %q: %v", expression, text, !want)
				}
			}
		}
	}
	for _, expression := range []string{`a(`, `\bword`, `a^b`, `(?=a)`} {
		if _, err := Regexp(expression); err == nil {
			t.Errorf("%s was taken", expression)
		}
	}
}

// TestCharacters: every range of characters is read as UTF-8 has it.
func TestCharacters(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	edges := []rune{0, 0x7e, 0x7f, 0x80, 0xbf, 0xc0, 0x7fe, 0x7ff, 0x800, 0xfff, 0x1000, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff}
	for range 60 {
		lo, hi := edges[r.IntN(len(edges))]+rune(r.IntN(70)), edges[r.IntN(len(edges))]+rune(r.IntN(70))
		lo, hi = min(lo, hi, utf8.MaxRune), min(max(lo, hi), utf8.MaxRune)
		g := grammar(t, characters([]rune{lo, hi}, plain), nil)
		for _, c := range slices.Concat(edges, []rune{lo, hi, lo - 1, hi + 1, (lo + hi) / 2}) {
			if utf8.ValidRune(c) && reads(t, g, string(c)) != (lo <= c && c <= hi) {
				t.Errorf("%U to %U reads %U: %v", lo, hi, c, !(lo <= c && c <= hi))
			}
		}
	}
}

// TestBounds compares with numbers as they are.
func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	some := func() float64 { return float64(r.IntN(4001)-2000) / []float64{1, 10, 100}[r.IntN(3)] }
	for range 60 {
		x := bounds{least: some(), most: some(), leastExcluded: r.IntN(2) == 0, mostExcluded: r.IntN(2) == 0, integer: r.IntN(2) == 0}
		x.least, x.most = min(x.least, x.most), max(x.least, x.most)
		g, err := vocabulary(t).Grammar(x.form())
		for range 60 {
			y := some()
			if x.integer {
				y = float64(int(y))
			}
			if r.IntN(3) == 0 {
				y = []float64{x.least, x.most}[r.IntN(2)]
			}
			in := (y > x.least || y == x.least && !x.leastExcluded) && (y < x.most || y == x.most && !x.mostExcluded) && (!x.integer || y == float64(int(y)))
			if text := fmt.Sprint(y); err == nil && reads(t, g, text) != in || err != nil && in {
				t.Errorf("%+v reads %s: %v, %v", x, text, !in, err)
			}
		}
	}
}

// TestMarks: added tokens are read whole, and only where a form names them.
func TestMarks(t *testing.T) {
	inside, _, err := Schema([]byte(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}`), true)
	call := Join(Text("\n"), inside, Text("</call>"))
	for _, marks := range [][]string{{"<call>", "</call>"}, nil} {
		make := func(f Form) *Grammar {
			g, err := vocabulary(t, marks...).Grammar(f)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		g := make(Free("<call>", call))
		for text, want := range map[string]bool{"": true, "a <b": true, "a<call>\n{\"n\":1}</call> b": true, "<call>x": false, "<call>\n{\"n\":1}": false,
			"<c<call>\n{\"n\":1}</call><call>\n{\"n\":2}</call>": true, "<call>\n{}</call>": false} {
			if reads(t, g, text) != want {
				t.Errorf("marks %q: %q is read: %v", marks, text, !want)
			}
		}
		if allowed, ends, err := g.Begin().Next(); err != nil || !ends || len(marks) > 0 != (allowed == nil) && len(marks) > 0 {
			t.Errorf("%v %v: free text is not free", ends, err)
		}
		g = make(Join(Until("</call>"), literal("x")))
		for text, want := range map[string]bool{"a</call>x": true, "</call>x": true, "a": false, "</</call>x": true, "a</call>": false} {
			if reads(t, g, text) != want {
				t.Errorf("marks %q: until: %q is read: %v", marks, text, !want)
			}
		}
	}
	f, _, _ := Schema([]byte(`{"type": "string"}`), true)
	if g := grammar(t, f, err); reads(t, g, `"<call>"`) {
		t.Error("an added token stands in a JSON string")
	}
}

func TestArguments(t *testing.T) {
	const schema = `{"type": "object", "properties": {"q": {"type": "string"}, "n": {"$ref": "#/$defs/n"}, "k": {"enum": ["a", "b"]}}, "required": ["q"], "$defs": {"n": {"type": "integer"}}}`
	xml := Writing{Before: func(name string) string { return "<p=" + name + ">\n" }, Behind: "\n</p>\n", Raw: true}
	python := Writing{Before: func(name string) string { return name + "=" }, Between: ", "}
	for _, tt := range []struct {
		Writing
		good, bad string
	}{
		{xml, "<p=q>\na \"b\"\nc\n</p>\n|<p=q>\n\n</p>\n<p=n>\n3\n</p>\n<p=k>\nb\n</p>\n", "|<p=n>\n3\n</p>\n|<p=q>\na\n</p>\n<p=n>\nx\n</p>\n|<p=q>\na\n</p>\n<p=k>\nc\n</p>\n"},
		{python, `q="a"|q="a", n=3|q="a", n=3, k="a"`, `q=a|n=3|q="a"n=3`},
	} {
		f, _, err := Arguments([]byte(schema), true, tt.Writing)
		g := grammar(t, f, err)
		for i, texts := range []string{tt.good, tt.bad} {
			for _, text := range strings.Split(texts, "|") {
				if reads(t, g, text) != (i == 0) {
					t.Errorf("%q is read: %v", text, i == 1)
				}
			}
		}
	}
}

// TestSay: a text goes on from one that stands.
func TestSay(t *testing.T) {
	f, _, err := Schema([]byte(`{"type": "array", "items": {"type": "integer"}}`), true)
	g := grammar(t, f, err)
	m := g.Begin()
	if err := m.Say("[1, "); err != nil {
		t.Fatal(err)
	}
	if allowed, ends, _ := m.Next(); ends || !has(allowed, '2') || has(allowed, ']') {
		t.Error("the text does not go on")
	}
	if err := g.Begin().Say("{"); err == nil {
		t.Error("another text was taken")
	}
}

// TestForget: states are dropped when there are many, and a text goes on all the same.
func TestForget(t *testing.T) {
	f, _, err := Schema([]byte(`{"type": "array", "items": {"type": "string", "minLength": 3000}}`), true)
	g := grammar(t, f, err)
	if text := `["` + strings.Repeat("a", 9000) + `", "` + strings.Repeat("b", 3000) + `"]`; !reads(t, g, text) || len(g.states) > maxStates+300 {
		t.Errorf("%d states", len(g.states))
	}
}

func FuzzSchema(f *testing.F) {
	for _, s := range []string{`{"type": "object", "properties": {"a": {"type": "string", "pattern": "a+"}}}`, `{"anyOf": [{"$ref": "#"}, {"enum": [1]}]}`, `{"type": "number", "minimum": -1.5, "maximum": 3}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		for _, exact := range []bool{true, false} {
			form, _, err := Schema([]byte(schema), exact)
			if err != nil {
				continue
			}
			g, err := vocabulary(t).Grammar(form)
			if err != nil {
				continue
			}
			if text := write(t, g, rand.New(rand.NewPCG(1, 2))); text != "" && !json.Valid([]byte(text)) {
				t.Errorf("%s: %q", schema, text)
			}
		}
	})
}
