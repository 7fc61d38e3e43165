package rl

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"pgregory.net/rapid"

	"onering/data"
	"onering/internal/settings"
)

// part makes n problems; their column level is n-i for problem i.
func part(name string, n int, weight float64) filePart {
	p := filePart{File: TrainFile{Path: name, Name: name, Weight: weight}}
	for i := range n {
		p.Problems = append(p.Problems, data.Problem{
			ID: fmt.Sprintf("%s:%d", name, i), Text: "t", Answers: []string{"1"},
			Fields: data.Object{{Name: "level", Value: fmt.Sprint("Level ", n-i)}},
		})
	}
	markSource(name, p.Problems)
	return p
}

func mustNew(t interface{ Fatal(...any) }, parts []filePart, o orderOptions) *problemOrder {
	order, err := newOrder(parts, o)
	if err != nil {
		t.Fatal(err)
	}
	return order
}

func ids(problems []data.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.ID)
	}
	return out
}

// drawn returns the names of the problems of the first rounds.
func drawn(o *problemOrder, rounds int) []string {
	var out []string
	for n := range rounds {
		out = append(out, ids(o.Round(n))...)
	}
	return out
}

// TrainFiles without weights form one list: every pass draws each problem once. A single file
// is drawn as package data draws it.
func TestConcatenated(t *testing.T) {
	a, b := part("a", 7, 0), part("b", 3, 0)
	o := mustNew(t, []filePart{a, b}, orderOptions{Seed: 5, PerRound: 10})
	for n := range 3 {
		got := ids(o.Round(n))
		slices.Sort(got)
		if want := append(ids(a.Problems), ids(b.Problems)...); !slices.Equal(got, want) {
			t.Errorf("pass %d has %q", n, got)
		}
	}
	o = mustNew(t, []filePart{a}, orderOptions{Seed: 5, PerRound: 4})
	if got, want := drawn(o, 6), ids(a.Problems.Take(5, 0, 24)); !slices.Equal(got, want) {
		t.Errorf("a single file: %q, want %q", got, want)
	}
	if got, want := o.Digest(), a.Problems.Digest(); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// weighted draws from sources with weights and, perhaps, from files that share the rest of the
// weight.
func weighted(t *rapid.T) []filePart {
	var parts []filePart
	n := rapid.IntRange(1, 5).Draw(t, "weighted files")
	for i := range n {
		parts = append(parts, part(fmt.Sprint("w", i), rapid.IntRange(1, 30).Draw(t, "problems"), rapid.Float64Range(0.01, 1).Draw(t, "weight")))
	}
	if rapid.Bool().Draw(t, "others") {
		for i := range parts {
			parts[i].File.Weight /= float64(n + 1)
		}
		for i := range 2 {
			parts = append(parts, part(fmt.Sprint("rest", i), rapid.IntRange(1, 30).Draw(t, "problems"), 0))
		}
	}
	return parts
}

// shares returns the share of the draws that each source should have.
func shares(parts []filePart) map[string]float64 {
	out, sum, rest := map[string]float64{}, 0.0, 0
	for _, p := range parts {
		if p.File.Weight == 0 {
			rest += len(p.Problems)
		}
		sum += p.File.Weight
	}
	for _, p := range parts {
		switch {
		case p.File.Weight == 0:
			out[p.File.Name] = (1 - sum) * float64(len(p.Problems)) / float64(rest)
		case rest == 0:
			out[p.File.Name] = p.File.Weight / sum
		default:
			out[p.File.Name] = p.File.Weight
		}
	}
	return out
}

// After any number of places, a weighted file has had its share to within one draw of
// each source. Each file is passed over completely.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := weighted(t)
		o := mustNew(t, parts, orderOptions{Seed: rapid.Int64Range(0, 100).Draw(t, "seed"), PerRound: rapid.IntRange(1, 50).Draw(t, "per round")})
		want, got := shares(parts), map[string]float64{}
		seen := map[string]map[string]int{}
		for k, id := range drawn(o, 400/o.options.PerRound+1) {
			name, _, _ := strings.Cut(id, ":")
			got[name]++
			if seen[name] == nil {
				seen[name] = map[string]int{}
			}
			seen[name][id]++
			for _, p := range parts {
				if off := math.Abs(got[p.File.Name] - float64(k+1)*want[p.File.Name]); p.File.Weight > 0 && off > float64(len(parts)) {
					t.Fatalf("after %d places %s was drawn %v times, want %v", k+1, p.File.Name, got[p.File.Name], float64(k+1)*want[p.File.Name])
				}
			}
			// No problem is drawn again before all others of its source were.
			for _, p := range parts {
				least, most := math.MaxInt, 0
				for _, q := range p.Problems {
					n := seen[p.File.Name][q.ID]
					least, most = min(least, n), max(most, n)
				}
				if most > least+1 {
					t.Fatalf("after %d places a problem of %s was drawn %d times, another %d", k+1, p.File.Name, most, least)
				}
			}
		}
	})
}

