package eval

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/data"

	"github.com/BurntSushi/toml"
)

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"suites/math500.jsonl", "suites/aime/data-00000-of-00001.arrow", "suites/own.parquet", "a=b.jsonl", "held.out.json", "amc"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ spec, dir, name, path, err string }{
		{"math500", "suites", "math500", "suites/math500.jsonl", ""},
		{"aime24", "suites", "aime24", "suites/aime", ""},
		{"own", "suites", "own", "suites/own.parquet", ""},
		{"minerva", "suites", "", "", `suite "minerva" is not in suites: looked for minerva with .jsonl`},
		{"minerva", "", "", "", "where is minerva? Name its file (minerva=PATH)"},
		{"minerva=x/y.jsonl", "", "minerva", "x/y.jsonl", ""},
		{"minerva=", "", "", "", "names no file"},
		{"suites/math500.jsonl", "", "math500", "suites/math500.jsonl", ""},
		{"suites/math500.jsonl", "suites", "math500", "suites/math500.jsonl", ""},
		{"held.out.json", "", "held.out", "held.out.json", ""},
		{"held.out.json", "suites", "held.out", "held.out.json", ""},
		{"a=b.jsonl", "", "a=b", "a=b.jsonl", ""}, // a file may be called so
		{"amc", "", "amc", "amc", ""},
		{"own.parquet", "suites", "own", "suites/own.parquet", ""},
		{"held.out.json", ".", "held.out", "held.out.json", ""},
		{"nowhere.jsonl", "", "nowhere", "nowhere.jsonl", ""}, // whoever opens it says so
	} {
		name, path, err := locate(tt.spec, tt.dir)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("locate(%q, %q): %v, want %q", tt.spec, tt.dir, err, tt.err)
			}
			continue
		}
		if name != tt.name || path != filepath.FromSlash(tt.path) || err != nil {
			t.Errorf("locate(%q, %q) = %q, %q, %v, want %q, %q", tt.spec, tt.dir, name, path, err, tt.name, tt.path)
		}
	}
}

