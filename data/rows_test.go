package data

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"onering/tokenize"
)

// Each part of a row is in the prompt, or is named.
func TestPartsOfPrompts(t *testing.T) {
	const asked = `[{"role": "user", "content": "q"}]`
	for _, c := range []struct{ row, want, unread string }{
		{`{"prompt": "q", "answer": 1}`, `q`, ""},
		{`{"system": "S", "prompt": "q", "answer": 1}`, `system: S|user: q`, ""},
		{`{"System Prompt": "S", "question": "q", "answer": 1}`, `system: S|user: q`, ""},
		{`{"system": "", "history": [], "query": "q", "answer": 1}`, `q`, ""},
		{`{"history": [["a", "b"]], "query": "q", "answer": 1}`, `user: a|assistant: b|user: q`, ""},
		{`{"history": "[['a', 'b']]", "problem": "q", "answer": 1}`, `user: a|assistant: b|user: q`, ""},
		{`{"history": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "query": "q", "answer": 1}`, `user: a|assistant: b|user: q`, ""},
		{`{"history": [["a", "b"]], "system": "S", "messages": ` + asked + `, "answer": 1}`, `system: S|user: a|assistant: b|user: q`, ""},
		{`{"history": [["a", "b"]], "system": "S", "prompt": [{"role": "system", "content": "T"}, {"role": "user", "content": "q"}], "answer": 1}`,
			`system: T|user: a|assistant: b|user: q`, "system"},
		{`{"prompt": "q", "shown": "x", "answer": 1}`, `q`, ""}, // the template shows it
		{`{"prompt": "[{'role': 'user', 'content': 'It\\'s \\x41'}]", "answer": 1}`, `user: It's A`, ""},
		{`{"prompt": "[{'role': 'user', 'content': \"It's\", 'ok': True}\n {'role': 'assistant', 'content': 'a'}\n {'content': 'q', 'role': 'user', 'n': None}]", "answer": 1}`,
			`user: It's|assistant: a|user: q`, ""},
		{`{"prompt": "[{'role': 'user', 'content': 'cut", "answer": 1}`, "error: " + oddText, ""},
		{`{"prompt": [{"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image"}]}], "answer": 1}`, `error: a message has a part of type "image"`, ""},
		{`{"prompt": ` + asked + `, "tools": "[x", "answer": 1}`, "error: not a conversation: the column tools is a text", ""},
		{`{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": "[{\"function\": {\"name\": \"f\"}}]"}, {"role": "tool", "content": "q"}], "answer": 1}`,
			`user: a|assistant: |tool: q`, ""},
		{`{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": "[x"}, {"role": "user", "content": "q"}], "answer": 1}`, "error: the tool_calls of a message", ""},
		{`{"prompt": "q", "answer": 1, "images": ["a.png"], "context": "c", "level": null, "data_source": "x", "solution": "s"}`, `q`, "images, context, solution"},
		{`{"prompt": "q", "answer": "['1' \"2's\"]"}`, `q`, ""},
		{`{"prompt": "({'role': 'user', 'content': 'q'},)", "answer": 1}`, `user: q`, ""},
		{`{"prompt": "array([{'role': 'user', 'content': 'q'}], dtype=object)", "answer": 1}`, "error: " + oddText, ""},
		{`{"prompt": "{'role': 'user', 'content': 'q'}", "answer": 1}`, "error: " + oddText, ""},
		{`{"prompt": "{\"a\": 1} is the role: of what?", "answer": 1}`, `{"a": 1} is the role: of what?`, ""},
		{`{"history": [{"user": "a", "bot": "b"}], "query": "q", "answer": 1}`, "error: " + oddHistory, ""},
		{`{"history": "of Rome", "system": {"a": 1}, "query": "q", "answer": 1}`, `q`, "history, system"},
		{`{"system": [{"type": "text", "text": "S"}], "query": "q", "answer": 1}`, `system: S|user: q`, ""},
	} {
		rows, report, err := Load(write(t, "x.jsonl", c.row), Options{Keep: []string{"shown"}})
		if want, fails := strings.CutPrefix(c.want, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", c.row, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.row, err)
			continue
		}
		got := rows[0].Text
		if rows[0].Chat != nil {
			var turns []string
			for _, m := range rows[0].Chat.Messages {
				turns = append(turns, m.Role+": "+m.Content)
			}
			got = strings.Join(turns, "|")
		}
		if got != c.want || strings.Join(report.Unread, ", ") != c.unread {
			t.Errorf("%s: %q, want %q; unread %q, want %q", c.row, got, c.want, report.Unread, c.unread)
		}
	}
}