// The problem at a place depends neither on how many are drawn at a time nor on whether
// earlier ones were drawn.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts, seed := weighted(t), rapid.Int64Range(0, 9).Draw(t, "seed")
		all := ids(mustNew(t, parts, orderOptions{Seed: seed, PerRound: 300}).Round(0))
		per := rapid.IntRange(1, 40).Draw(t, "per round")
		o := mustNew(t, parts, orderOptions{Seed: seed, PerRound: per})
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 300/per-1), 1, 5).Draw(t, "rounds") {
			if got, want := ids(o.Round(n)), all[n*per:(n+1)*per]; !slices.Equal(got, want) {
				t.Fatalf("round %d of %d: %q, want %q", n, per, got, want)
			}
		}
	})
}

// The digest depends on shares and order, and not on names of files.
func TestDigest(t *testing.T) {
	digest := func(parts ...filePart) string { return mustNew(t, parts, orderOptions{PerRound: 1}).Digest() }
	base := digest(part("a", 3, 0.5), part("b", 3, 0.5))
	if base != digest(part("a", 3, 2), part("b", 3, 2)) {
		t.Error("equal shares have different digests")
	}
	for _, other := range []string{
		digest(part("a", 3, 0.4), part("b", 3, 0.6)), digest(part("b", 3, 0.5), part("a", 3, 0.5)),
		digest(part("a", 3, 0), part("b", 3, 0)), digest(part("a", 4, 0.5), part("b", 3, 0.5)),
	} {
		if other == base {
			t.Error("other problems or shares have the same digest")
		}
	}
}

// A curriculum puts easy problems first: in a run of one pass, each round is harder than
// the one before, and a longer run repeats no problem within a round.
func TestCurriculum(t *testing.T) {
	for _, tt := range []struct{ problems, perRound, rounds int }{{100, 10, 10}, {100, 10, 5}, {100, 10, 40}, {95, 10, 33}, {5, 10, 4}, {1000, 3, 20}} {
		for _, by := range []string{"level", "-level"} {
			o := mustNew(t, []filePart{part("a", tt.problems, 0)}, orderOptions{Seed: 3, PerRound: tt.perRound, Rounds: tt.rounds, Curriculum: by})
			last, count := 0.0, map[string]int{}
			for n := range tt.rounds {
				mean, here := 0.0, map[string]bool{}
				for _, p := range o.Round(n) {
					value, _ := p.Fields.Get("level")
					x, _ := data.Number(value)
					if by == "-level" {
						x = float64(tt.problems) + 1 - x
					}
					mean += x / float64(tt.perRound)
					here[p.ID] = true
					count[p.ID]++
				}
				// A stage has at least as many problems as a round; the round may end in the next
				// stage.
				slack := 2 * float64(tt.perRound)
				if mean < last-slack || tt.problems > 5 && len(here) < tt.perRound*3/4 {
					t.Errorf("%+v by %s: round %d has difficulty %.1f after %.1f, %d different problems", tt, by, n, mean, last, len(here))
				}
				last = max(last, mean)
			}
			if last < 0.8*float64(tt.problems) && tt.problems > 5 {
				t.Errorf("%+v by %s: the hardest round has difficulty %.1f", tt, by, last)
			}
			expected := float64(tt.rounds*tt.perRound) / float64(tt.problems)
			for id, n := range count {
				if math.Abs(float64(n)-expected) > 2 {
					t.Errorf("%+v by %s: %s was drawn %d times, expected %.1f", tt, by, id, n, expected)
				}
			}
		}
	}
	for column, want := range map[string]string{
		"grade": `problem "a:`, "-grade": `has no column "grade"`, "id": `which is not a number`,
	} {
		p := part("a", 3, 0)
		for i := range p.Problems {
			p.Problems[i].Fields = append(p.Problems[i].Fields, data.Member{Name: "id", Value: "x"})
		}
		if _, err := newOrder([]filePart{p}, orderOptions{PerRound: 1, Rounds: 1, Curriculum: column}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("curriculum %q: %v", column, err)
		}
	}
}

