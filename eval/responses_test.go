package eval

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/sampler"
)

func testPlan() Plan {
	return Plan{
		Settings: Settings{Model: "m", Weights: "crc32c:1", Template: "no", Samples: 3, Sampling: sampler.Sampling{Temperature: 0.6, TopP: 0.95, MaxNewTokens: 9}, Seed: 4},
		Suites:   []suitePlan{{"one", []string{"a", "b"}, "d1"}, {"two", []string{"a", "c", "d"}, "d2"}},
	}
}

// response makes up the response to a sample, which is the same in each call.
func response(suite, problem string, sample int) Response {
	r := rand.New(rand.NewPCG(uint64(sample), uint64(len(suite)*256+int(problem[0]))))
	x := Response{
		Suite: suite, Problem: problem, Sample: sample, Finish: "stop", Right: r.IntN(2) == 1,
		Answer: fmt.Sprint(r.IntN(3)), Text: "it is <" + problem + ">\n", Tokens: 1 + r.IntN(8),
	}
	for i := range x.Tokens {
		x.IDs, x.LogProb = append(x.IDs, int32(i)), append(x.LogProb, -r.Float32())
	}
	return x
}

type key struct {
	suite, problem string
	sample         int
}

func keys(p Plan) []key {
	var out []key
	for _, s := range p.Suites {
		for _, id := range s.IDs {
			for k := range p.Settings.Samples {
				out = append(out, key{s.Name, id, k})
			}
		}
	}
	return out
}