// A named column of working gives the answer in it, or is found by Check.
func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"First add the two.\nSo we get 3. The answer is 5": "5", "Add them: it is \\boxed{7}, as is easily seen by all. Done.": "7",
		"red": "red", "x = 1\ny = 2": "x = 1\ny = 2", "See the long text of the book.\nIt says so on page twelve": "prose",
	} {
		row, _ := json.Marshal(map[string]string{"query": "q", "response": text})
		o := Options{Columns: Columns{Answer: "response"}}
		path := write(t, "x.jsonl", string(row))
		if rows, _, err := Load(path, Options{Columns: o.Columns, AsWritten: true}); err != nil || rows[0].Answers[0] != text {
			t.Errorf("%q as it is written: %v, %v", text, rows, err)
		}
		rows, _, err := Load(path, o)
		report, failed := Check(path, CheckOptions{Options: o})
		if isProse := want == "prose"; err != nil || failed != nil || (report.Prose.Rows == 1) != isProse || !isProse && rows[0].Answers[0] != want {
			t.Errorf("%q: %v, %v, %v", text, rows, err, report)
		}
	}
}

// What Check refuses, training refuses, and each finding has a line of its own.
func TestRefused(t *testing.T) {
	good := `{"problem": "p", "answer": "a"}` + "\n"
	for _, c := range []struct{ text, template, want, line string }{
		{good, "no", "", "nothing wrong found"},
		{good + good + "{}", "no", "", "1 dropped"},
		{good + "{}\n{}", "no", "2 of the 3 rows have no problem or no answer", "2 dropped"},
		{good + "nope", "no", "a line that cannot be read, and there are 1", "not readable"},
		{good, "Q {nope}", "the template makes no prompt, and there are 1", "1 rows without a column that the template names"},
		{"{}", "no", "no column looks like", ""},
		{`{"problem": "p", "answer": "a", "system": "S"}`, "r1", "the template makes no prompt, and there are 1", "the template \"r1\" takes one text"},
		{`{"problem": "p", "answer": "a", "system": "S"}`, "auto", "", "nothing wrong found"},
		{`{"problem": "p", "answer": [4, 2]}`, "no", "", "1 rows have several answers, each of which is right alone"},
		{`{"problem": "p", "answer": 1, "images": [1]}`, "no", "", "columns that are not read: images; the model sees texts alone"},
	} {
		template, err := tokenize.ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		path := write(t, "x.jsonl", c.text)
		report, err := Check(path, CheckOptions{Template: template})
		if err == nil {
			err = report.Refused(path)
		}
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) || !strings.Contains(report.String(), c.line) {
			t.Errorf("%q: %v, want %q\n%v", c.text, err, c.want, report)
		}
	}
}

// Demonstrations with an empty part, or without a turn to learn, are left out and counted.
func TestEmptyDemonstrations(t *testing.T) {
	for _, c := range []struct{ rows, dropped string }{
		{`{"instruction": "a", "output": ""}` + "\n" + `{"instruction": "b", "output": "x"}` + "\n" + `{"instruction": "c", "output": null}`, `no response (column "output")`},
		{`{"prompt": "a", "completion": "x"}` + "\n" + `{"prompt": "", "completion": "x"}`, `no prompt (column "prompt")`},
		{`{"text": "a"}` + "\n" + `{"text": ""}`, `no text (column "text")`},
		{`{"messages": [{"role": "user", "content": "a"}]}` + "\n" + `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`,
			`"messages" has no message {"role": "assistant", "content": ...}, and no column looks like the response (have ["messages"], looked for ["response" "completion" "output" "solution" "answer"]): name it with --response of onering sft, or rename it`},
		{`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}` + "\n" +
			`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]}`, "its messages say that no turn of the assistant is learned"},
	} {
		path := write(t, "x.jsonl", c.rows)
		list, report, err := LoadDemonstrations(path, DemonstrationColumns{}, Options{OnBad: func(error) {}})
		if n := strings.Count(c.rows, "\n"); err != nil || len(list) != 1 || report.Dropped[c.dropped] != n {
			t.Errorf("%s: %d rows, %v, %v", c.rows, len(list), report, err)
		}
		if _, _, err := LoadDemonstrations(path, DemonstrationColumns{}, Options{}); err == nil || !strings.HasSuffix(err.Error(), c.dropped) {
			t.Errorf("%s: error %v", c.rows, err)
		}
	}
	_, report, err := LoadDemonstrations(write(t, "x.jsonl", `{"query": "q", "response": "a", "images": ["x"], "score": 1, "filtered": 2}`), DemonstrationColumns{}, Options{Filter: "filtered == 2"})
	if err != nil || fmt.Sprint(report.Unread) != "[images score]" {
		t.Errorf("%v, unread %q", err, report.Unread)
	}
}