// A problem that is flat (all its rewards are equal) n times in a row is left out of n
// passes and then drawn once; any other problem is drawn in every pass.
func TestRest(t *testing.T) {
	for _, rests := range []int{1, 2, 3} {
		const problems = 6
		o := mustNew(t, []filePart{part("a", problems, 0)}, orderOptions{Seed: 1, PerRound: 1, Rest: rests})
		var passes []int // the passes over the awake problems in which problem a:0 was drawn
		pass, others := 0, 0
		for n := range 600 {
			p := o.Round(n)[0]
			if p.ID == "a:0" {
				passes = append(passes, pass)
				o.Learned([]measure{untaught})
				continue
			}
			o.Learned([]measure{taught})
			if others++; others%(problems-1) == 0 {
				pass++
			}
		}
		// The passes are counted by draws of the other problems, so a pass may be off by one.
		for i := 1; i < len(passes); i++ {
			want := 1
			if i >= rests {
				want = rests + 1
			}
			if d := passes[i] - passes[i-1]; d < want-1 || d > want+1 {
				t.Errorf("rest %d: draws of the flat problem in passes %v", rests, passes)
				break
			}
		}
		share := float64(len(passes)) / float64(pass)
		if want := 1 / float64(rests+1); math.Abs(share-want) > 0.06 {
			t.Errorf("rest %d: drawn in %.3f of the passes, want %.3f", rests, share, want)
		}
	}
	// If all problems rest, the order continues.
	o := mustNew(t, []filePart{part("a", 4, 0)}, orderOptions{PerRound: 4, Rest: 1})
	count := map[string]int{}
	for n := range 20 {
		for _, p := range o.Round(n) {
			count[p.ID]++
		}
		o.Learned([]measure{untaught, untaught, untaught, untaught})
		if n == 0 && o.Resting() != 4 {
			t.Errorf("%d rest after a round without a difference", o.Resting())
		}
	}
	for id, n := range count {
		if n < 10 || len(count) < 4 {
			t.Errorf("%s was drawn %d times of 80", id, n)
		}
	}
	// Unmeasured problems do not change which problems rest.
	o = mustNew(t, []filePart{part("a", 4, 0)}, orderOptions{PerRound: 4, Rest: 1})
	o.Round(0)
	o.Learned(make([]measure, 4))
	if o.Resting() != 0 {
		t.Error("problems rest that were not measured")
	}
}

// teaches is a rule for how much a problem teaches; its answers change over the rounds.
func teaches(problems []data.Problem, round int) []measure {
	out := make([]measure, len(problems))
	for i, p := range problems {
		h := round / 7
		for _, c := range p.ID {
			h = h*31 + int(c)
		}
		out[i] = measure(uint(h) % 3)
	}
	return out
}

// A run that is stopped anywhere and continued from its state draws the same as a
// straight run. Drawing a round again changes nothing.
func TestResume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := weighted(t)
		options := orderOptions{Seed: rapid.Int64Range(0, 9).Draw(t, "seed"), PerRound: rapid.IntRange(1, 20).Draw(t, "per round"), Rounds: 40, Rest: rapid.IntRange(0, 3).Draw(t, "rest")}
		if rapid.Bool().Draw(t, "curriculum") {
			options.Curriculum = "level"
		}
		straight, resumed := mustNew(t, parts, options), mustNew(t, parts, options)
		stops := rapid.SliceOfN(rapid.IntRange(0, 39), 1, 5).Draw(t, "stops")
		for n := range 40 {
			want := straight.Round(n)
			if slices.Contains(stops, n) {
				resumed.Round(n) // The checkpoint is taken inside round n.
				state := resumed.State()
				resumed = mustNew(t, parts, options)
				if err := resumed.Restore(state); err != nil {
					t.Fatal(err)
				}
				if again := resumed.State(); again != state {
					t.Fatalf("state %s became %s", state, again)
				}
			}
			if got := resumed.Round(n); !slices.Equal(ids(got), ids(want)) {
				t.Fatalf("round %d: %q, want %q", n, ids(got), ids(want))
			}
			m := teaches(want, n)
			straight.Learned(m)
			resumed.Learned(m)
		}
		if (straight.State() == "") != (options.Rest == 0) {
			t.Errorf("state %q with rest = %d", straight.State(), options.Rest)
		}
	})
}