// TestSuiteFormats: a suite is found in every format that package data reads, also in a plug-in's
// format.
func TestSuiteFormats(t *testing.T) {
	defer func(formats []data.Format) { data.Formats = formats }(data.Formats)
	data.Formats = append(slices.Clone(data.Formats), data.Format{
		Extensions: []string{".toml"},
		Is:         func(head []byte, ext string) bool { return ext == ".toml" },
		Open: func(in data.Input) (*data.Rows, error) {
			var file struct {
				Row []struct{ Problem, Answer string }
			}
			_, err := toml.NewDecoder(in.Text).Decode(&file)
			n := 0
			return &data.Rows{Unit: "row", Next: func() (data.Object, int, error) {
				if n++; n > len(file.Row) {
					return nil, n, io.EOF
				}
				row := file.Row[n-1]
				return data.Object{{Name: "problem", Value: row.Problem}, {Name: "answer", Value: row.Answer}}, n, nil
			}}, err
		},
	})
	const table, lines, rows = "problem\tanswer\n1+1?\t2\n", `{"problem": "1+1?", "answer": 2}` + "\n", "[[row]]\nproblem = '1+1?'\nanswer = '2'\n"
	for name, text := range map[string]string{"a.tsv": table, "b.ndjson": lines, "c.jsonl.gz": lines, "d.tsv.gz": table, "e.toml": rows, "f.toml.gz": rows} {
		dir := t.TempDir()
		if strings.HasSuffix(name, ".gz") {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			io.WriteString(z, text)
			z.Close()
			text = b.String()
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := open(name[:1], dir, data.Options{})
		if err != nil || s.Name != name[:1] || len(s.Problems) != 1 || s.Problems[0].Text != "1+1?" || !slices.Equal(s.Problems[0].Answers, []string{"2"}) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if problems, _, err := data.Load(dir, data.Options{}); err != nil || len(problems) != 1 || !strings.HasPrefix(problems[0].ID, name[:1]+":") {
			t.Errorf("%s: the folder: %+v, %v", name, problems, err)
		}
		if _, ext := data.Split(name); ext != name[1:] {
			t.Errorf("%s is not downloaded with a data set: its extension is %q", name, ext)
		}
	}
}

// TestOneName: suites of one name get the names of their folders, or their extensions, to
// tell them apart. A file that is named twice is an error.
func TestOneName(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	for _, path := range []string{"a/x/test.jsonl", "b/x/test.jsonl", "b/y/test.jsonl", "c/d.jsonl", "c/d.json", "test.jsonl"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(`{"problem": "1+1?", "answer": 2}`+"\n"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for specs, want := range map[string]string{
		"a/x/test.jsonl c/d.jsonl":                       "test d",
		"a/x/test.jsonl b/y/test.jsonl":                  "x/test y/test",
		"a/x/test.jsonl b/x/test.jsonl c/d.json":         "a/x/test b/x/test d",
		"./b/y/../y/test.jsonl ./b/x/test.jsonl":         "y/test x/test",
		"a/x/test.jsonl b/x/test.jsonl b/y/test.jsonl":   "a/x/test b/x/test b/y/test",
		"test.jsonl b/y/test.jsonl":                      "test y/test",
		"c/d.jsonl c/d.json":                             "c/d.jsonl c/d.json",
		"one=a/x/test.jsonl b/x/test.jsonl":              "one test",
		"a/x/test.jsonl a/x/test.jsonl":                  "",
		root + "/a/x/test.jsonl " + root + "/test.jsonl": "x/test " + filepath.Base(root) + "/test",
	} {
		suites, err := Open(strings.Fields(specs), "", func(string) data.Options { return data.Options{} })
		var got []string
		for _, s := range suites {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", specs, got, err, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		name     string
		problems int
		warn     bool
	}{{"aime24", 30, false}, {"amc", 83, false}, {"math500", 500, false}, {"minerva", 272, false}, {"olympiadbench", 675, false}, {"math500", 250, true}, {"own", 7, false}} {
		got := Suite{Name: tt.name, Problems: make([]data.Problem, tt.problems)}.Warnings()
		if len(got) > 0 != tt.warn || tt.warn && !strings.Contains(got[0], tt.name) {
			t.Errorf("%s of %d: %q", tt.name, tt.problems, got)
		}
	}
	if got := (Suite{Name: "own", LeftOut: []string{"trace", "tags"}}).Warnings(); len(got) != 1 || !strings.Contains(got[0], "trace, tags") {
		t.Errorf("columns left out: %q", got)
	}
}

// TestSuiteKeys: a problem's key for random draws follows from its text.
func TestSuiteKeys(t *testing.T) {
	a := Suite{Name: "a", Problems: []data.Problem{{ID: "1", Text: "x"}, {ID: "2", Text: "y"}, {ID: "3", Text: "x"}}}
	b := Suite{Name: "b", Problems: []data.Problem{{ID: "9", Text: "y"}, {ID: "1", Text: "x"}}}
	ka, kb := a.keys(), b.keys()
	if ka[0] != kb[1] || ka[1] != kb[0] {
		t.Errorf("keys depend on more than the text: %v, %v", ka, kb)
	}
	if ka[0] == ka[2] {
		t.Error("a problem that comes twice has the same draws twice")
	}
}

func TestSuitePlan(t *testing.T) {
	s := Suite{Name: "a", Problems: []data.Problem{{ID: "1", Text: "x"}, {ID: "1", Text: "y"}, {ID: "1#2", Text: "z"}, {ID: "1", Text: "z"}}}
	p := s.plan()
	if _, err := newResponses(Plan{Settings: Settings{Samples: 1}, Suites: []suitePlan{p}}); err != nil {
		t.Errorf("names %q: %v", p.IDs, err)
	}
	if p.IDs[0] != "1" || p.IDs[1] != "1#2" {
		t.Errorf("names %q", p.IDs)
	}
	for _, change := range []func(*data.Problem){
		func(q *data.Problem) { q.ID += "x" },
		func(q *data.Problem) { q.Text += "x" },
		func(q *data.Problem) { q.Answers = []string{"7"} },
		func(q *data.Problem) { q.Plain = true },
	} {
		other := Suite{Name: "a", Problems: slices.Clone(s.Problems)}
		change(&other.Problems[2])
		if other.plan().Digest == p.Digest {
			t.Errorf("the digest does not tell %+v from %+v", other.Problems[2], s.Problems[2])
		}
	}
}
