package data

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// These are the rows of the benchmark files, and how many of them the filters keep.
func TestBenchmarks(t *testing.T) {
	dir := benchmarks(t)
	for _, c := range []struct {
		file   string
		filter string
		rows   int
	}{
		{"aime24.jsonl", "", 30},
		{"amc.jsonl", "", 83},
		{"math500.jsonl", "", 250},
		{"minerva.jsonl", "", 90},
		{"olympiadbench.jsonl", "", 225},
		{"math_lvl3to5_8k_eval.jsonl", "", 250},
		{"gsm_8k.jsonl", "", 4396},
		{"asdiv_2k.jsonl", "", 894},
		{"gsm_8k.jsonl", `gsm8k_split == "train" or gsm8k_split == "test"`, 4396},
		{"math500.jsonl", "level in 1..5", 250},
		{"math500.jsonl", "level < 1", 0},
	} {
		rows, report, err := Load(filepath.Join(dir, c.file), Options{Filter: c.filter})
		if c.rows == 0 {
			if err == nil || !strings.Contains(err.Error(), "no row is left: 0 of 250 rows, 250 filtered out") {
				t.Errorf("%s, %q: error %v", c.file, c.filter, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if len(rows) != c.rows || len(report.Dropped) != 0 {
			t.Errorf("%s, %q: %v, want %d rows", c.file, c.filter, report, c.rows)
		}
		if report.Prompt != "problem" || report.Answer != "answer" || report.ID != "id" {
			t.Errorf("%s: columns %q, %q, %q", c.file, report.Prompt, report.Answer, report.ID)
		}
	}
}

// The cases have one answer of each shape that the benchmarks have.
func TestBenchmarkAnswers(t *testing.T) {
	dir := benchmarks(t)
	for _, c := range []struct {
		file, id string
		want     []string
	}{
		{"aime24.jsonl", "aime24/0001", []string{"025"}},   // a string keeps its zeros
		{"amc.jsonl", "amc/0000", []string{"142"}},         // The answer is a double with a whole value.
		{"minerva.jsonl", "minerva/0000", []string{"9.6"}}, // The answer is a list with one text, which has a line break.
		{"gsm_8k.jsonl", "gsm_8k/0004", []string{"21"}},
	} {
		rows, _, err := Load(filepath.Join(dir, c.file), Options{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(rows, func(p Problem) bool { return p.ID == c.id })
		if i < 0 || !slices.Equal(rows[i].Answers, c.want) {
			t.Errorf("%s: row %d; want %q", c.id, i, c.want)
		}
	}
	rows, _, err := Load(filepath.Join(dir, "minerva.jsonl"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, r := range rows {
		most = max(most, len(r.Answers))
	}
	if most < 2 {
		t.Errorf("no row of minerva has alternatives")
	}
}

func TestAutomaticColumns(t *testing.T) {
	for _, c := range []struct {
		name, line string
		opts       Options
		want       Problem
	}{
		{
			"gsm8k as published", `{"question": "1+1?", "answer": "One and one.\n#### 1,002 "}`, Options{},
			Problem{ID: "x:1", Text: "1+1?", Answers: []string{"1,002"}},
		},
		{
			"math as published", `{"problem": "p", "level": "Level 5", "solution": "so \\boxed{1} or $\\boxed{\\frac{1}{2}}$."}`, Options{},
			Problem{ID: "x:1", Text: "p", Answers: []string{`1, \frac{1}{2}`}},
		},
		{
			"capitals", `{"ID": "2024-I-1", "Problem": "p", "Solution": "s", "Answer": 204}`, Options{},
			Problem{ID: "2024-I-1", Text: "p", Answers: []string{"204"}},
		},
		{
			"numeric id", `{"id": 7, "question": "q", "final_answer": ["1", " 2 ", "", 3.50, true]}`, Options{},
			Problem{ID: "7", Text: "q", Answers: []string{"1", "2", "3.5", "true"}},
		},
		{
			"nested", `{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "34", "style": "rule"}}`,
			Options{Columns: Columns{Answer: "reward_model.ground_truth"}},
			Problem{ID: "x:1", Text: "q", Answers: []string{"34"}},
		},
		{
			"nested, found", `{"messages": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "34"}}`, Options{},
			Problem{ID: "x:1", Text: "q", Answers: []string{"34"}},
		},
		{
			"blanks and hyphens", `{"Question": "q", "Final Answer": "1", "problem-id": 3}`, Options{},
			Problem{ID: "3", Text: "q", Answers: []string{"1"}},
		},
		{
			"list in a text", `{"question": "q", "answer": "[\"1\", \"one\"]"}`, Options{},
			Problem{ID: "x:1", Text: "q", Answers: []string{"1", "one"}},
		},
		{
			"interval in a text", `{"question": "q", "answer": "[1, 2]"}`, Options{},
			Problem{ID: "x:1", Text: "q", Answers: []string{"[1, 2]"}},
		},
		{
			"name with a dot", `{"a.b": "q", "a": {"b": "no"}, "c": 1e3}`, Options{Columns: Columns{Prompt: "a.b", Answer: "c"}},
			Problem{ID: "x:1", Text: "q", Answers: []string{"1000"}},
		},
		{
			"no answers", `{"prompt": "q", "n": [1, 2.5, null, 12345678901234567890]}`, Options{NoAnswers: true},
			Problem{ID: "x:1", Text: "q"},
		},
	} {
		path := write(t, "x.jsonl", c.line)
		rows, _, err := Load(path, c.opts)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := rows[0]
		if fields, err := got.Fields.MarshalJSON(); err != nil || string(fields) != c.line {
			t.Errorf("%s: fields %s, %v\nwant %s", c.name, fields, err, c.line)
		}
		if isChat := strings.Contains(c.line, `"role"`); isChat != (got.Chat != nil) {
			t.Errorf("%s: a conversation: %v", c.name, got.Chat != nil)
		}
		got.Fields, got.Chat = nil, nil
		c.want.File, c.want.Line = path, 1
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %#v\nwant %#v", c.name, got, c.want)
		}
	}
}

// A row without its prompt or its answer is dropped with a reason.
func TestBadRowsAreNamedAndCounted(t *testing.T) {
	path := write(t, "x.jsonl", `{"problem": "1", "answer": "a", "solution": "\\boxed{b}"}

{"problem": "2"}
{"problem": " ", "answer": "a"}
{"problem": 5, "answer": "a"}
{"problem": "6", "answer": {"x": 1}}
{"problem": "7", "answer": [null, " "]}
{"problem": "8", "answer": "b"}
`)
	var bad []string
	rows, report, err := Load(path, Options{OnBad: func(err error) {
		var e *rowError
		if !errors.As(err, &e) || e.File != path {
			t.Errorf("error %#v", err)
		}
		bad = append(bad, fmt.Sprint(e.Unit, " ", e.Line, " ", e.Reason))
	}})
	if err == nil || !strings.Contains(err.Error(), "5 of the 7 rows have no problem or no answer") {
		t.Errorf("more rows are bad than good: error %v", err)
	}
	want := []string{"line 3 no answer", "line 4 no prompt", "line 5 " + oddPrompt, "line 6 " + oddAnswer, "line 7 no answer"}
	if !slices.Equal(bad, want) {
		t.Errorf("bad rows %q, want %q", bad, want)
	}
	if len(rows) != 2 || rows[1].ID != "x:8" || report.Read != 7 {
		t.Errorf("rows %v, report %+v", rows, report)
	}
	if s := report.String(); !strings.Contains(s, "2 of 7 rows, 2 dropped (no answer), 1 dropped (no prompt)") {
		t.Errorf("report %q", s)
	}
	_, _, err = Load(path, Options{})
	if err == nil || err.Error() != `data: `+path+`: line 3: no answer (columns "problem" and "answer")` {
		t.Errorf("without OnBad: %v", err)
	}
	for name, text := range map[string]string{
		noSolution:  `{"problem": "1", "solution": "First the one,\nthen the other."}`,
		noAfterHash: `{"problem": "1", "answer": "x\n#### "}`,
	} {
		_, _, err := Load(write(t, "x.jsonl", text), Options{})
		if err == nil || !strings.Contains(err.Error(), "line 1: "+name) {
			t.Errorf("error %v, want %q", err, name)
		}
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "empty"), 0o777)
	file := func(name, text string) string { return write(t, name, text) }
	good := `{"problem": "p", "answer": "a"}` + "\n"
	for _, c := range []struct {
		name, path string
		opts       Options
		want       string
	}{
		{"missing", filepath.Join(dir, "x.jsonl"), Options{}, "no such file or folder"},
		{"glob", filepath.Join(dir, "*.jsonl"), Options{}, "no file matches"},
		{"bad glob", filepath.Join(dir, "[.jsonl"), Options{}, "syntax error in pattern"},
		{"empty folder", filepath.Join(dir, "empty"), Options{}, "no data file"},
		{"empty file", file("x.jsonl", ""), Options{}, "the file is empty"},
		{"blank file", file("x.jsonl", "\n \n"), Options{}, "no rows"},
		{"other file", file("x.txt", "hello"), Options{}, `not a data file: it begins with "hello"`},
		{"not json", file("x.jsonl", good+good+"{\"problem\": nope}\n"+good), Options{OnBad: func(error) {}}, "x.jsonl: line 3: not JSON at byte 13, near"},
		{"cut short", file("x.jsonl", good+`{"problem": "p", "ans`), Options{}, "line 2: it ends in the middle of the JSON text"},
		{"text behind an object", file("x.jsonl", `{} x`), Options{}, "line 1: not JSON: \"x\" stands after the value"},
		{"not an object", file("x.jsonl", good+`"text"`), Options{}, `line 2: not a JSON object but "\"text\""`},
		{"not utf-8", file("x.jsonl", good+"{\"problem\": \"\xff\"}"), Options{}, "line 2: not UTF-8"},
		{"array cut short", file("x.json", "["+good+","+good), Options{}, "row 3: the file ends inside the array"},
		{"array cut inside", file("x.json", "["+good+`,{"a`), Options{}, "row 2: the file ends inside the array"},
		{"array with a fault", file("x.json", "["+good+",{]"), Options{}, "row 2: not JSON at byte 1"},
		{"array of numbers", file("x.json", "[1]"), Options{}, `row 1: not a JSON object but "1"`},
		{"after the array", file("x.json", "["+good+"] 1"), Options{}, "row 2: there is more after the array's end"},
		{"no name around the array", file("x.json", `{"data": [`+good+`], 5: 1}`), Options{}, `row 2: not JSON: "5" is no name`},
		{"no value around the array", file("x.json", `{"data": [`+good+`], "rows"}`), Options{}, `row 2: not JSON: "\"rows\"" is no name with a value`},
		{"csv fields", file("x.csv", "problem,answer\na,b\nc\n"), Options{}, "line 3: it has another number of fields than the header"},
		{"csv quotes", file("x.csv", "problem,answer\na,b\n\"c,d\n"), Options{}, `line 3: at column`},
		{"csv header", file("x.csv", "a,a\n1,2\n"), Options{}, `header: two columns are named "a"`},
		{"csv bytes", file("x.csv", "problem,answer\n\xff,b\n"), Options{}, `line 2: column "problem": not UTF-8`},
		{"gzip cut short", file("x.jsonl.gz", zipped(good)[:20]), Options{}, "it is cut short"},
		{"prompt column", file("x.jsonl", good), Options{Columns: Columns{Prompt: "question"}}, `there is no column "question" for the prompt (have ["problem" "answer"])`},
		{"answer column", file("x.jsonl", `{"problem": "p", "result": "a"}`), Options{}, `no column looks like the answer (have ["problem" "result"]`},
		{"id column", file("x.jsonl", good), Options{Columns: Columns{ID: "key"}}, `there is no column "key" for the id`},
		{"same column", file("x.jsonl", good), Options{Columns: Columns{Answer: "problem"}}, `the column "problem" cannot be both`},
		{"limit", file("x.jsonl", good), Options{Limit: -1}, "limit -1 is negative"},
		{"filter", file("x.jsonl", good), Options{Filter: "level in 3"}, `filter "level in 3", at byte 11: ".." is wanted, not the end`},
		{"filter column", file("x.jsonl", good), Options{Filter: "levl == null"}, `no row has a column "levl"`},
		{"csv filter column", file("x.csv", "problem,answer\na,b\n"), Options{Filter: "levl == 1"}, `there is no column "levl" (have ["problem" "answer"])`},
		{"encrypted", file("x.parquet", "PARE00000000"), Options{}, "an encrypted Parquet file"},
		{"feather 1", file("x.feather", "FEA100000000"), Options{}, "Feather file of version 1"},
	} {
		_, _, err := Load(c.path, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "data: ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// One row in every text format gives the same problem.
func TestTextFormats(t *testing.T) {
	line := `{"problem": "a \"q\", b\nc", "answer": "é"}`
	var z bytes.Buffer
	w, _ := zstd.NewWriter(&z)
	io.WriteString(w, line)
	w.Close()
	table := "problem,answer\r\n\"a \"\"q\"\", b\nc\",é\r\n"
	for name, text := range map[string]string{
		"x.jsonl":     line,
		"lf.jsonl":    line + "\n",
		"crlf.jsonl":  "\ufeff" + line + "\r\n\r\n",
		"x.json":      "\n [" + line + "]\n",
		"lines.json":  line + "\n",
		"x.csv":       table,
		"bom.csv":     "\ufeff" + table,
		"cr.csv":      strings.ReplaceAll(strings.ReplaceAll(table, "\r\n", "\r"), "\n", "\r"),
		"cr.csv.gz":   zipped(strings.ReplaceAll(strings.ReplaceAll(table, "\r\n", "\r"), "\n", "\r")),
		"x.tsv":       strings.Replace(strings.Replace(table, "problem,", "problem\t", 1), "\",é", "\"\té", 1),
		"x.jsonl.gz":  zipped(line),
		"x.csv.gz":    zipped(table),
		"x.jsonl.zst": z.String(),
	} {
		rows, _, err := Load(write(t, name, text), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(rows) != 1 || rows[0].Text != "a \"q\", b\nc" || !slices.Equal(rows[0].Answers, []string{"é"}) {
			t.Errorf("%s: %+v", name, rows)
		}
	}
}

// A repeated key is an error of its row, at any depth; data check continues.
func TestKeysTwice(t *testing.T) {
	good, bad := `{"problem": "a", "answer": 1}`, []string{
		`{"problem": "a", "answer": 1, "problem": "b"}`,
		`{"problem": "a", "answer": {"x": 1, "x": 1}}`,
		`{"problem": "a", "answer": 1, "l": [{"\u0078": 1, "x": 2}]}`,
	}
	for i, row := range bad {
		key := []string{"problem", "x", "x"}[i]
		want := fmt.Sprintf("line 2: the key %q is there twice: keep one of them", key)
		path := write(t, "x.jsonl", good+"\n"+row+"\n"+good)
		if _, _, err := Load(path, Options{}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", row, err, want)
		}
		if report, err := Check(path, CheckOptions{}); err != nil || report.Rows != 2 || report.Bad.Rows != 1 {
			t.Errorf("%s: %v, %+v", row, err, report)
		}
		array := write(t, "x.json", "["+good+","+row+"]")
		if _, _, err := Load(array, Options{}); err == nil || !strings.HasSuffix(err.Error(), strings.Replace(want, "line", "row", 1)) {
			t.Errorf("%s in an array: error %v", row, err)
		}
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20+1)
	var b strings.Builder
	for i, n := range []int{0, 300_000, 65_535, 65_536, 1 << 20, 10} {
		fmt.Fprintf(&b, `{"problem": "p%s", "answer": %d}`+"\n", long[:n], i)
	}
	rows, _, err := Load(write(t, "x.jsonl", b.String()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 || len(rows[4].Text) != 1<<20+1 || rows[5].Line != 6 || rows[5].Answers[0] != "5" {
		t.Errorf("%d rows", len(rows))
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	put := func(name, answer string) {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o777)
		text := answer
		if strings.HasSuffix(name, "l") {
			text = fmt.Sprintf(`{"problem": "p", "answer": %q}`, answer)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put("plain/b.jsonl", "b")
	put("plain/a.jsonl", "a")
	put("plain/README.md", "x")
	put("plain/dataset_info.json", "{}")
	put("plain/.hidden.jsonl", "x")
	put("hub/data/train-00000-of-00002.jsonl", "0")
	put("hub/data/train-00001-of-00002.jsonl", "1")
	put("hub/data/test.jsonl", "t")
	put("saved/state.json", `{"_data_files": [{"filename": "z.jsonl"}, {"filename": "a.jsonl"}]}`)
	put("saved/a.jsonl", "a")
	put("saved/z.jsonl", "z")
	put("saved/left-over.jsonl", "x")
	put("dict/dataset_dict.json", `{"splits": ["train", "test"]}`)
	put("dict/train/a.jsonl", "a")
	put("dict/test/a.jsonl", "t")
	put("cache/gsm8k-train.jsonl", "0")
	put("cache/gsm8k-test.jsonl", "t")
	put("escape/state.json", `{"_data_files": [{"filename": "../saved/a.jsonl"}]}`)
	put("broken/state.json", `{`)

	for _, c := range []struct {
		path, split string
		answers     string // joined
		ids         string
		err         string
	}{
		{path: "plain", answers: "a b", ids: "a:1 b:1"},
		{path: "plain/*.jsonl", answers: "a b", ids: "a:1 b:1"},
		{path: "*/a.jsonl", answers: "a a", ids: "plain/a:1 saved/a:1"},
		{path: "saved", answers: "z a", ids: "z:1 a:1"},
		{path: "hub", err: `several splits, ["test" "train"]: name one`},
		{path: "hub", split: "train", answers: "0 1", ids: "data/train-00000-of-00002:1 data/train-00001-of-00002:1"},
		{path: "hub", split: "dev", err: `no split "dev"`},
		{path: "plain", split: "train", err: `no split "train"`},
		{path: "cache", err: "several splits"},
		{path: "cache", split: "test", answers: "t", ids: "gsm8k-test:1"},
		{path: "dict", err: `several splits, ["test" "train"]`},
		{path: "dict", split: "test", answers: "t", ids: "test/a:1"},
		{path: "dict/train", answers: "a", ids: "a:1"},
		{path: "escape", err: "outside the folder"},
		{path: "broken", err: "state.json: it ends in the middle"},
	} {
		rows, _, err := Load(filepath.Join(dir, filepath.FromSlash(c.path)), Options{Columns: Columns{storage: storage{Split: c.split}}})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.path, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		var answers, ids []string
		for _, r := range rows {
			answers, ids = append(answers, r.Answers...), append(ids, r.ID)
		}
		if got := strings.Join(answers, " "); got != c.answers {
			t.Errorf("%s: answers %q, want %q", c.path, got, c.answers)
		}
		if got := strings.Join(ids, " "); got != c.ids {
			t.Errorf("%s: ids %q, want %q", c.path, got, c.ids)
		}
	}
}

func TestLimitAndFilterKeepIDs(t *testing.T) {
	var b strings.Builder
	for i := range 10 {
		fmt.Fprintf(&b, `{"problem": "p", "answer": %d, "level": %d}`+"\n", i, i%3)
	}
	path := write(t, "x.jsonl", b.String())
	rows, report, err := Load(path, Options{Filter: "level == 2", Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].ID != "x:3" || rows[1].ID != "x:6" || report.Read != 6 || report.Filtered != 4 {
		t.Errorf("rows %v, report %+v", rows, report)
	}
	r, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if _, err := r.Next(); err != io.EOF || n != 10 {
		t.Errorf("%d rows, then %v", n, err)
	}
}

// The raw rows of a JSON file, written again, give the same JSON.
func TestRecordsKeepEverything(t *testing.T) {
	lines := []string{
		`{"z": 1, "a": [1, 2.50, -3e-7, 12345678901234567890123], "m": {"y": null, "x": [{}, []]}, "t": true}`,
		`{"latex": "\\frac{a}{b} < c & d", "lines": "a\nb\tc", "odd": "\u0001\u007f", "é": "日本 \ud83d\ude00"}`,
	}
	r, err := openRecords(write(t, "x.jsonl", strings.Join(lines, "\n")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := rec.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(decode(t, line), decode(t, string(got))) || i == 0 && string(got) != line {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, got, line)
		}
	}
}

func decode(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// keyTwice says whether a value that d reads has an object with a key twice.
func keyTwice(d *json.Decoder) bool {
	found := false
	open, _ := d.Token()
	delim, _ := open.(json.Delim)
	for seen := map[any]bool{}; delim != 0 && d.More(); {
		if delim == '{' {
			key, _ := d.Token()
			found = found || seen[key]
			seen[key] = true
		}
		found = keyTwice(d) || found
	}
	if delim != 0 {
		d.Token()
	}
	return found
}

// Any text that encoding/json takes for an object without a repeated key is read to the
// same values; any other text is an error.
func FuzzParseObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a": [1, -2.5e3, "x\u00e9", null, true, {"b": {}}]}`, ` { "a" : 1 , "a" : [ ] } `, `[1]`, `{"a"`, "{\"\xff\": 1}", `{"a": "\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			return
		}
		o, err := parseObject(text)
		var want map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if !json.Valid(text) || d.Decode(&want) != nil || want == nil {
			if err == nil {
				t.Fatalf("%q was taken", text)
			}
			return
		}
		if twice := keyTwice(json.NewDecoder(bytes.NewReader(text))); utf8.Valid(text) && twice != (err != nil) {
			t.Fatalf("%q: a key twice: %v, error %v", text, twice, err)
		}
		if err != nil {
			if !utf8.Valid(text) || strings.HasPrefix(err.Error(), "the key ") {
				return
			}
			t.Fatalf("%q: %v", text, err)
		}
		var got map[string]any
		d = json.NewDecoder(bytes.NewReader(appendJSON(nil, o)))
		d.UseNumber()
		if err := d.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %v, want %v (%v)", text, got, want, err)
		}
	})
}

// A spreadsheet with decimal commas writes CSV files with semicolons between fields.
func TestSeparators(t *testing.T) {
	for _, text := range []string{"question,answer\na;b,2\n", "question;answer\r\na,b;2\r\n", "question\tanswer\na,b;\t2\n"} {
		rows, _, err := Load(write(t, "x.csv", text), Options{})
		if err != nil || len(rows) != 1 || !slices.Equal(rows[0].Answers, []string{"2"}) || len(rows[0].Text) < 3 {
			t.Errorf("%q: %+v, %v", text, rows, err)
		}
	}
}