// A state that does not fit these problems is an error, never a panic.
func TestRestoreRefuses(t *testing.T) {
	o := mustNew(t, []filePart{part("a", 3, 0)}, orderOptions{PerRound: 1, Rest: 1})
	for _, bad := range []string{
		"x", "{}", "[]", `[{"stage":1}]`, `[{"stage":-1}]`, `[{"cursor":-1}]`, `[{"flat":[[3,1,1]]}]`, `[{"flat":[[-1,1,1]]}]`, `[{"flat":[[0,1,-1]]}]`, `[{},{}]`,
	} {
		if err := o.Restore(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	o.Round(0) // still works
}

// The forms cover how a run file may state files, and how run.toml states them.
func TestFiles(t *testing.T) {
	for text, want := range map[string]string{
		`"a.jsonl"`:                  `"a.jsonl"`,
		`["a.jsonl"]`:                `"a.jsonl"`,
		`["a\"b.jsonl", "c"]`:        `["a\"b.jsonl", "c"]`,
		`{path = "a"}`:               `"a"`,
		`[{path = "a", weight = 1}]`: `[{path = "a", weight = 1.0}]`,
		`["a", {split = "train", path = "b", weight = 0.3, filter = "level in 3..5", prompt = "q", answer = "s", id = "i", name = "n", prompts = 7}]`: `["a", {path = "b", name = "n", weight = 0.3, filter = "level in 3..5", prompts = 7, prompt = "q", answer = "s", id = "i", split = "train"}]`,
	} {
		var c struct{ Train TrainFiles }
		if _, err := toml.Decode("train = "+text, &c); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := c.Train.MarshalTOML()
		if err != nil || string(got) != want {
			t.Errorf("%s is written as %s (%v), want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`7`:                               "7: must be a file in quotes, or a list of files and tables such as",
		`["a", 7]`:                        "element 2: 7: must be a file",
		`["a", {weight = 1, wieght = 2}]`: `element 2: unknown key "wieght"; did you mean "weight"?; a file has path, name, weight`,
		`[{path = "a", weight = "x"}]`:    `weight = "x": must be a number`,
		`[{path = "a", prompts = 1.5}]`:   "prompts = 1.5: must be a whole number",
		`[["a"]]`:                         "must be a file in quotes",
		`"[a.jsonl,b.jsonl]"`:             `[a.jsonl,b.jsonl] is not TOML: must be a file in quotes, or a list`,
	} {
		var c struct{ Train TrainFiles }
		if _, err := toml.Decode("train = "+text, &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestFilesValidate(t *testing.T) {
	for _, tt := range []struct {
		files TrainFiles
		want  string // part of the error; "" for none
	}{
		{TrainFiles{{Path: "a"}}, ""},
		{TrainFiles{{Path: "a"}, {Path: "b", Weight: 0.99}}, ""},
		{TrainFiles{{Path: "a", Weight: 3}, {Path: "b", Weight: 7}}, ""},
		{TrainFiles{}, "name the file of training problems"},
		{TrainFiles{{Path: " "}}, "name the file of training problems"},
		{TrainFiles{{Path: "a"}, {Path: "b", Weight: 0.5}, {Path: "c", Weight: 0.5}}, "the weights add up to 1, and the files without a weight get what is left of 1"},
		{TrainFiles{{Path: "a", Weight: -1}}, "its weight -1 must be a finite number above 0"},
		{TrainFiles{{Path: "a", Weight: math.NaN()}}, "its weight NaN must be a finite number above 0"},
		{TrainFiles{{Path: "a", Weight: math.Inf(1)}}, "its weight +Inf must be a finite number above 0"},
		{TrainFiles{{Path: "a"}, {Path: "builtin:arithmetic"}}, "an embedded task has no end and stands alone"},
		{TrainFiles{{Path: "a", Filter: "level in"}}, `its filter "level in": `},
		{TrainFiles{{Path: "a", Name: "n"}, {Path: "b", Name: "n"}}, `another file has its name "n"`},
		{TrainFiles{{Path: "a", Name: "n/m"}, {Path: "b"}}, `must not hold a slash`},
		{TrainFiles{{Path: "a", Prompts: -1}}, `its prompts = -1 must be at least 0`},
	} {
		err := tt.files.Validate("train")
		var bad *settings.Error
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !errors.As(err, &bad) || bad.Key != "train") {
			t.Errorf("%v: %v, want %q", tt.files, err, tt.want)
		}
	}
}

// Names are those of files and folders, and are all different.
func TestNamed(t *testing.T) {
	files := TrainFiles{{Path: "x/a.jsonl.gz"}, {Path: "y/a.jsonl"}, {Path: "math/*.parquet"}, {Path: "hf:openai/gsm8k@abc"}, {Path: "hf:openai/gsm8k/main/train.parquet"}, {Path: "z", Name: "a#2"}, {Path: "*"}, {Path: "-"}}
	var got []string
	for _, f := range files.Named() {
		got = append(got, f.Name)
	}
	if want := []string{"a", "a#3", "math", "gsm8k", "train", "a#2", "data", "-"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
}

// A weight of 0 is refused; a file without one is not.
func TestWeightZero(t *testing.T) {
	for _, c := range []struct{ train, want string }{
		{`[{path = "a", weight = 0}, {path = "b", weight = 1}]`, `"a": its weight 0 must be a finite number above 0`},
		{`[{path = "a"}, {path = "b", weight = 0.0}]`, `"b": its weight 0 must be`}, {`["a", {path = "b", weight = 0.5}]`, ""},
	} {
		var read struct{ Train TrainFiles }
		if err := toml.Unmarshal([]byte("train = "+c.train), &read); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.train, err, c.want)
		}
	}
}