func fill(t *testing.T, r *Responses, ks []key) {
	t.Helper()
	for _, k := range ks {
		if err := r.Add(response(k.suite, k.problem, k.sample)); err != nil {
			t.Fatal(err)
		}
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// TestFileDoesNotTell: for any order of responses and any interruption, even inside a
// line, the final file is the same.
func TestFileDoesNotTell(t *testing.T) {
	p := testPlan()
	all := keys(p)
	whole := filepath.Join(t.TempDir(), "whole.jsonl")
	r := must(p.Open(whole, false))
	fill(t, r, all)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	want := must(os.ReadFile(whole))
	wantReport := string(must(encode(must(r.Report(nil)))))
	if n := bytes.Count(want, []byte("\n")); n != 1+len(all) {
		t.Fatalf("%d lines, want %d", n, 1+len(all))
	}

	random := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		path := filepath.Join(t.TempDir(), "part.jsonl")
		for interruptions := random.IntN(4); ; interruptions-- {
			r := must(p.Open(path, true))
			var left []key
			for _, s := range p.Suites {
				for i, id := range s.IDs {
					for _, k := range r.Missing(s.Name, i) {
						left = append(left, key{s.Name, id, k})
					}
				}
			}
			random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
			if interruptions > 0 {
				left = left[:random.IntN(len(left)+1)]
			}
			fill(t, r, left)
			if interruptions > 0 {
				// The process is killed: no file is closed, and the last write may be torn.
				size := must(r.file.Stat()).Size()
				r.file.Close()
				r.unlock() // as the system does
				head := int64(bytes.IndexByte(want, '\n') + 1)
				cut := head + random.Int64N(size-head+1)
				if err := os.Truncate(path, cut); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if got := string(must(encode(must(r.Report(nil))))); got != wantReport {
				t.Fatalf("report\n%s\nwant\n%s", got, wantReport)
			}
			break
		}
		if got := must(os.ReadFile(path)); !bytes.Equal(got, want) {
			t.Fatalf("file\n%s\nwant\n%s", got, want)
		}
	}
}

// TestOneWriter: two evaluations cannot write one file, even under different names.
func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "link.jsonl")
	r := must(testPlan().Open(path, false))
	names := []string{path}
	if os.Symlink(path, other) == nil {
		names = append(names, other)
	}
	for _, name := range names {
		if _, err := testPlan().Open(name, true); err == nil || !strings.Contains(err.Error(), "another process writes to it") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := must(testPlan().Open(name, true)).Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResumeRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.jsonl")
	r := must(testPlan().Open(path, false))
	fill(t, r, keys(testPlan())[:4])
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := testPlan().Open(path, false); err == nil || !strings.Contains(err.Error(), "exists: resume it") {
		t.Errorf("creating over a file: %v", err)
	}
	if _, err := r.Report(nil); err == nil || !strings.Contains(err.Error(), "4 of 15 responses are there") {
		t.Errorf("report of a part: %v", err)
	}
	before := must(os.ReadFile(path))
	for _, tt := range []struct {
		change func(*Plan)
		want   string
	}{
		{func(p *Plan) { p.Settings.Seed = 5 }, "it was made with seed 4, not 5"},
		{func(p *Plan) { p.Settings.Weights = "crc32c:2" }, "it was made with weights crc32c:1, not crc32c:2"},
		{func(p *Plan) { p.Settings.Template = "r1" }, "template no, not r1"},
		{func(p *Plan) { p.Settings.Samples = 2 }, "samples 3, not 2"},
		{func(p *Plan) { p.Settings.Greedy = true }, "greedy false, not true"},
		{func(p *Plan) { p.Settings.Temperature = 1 }, "temperature 0.6, not 1"},
		{func(p *Plan) { p.Settings.TopP = 1 }, "top_p 0.95, not 1"},
		{func(p *Plan) { p.Settings.TopK = 1 }, "top_k 0, not 1"},
		{func(p *Plan) { p.Settings.MaxNewTokens = 1 }, "max_tokens 9, not 1"},
		{func(p *Plan) { p.Suites = p.Suites[:1] }, "made with 2 suites, not 1"},
		{func(p *Plan) { p.Suites[1].Name = "three" }, `suite 2 was "two", not "three"`},
		{func(p *Plan) { p.Suites[0].Digest = "d3" }, `the problems of suite "one" have changed`},
		{func(p *Plan) { p.Suites[0].IDs = []string{"a", "x"} }, `the problems of suite "one" have changed`},
	} {
		p := testPlan()
		tt.change(&p)
		if _, err := p.Open(path, true); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
	if after := must(os.ReadFile(path)); !bytes.Equal(before, after) {
		t.Error("refusing changed the file")
	}
	// The folder of the same weights may have another name.
	p := testPlan()
	p.Settings.Model = "elsewhere/m"
	if r, err := p.Open(path, true); err != nil {
		t.Error(err)
	} else if have, want := r.Count(); have != 4 || want != 15 {
		t.Errorf("%d of %d", have, want)
	}
}

func TestReadRefuses(t *testing.T) {
	line := func(x any) string { return string(must(encode(x))) }
	head := line(planLine{responsesKind, version, testPlan()})
	good := line(response("one", "a", 0))
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "its first line is not whole"},
		{"torn head", head[:20], "its first line is not whole"},
		{"other file", "{\"a\":1}\n", `of kind ""`},
		{"no JSON", "hello\n", ":1: not JSON at byte 0"},
		{"version", line(planLine{responsesKind, 9, testPlan()}), "version 9; this program reads version 1"},
		{"no samples", line(planLine{responsesKind, version, Plan{}}), "0 samples a problem"},
		{"no JSON later", head + good + "{\"suite\"\n" + good, ":3: it ends in the middle of the JSON text (byte"},
		{"unknown suite", head + line(response("three", "a", 0)), `:2: eval: a response to suite "three"`},
		{"unknown problem", head + line(response("one", "z", 0)), `a response to problem "z"`},
		{"sample", head + line(response("one", "a", 3)), "sample 3 of 3"},
		{"negative", head + strings.Replace(good, `"sample":0`, `"sample":-1`, 1), "sample -1 of 3"},
		{"twice", head + good + good, ":3: eval: problem \"a\": sample 0 is there twice"},
	} {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		if err := os.WriteFile(path, []byte(tt.text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readResponses(path); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		change func(*Plan)
		want   string
	}{
		{func(p *Plan) { p.Suites[1].Name = "one" }, `two suites are called "one"`},
		{func(p *Plan) { p.Suites[1].IDs = nil }, `suite "two" has no problems`},
		{func(p *Plan) { p.Suites[1].IDs = []string{"a", "a"} }, `two problems "a"`},
		{func(p *Plan) { p.Settings.Samples = 0 }, "0 samples"},
		{func(p *Plan) { p.Settings.Samples = 1 << 40 }, "must be from 1 to 65536"},
	} {
		p := testPlan()
		tt.change(&p)
		if _, err := newResponses(p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// TestWriteFails: a full disk stops the evaluation and keeps the responses written
// before.
func TestWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	r := must(testPlan().Open(path, false))
	fill(t, r, keys(testPlan())[:2])
	r.file.Close()
	if err := r.Add(response("one", "a", 2)); err == nil {
		t.Fatal("no error")
	}
	again := must(readResponses(path))
	if have, _ := again.Count(); have != 2 {
		t.Errorf("%d responses, want 2", have)
	}
}

func FuzzRead(f *testing.F) {
	head := must(encode(planLine{responsesKind, version, testPlan()}))
	f.Add(append(bytes.Clone(head), must(encode(response("one", "a", 0)))...))
	f.Add([]byte(`{"kind":"onering evaluation","version":1,"settings":{"samples":1},"suites":[{"name":"","problems":[""]}]}` + "\n{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := read(bytes.NewReader(text), "f")
		if err != nil {
			return
		}
		if have, want := r.Count(); have > want || r.size > int64(len(text)) {
			t.Errorf("%d of %d responses in %d bytes", have, want, r.size)
		} else if have == want {
			if _, err := r.Report(nil); err != nil {
				t.Error(err)
			}
		}
	})
}
