package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// readAll collects what EachRow gives: the rows as "line:text" and the error.
func readAll(r io.Reader) (rows []string, err error) {
	type row struct {
		Text string `json:"text"`
	}
	err = EachRow(r, "in.jsonl", func(index, number int, line row) error {
		if index != len(rows) {
			return fmt.Errorf("row %d has the index %d", len(rows), index)
		}
		rows = append(rows, fmt.Sprintf("%d:%s", number, line.Text))
		return nil
	})
	return rows, err
}

func TestEachRow(t *testing.T) {
	for _, tt := range []struct {
		name, in, rows, err string
	}{
		{"empty", "", "[]", ""},
		{"plain", `{"text":"a"}` + "\n" + `{"text":"b"}` + "\n", "[1:a 2:b]", ""},
		{"no newline at the end", `{"text":"a"}`, "[1:a]", ""},
		{"blank lines count", "\n" + `{"text":"a"}` + "\n\n\n" + `{"text":"b"}`, "[2:a 5:b]", ""},
		{"carriage returns", "{\"text\":\"a\"}\r\n{\"text\":\"b\"}\r\n", "[1:a 2:b]", ""},
		{"byte order mark", "\ufeff{\"text\":\"a\"}\n", "[1:a]", ""},
		{"other line separators stay inside", "{\"text\":\"a\u2028b\u0085c\"}\n", "[1:a\u2028b\u0085c]", ""},
		{"fields of its own", `{"text":"a","level":3}`, "[1:a]", ""},
		{"Latin-1", "{\"text\":\"a\"}\n{\"text\":\"\xe9\"}\n", "[1:a]", "in.jsonl:2: not UTF-8"},
		{"syntax", `{"text":"a"}` + "\n" + `{"text":` + "\n", "[1:a]", "in.jsonl:2: it ends in the middle of the JSON text (byte 8)"},
		{"two on a line", `{"text":"a"} {"text":"b"}`, "[]", "in.jsonl:1: more text follows the JSON value, at byte 13"},
		{"wrong kind of field", `{"text":7}`, "[]", `in.jsonl:1: text is 7, not a text`},
		{"not an object", `[1]`, "[]", "in.jsonl:1: the text is a list, not an object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows, err := readAll(strings.NewReader(tt.in))
			if got := fmt.Sprint(rows); got != tt.rows {
				t.Errorf("rows %s, want %s", got, tt.rows)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// endless is a stream of one letter, without a newline.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestEachRowLong(t *testing.T) {
	long := strings.Repeat("x", 1<<20) // a line much longer than the reader's buffer
	rows, err := readAll(strings.NewReader(`{"text":"` + long + `"}` + "\n"))
	if err != nil || len(rows) != 1 || rows[0] != "1:"+long {
		t.Errorf("a line of 1 MB: %d rows, error %v", len(rows), err)
	}
	if testing.Short() {
		t.Skip("reads 64 MB")
	}
	if _, err := readAll(endless{}); err == nil || err.Error() != "in.jsonl:1: line longer than 64 MB" {
		t.Errorf("endless line: error %v", err)
	}
}

// Answers come in the order of the rows, in whatever order they are ready. A row with an
// error gets one line, however many lines other rows get.
func TestAnswers(t *testing.T) {
	var w bytes.Buffer
	a := Answers{Name: "in.jsonl", Lines: 2, Numbered: true}
	if err := a.Fail(1, 7, errors.New("no prompt")); err != nil {
		t.Fatal(err)
	}
	a.Out = &w
	for _, x := range [][2]int{{2, 1}, {0, 1}, {0, 0}, {2, 0}} {
		if err := a.Give(x[0], x[1], x); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Fail(3, 9, errors.New("another")); err != nil {
		t.Fatal(err)
	}
	want := "[0,0]\n[0,1]\n" + `{"index":1,"error":"no prompt"}` + "\n[2,0]\n[2,1]\n" + `{"index":3,"error":"another"}` + "\n"
	if got := w.String(); got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if err := a.Err(); err == nil || err.Error() != "in.jsonl:7: no prompt; 2 lines have errors" {
		t.Errorf("error %v", err)
	}
}
