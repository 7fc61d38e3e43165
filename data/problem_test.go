package data

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Checkpoints hold the digest of their problems, so it may never change.
func TestDigest(t *testing.T) {
	list := List{
		{ID: "x:1", Text: "1+1?", Answers: []string{"2", "two"}, File: "x.jsonl", Line: 1},
		{ID: "x:2", Text: "<0?", Plain: true},
	}
	const want = "sha256:1d21d9ca132df5067d43231c9034dece093a5a921a58c57be161480fb7e0e005"
	if got := list.Digest(); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	for _, change := range []func(*Problem){
		func(p *Problem) { p.ID += "x" },
		func(p *Problem) { p.Text += "x" },
		func(p *Problem) { p.Answers = []string{"7"} },
		func(p *Problem) { p.Plain = false },
	} {
		other := slices.Clone(list)
		change(&other[1])
		if other.Digest() == want {
			t.Errorf("the digest does not tell %+v from %+v", other[1], list[1])
		}
	}
	other := slices.Clone(list)
	other[0].Fields, other[0].File, other[0].Line = Object{{"level", "5"}}, "y.parquet", 7
	if other.Digest() != want {
		t.Error("the digest depends on other columns, or on the file")
	}
	if got := (sums{}).Digest(); got != "train.sums" {
		t.Errorf("the embedded task has the digest %q", got)
	}
}

// Each pass over a list has a separate order, which follows from the seed.
func TestTake(t *testing.T) {
	var list List
	for i := range 10 {
		list = append(list, Problem{ID: fmt.Sprint(i)})
	}
	ids := func(seed int64, first, n int) (out []string) {
		for _, p := range list.Take(seed, first, n) {
			out = append(out, p.ID)
		}
		return out
	}
	all := ids(1, 0, 30)
	if got := ids(1, 7, 16); !slices.Equal(got, all[7:23]) {
		t.Errorf("from place 7: %q, want %q", got, all[7:23])
	}
	for pass := range 3 {
		if got := slices.Sorted(slices.Values(all[10*pass : 10*pass+10])); len(slices.Compact(got)) != 10 {
			t.Errorf("pass %d has %q", pass, got)
		}
	}
	if slices.Equal(all[:10], all[10:20]) || slices.Equal(all, ids(2, 0, 30)) {
		t.Error("two passes or two seeds have the same order")
	}
}

// The embedded task and a file give problems of the same type, fields included.
func TestArithmeticProblems(t *testing.T) {
	problems, _, err := OpenProblems("builtin:arithmetic", Options{}, true)
	if err != nil {
		t.Fatal(err)
	}
	p := problems.Take(0, 5, 1)[0]
	if again := problems.Take(0, 0, 6)[5]; !reflect.DeepEqual(p, again) {
		t.Errorf("place 5 is %+v and %+v", p, again)
	}
	answer, _ := p.Fields.Get("answer")
	if !p.Plain || p.ID != p.Text || len(p.Answers) != 1 || answer != p.Answers[0] {
		t.Errorf("%+v", p)
	}
	if _, _, err := OpenProblems("builtin:algebra", Options{}, false); err == nil || !strings.Contains(err.Error(), `"builtin:arithmetic"`) {
		t.Errorf("error %v", err)
	}
}

// A column that takes more memory than all columns may take is left out of every row, and
// named. The prompt is held once, however long it is.
func TestFieldsAreBounded(t *testing.T) {
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, `{"problem": "%s", "answer": "%d", "level": %d, "trace": "%s", "tags": ["%s"]}`+"\n",
			strings.Repeat("p", 4000), i, i%5, strings.Repeat("x", 1000*i), strings.Repeat("y", 3000))
	}
	path := write(t, "x.jsonl", lines.String())
	whole, report, err := Load(path, Options{})
	if err != nil || len(report.LeftOut) > 0 || len(whole[19].Fields) != 5 {
		t.Fatalf("%v, left out %q, fields %d", err, report.LeftOut, len(whole[19].Fields))
	}
	for _, tt := range []struct {
		budget int
		want   []string
		fields string // that are kept
	}{
		{1 << 20, nil, "problem answer level trace tags"},
		{100_000, []string{"trace"}, "problem answer level tags"},
		{20_000, []string{"tags", "trace"}, "problem answer level"},
		{1, []string{"tags", "trace", "answer", "level"}, "problem"},
	} {
		memory := fieldMemory{budget: tt.budget, bytes: map[string]int{}}
		var problems []Problem
		for _, p := range whole {
			p.Fields = slices.Clone(p.Fields)
			problems = append(problems, p)
			memory.countNewest(problems, []string{"problem"})
		}
		slices.Sort(memory.leftOut)
		slices.Sort(tt.want)
		if !slices.Equal(memory.leftOut, tt.want) {
			t.Errorf("%d bytes: left out %q, want %q", tt.budget, memory.leftOut, tt.want)
		}
		for i, p := range problems {
			if got := strings.Join(columnNames(p.Fields), " "); got != tt.fields {
				t.Errorf("%d bytes: row %d has %q, want %q", tt.budget, i, got, tt.fields)
			}
		}
		if memory.total > tt.budget {
			t.Errorf("%d bytes are kept of %d", memory.total, tt.budget)
		}
	}
}