// Folders are read as their names and cards say.
func TestFoldersOfRepositories(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		os.MkdirAll(filepath.Dir(path), 0o777)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"splits/train/a", "splits/test/a", "inner/data/train/a", "inner/data/test/a", "subsets/main/train-0", "subsets/socratic/train-0",
		"beside/problems", "beside/test", "card/data/abc", "card/data/def", "card/data/held", "several/a/x", "several/b/x", "several/b/y", "default/a/x", "default/b/x", "card/data/notes/z"} {
		put(name+".jsonl", `{"problem": "`+name+`", "answer": 1}`)
	}
	put("card/README.md", "---\r\nconfigs:\r\n- config_name: default\r\n  data_files:\r\n  - split: train\r\n    path: [data/abc.*, data/def.jsonl]\r\n  - split: test\r\n    path: '**/held*'\r\n---\r\n# card")
	put("card/data/held.txt", "notes")
	put("several/README.md", "---\nconfigs:\n- config_name: a\n  data_files: a/*\n- config_name: b\n  data_files: [b/x.jsonl]\n- config_name: none\n  data_files: c/*\n---\n")
	put("default/README.md", "---\nconfigs:\n- config_name: a\n  data_files: a/*\n- config_name: b\n  default: true\n  data_files: b/*\n---\n")
	put("subsets/README.md", "---\nlicense: mit\n---\n")
	put("beside/README.md", "--- no card")
	put("bad/README.md", "---\na: [\n---\n")
	for _, c := range []struct{ path, split, want string }{
		{"splits", "train", "splits/train/a"}, {"splits", "", `error: several splits, ["test" "train"]`}, {"splits/train", "", "splits/train/a"},
		{"inner", "test", "inner/data/test/a"}, {"subsets", "", `error: name one of its folders ["main" "socratic"]`}, {"subsets/main", "train", "subsets/main/train-0"},
		{"beside", "", `error: several splits, ["test" "train"]`}, {"beside", "train", "beside/problems"}, {"bad", "", "error: README.md: its head is not a data card in YAML"},
		{"card", "train", "card/data/abc card/data/def"}, {"card", "test", "card/data/held"}, {"card", "", "error: several splits"}, {"card", "dev", `error: no split "dev"`},
		{"several", "", `error: several configurations, ["a" "b"]`}, {"default", "", "default/b/x"}, {"default", "test", `error: no split "test"`},
		{"beside/*.jsonl", "test", "beside/test"}, {"beside/*.jsonl", "", "beside/problems beside/test"}, {"beside/test.jsonl", "train", `error: no split "train"`}, {"card/data/abc.jsonl", "train", "card/data/abc"},
	} {
		rows, _, err := Load(filepath.Join(dir, filepath.FromSlash(c.path)), Options{Columns: Columns{storage: storage{Split: c.split}}})
		got := ""
		for _, p := range rows {
			got += " " + p.Text
		}
		want, fails := strings.CutPrefix(c.want, "error: ")
		if fails != (err != nil) || fails && !strings.Contains(err.Error(), want) || !fails && strings.TrimSpace(got) != want {
			t.Errorf("%s, split %q: %q, %v, want %q", c.path, c.split, got, err, c.want)
		}
	}
}

// Files that are not data, or that were joined, are named or read.
func TestForeignFiles(t *testing.T) {
	row := `{"problem": "p", "answer": "a"}` + "\n"
	var tarred, packed bytes.Buffer
	w := tar.NewWriter(&tarred)
	w.WriteHeader(&tar.Header{Name: "train.jsonl", Size: int64(len(row)), Mode: 0o666})
	w.Write([]byte(row))
	w.Close()
	z := zip.NewWriter(&packed)
	z.Create("train.jsonl")
	z.Close()
	type named struct {
		Problem string `parquet:"problem"`
		Answer  string `parquet:"answer"`
		Other   string `parquet:"answex"`
		Reward  struct {
			One string `parquet:"truth"`
			Two string `parquet:"trutx"`
		} `parquet:"reward"`
	}
	var columns bytes.Buffer
	if err := parquet.Write(&columns, []named{{Problem: "p", Answer: "a", Other: "b"}}); err != nil {
		t.Fatal(err)
	}
	lfs := "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 12345\n"
	for _, c := range []struct{ name, text, want string }{
		{"a.jsonl", lfs, "git lfs pull"}, {"a.csv", lfs, "git lfs pull"}, {"a.parquet", lfs, "git lfs pull"},
		{"a.json", "<!DOCTYPE html>\n<html>", "a web page"}, {"a.jsonl", "Access to dataset x is restricted.", "refused the file"},
		{"a.jsonl", "Too many requests, come back later.\n", `not a JSON object but "Too many requests, come back later."`},
		{"a.jsonl.gz", zipped(tarred.String()), "a tar archive"}, {"a.tar", tarred.String(), "a tar archive"}, {"a.zip", packed.String(), "a zip archive"},
		{"a.jsonl", "\ufeff" + row + "\ufeff" + row, ""}, {"a.csv", "\ufeffproblem,answer\np,a\n\ufeffp,a\n", ""},
		{"a.csv", "problem,answer\np,a\n\ufeffproblem,answer\np,a\n", "line 3: it repeats the header"},
		{"a.parquet", strings.ReplaceAll(columns.String(), "answex", "answer"), `two columns are named "answer"`},
		{"a.parquet", strings.ReplaceAll(columns.String(), "trutx", "truth"), `two columns are named "truth"`},
		{"a.tsv", "Roger has 5 balls?\t11\nB?\t2\n", "the first line of the file is read as the names of the columns"},
		{"a.jsonl", "[" + `[{"from": "human", "value": "q"}]]`, `row 1: a list, and a row is an object`},
	} {
		rows, _, err := Load(write(t, c.name, c.text), Options{})
		if c.want == "" && (err != nil || len(rows) != 2 || rows[1].Text != "p") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %.40q: %v, %v, want %q", c.name, c.text, rows, err, c.want)
		}
	}
}
