// Package mix decides the order in which a run draws problems: it mixes files by weights,
// puts easy problems first, and lets problems rest (skips them) that teach nothing.
//
// The order depends on the seed, the place and, where problems rest, on their measured
// rewards, which State saves.
package mix

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"onering/data"
)

// Options say how problems are ordered.
type Options struct {
	Seed     int64
	PerRound int // number of problems in a round
	Rounds   int // number of rounds in the run
	// Curriculum, if not empty, is the column whose number says how hard a problem is,
	// with a minus in front of its name if easy problems have high numbers.
	Curriculum string
	// Rest, if not 0, says after how many consecutive draws without a difference in
	// rewards a problem rests (is skipped), and for how many passes.
	Rest int
}

// A Part holds the problems of one of several files.
type Part struct {
	File     File
	Problems data.List
}

// An Order decides the order in which a run draws its problems.
type Order struct {
	options Options
	endless data.Problems // the problems of an embedded task, else nil
	sources []*source
	digest  string
	pending *picks // the problems of the round drawn last
}

// A source is a set of problems with one share of the draws.
type source struct {
	share    float64
	problems data.List
	seed     uint64
	stages   int // stages of the curriculum, easy to hard
	draws    int // expected number of draws in the whole run
	measured measured

	// The stage and pass whose order at used last.
	stage, pass int
	order       []int
}

// Endless returns the order of the problems of an embedded task.
func Endless(problems data.Problems, o Options) *Order {
	return &Order{options: o, endless: problems, digest: problems.Digest()}
}

// New returns the order of the problems of files. Parts with a weight are sources with
// that share; the other parts together are one source.
func New(parts []Part, o Options) (*Order, error) {
	order := &Order{options: o}
	var rest data.List
	weights, weighted := 0.0, 0
	for _, p := range parts {
		if len(p.Problems) == 0 {
			return nil, fmt.Errorf("data: %s has no problem", p.File.Path)
		}
		if p.File.Weight > 0 {
			weights, weighted = weights+p.File.Weight, weighted+1
		} else {
			rest = append(rest, p.Problems...)
		}
	}
	if len(rest) > 0 {
		order.add(rest, 1-weights)
		weights = 1
	}
	for _, p := range parts {
		if p.File.Weight > 0 {
			order.add(p.Problems, p.File.Weight/weights)
		}
	}
	if o.Curriculum != "" {
		for _, s := range order.sources {
			if err := s.sort(o); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

// add appends a source.
func (o *Order) add(problems data.List, share float64) {
	i := len(o.sources)
	o.sources = append(o.sources, &source{
		share: share, problems: problems, seed: uint64(o.options.Seed) + uint64(i)*0x9e3779b97f4a7c15, stages: 1, pass: -1,
	})
	digest := problems.Digest()
	if i > 0 {
		text := fmt.Sprintf("%s %v %s", o.digest, share, digest)
		sum := sha256.Sum256([]byte(text))
		digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	o.digest = digest
}

// Digest identifies these problems and their shares. For a single file it is the digest
// of its problems.
func (o *Order) Digest() string { return o.digest }

// Len is the number of problems; 0 for an embedded task.
func (o *Order) Len() int {
	n := 0
	for _, s := range o.sources {
		n += len(s.problems)
	}
	return n
}

// sort orders the problems from easy to hard and divides them into stages.
func (s *source) sort(o Options) error {
	column, descending := strings.CutPrefix(o.Curriculum, "-")
	type hard struct {
		problem data.Problem
		number  float64
	}
	list := make([]hard, len(s.problems))
	// Equally hard problems are shuffled, since a stage may have only some of them.
	for i, at := range rand.New(rand.NewPCG(s.seed, 1<<63)).Perm(len(list)) {
		p := s.problems[at]
		value, ok := p.Fields.Lookup(column)
		if !ok {
			return fmt.Errorf("data: problem %q has no column %q to say how hard it is: name one with data.curriculum", p.ID, column)
		}
		x, ok := data.Number(value)
		if !ok || x != x {
			return fmt.Errorf("data: problem %q: the column %q of data.curriculum is %v, which is no number: leave such rows out with data.filter", p.ID, column, value)
		}
		if descending {
			x = -x
		}
		list[i] = hard{p, x}
	}
	slices.SortStableFunc(list, func(a, b hard) int { return cmp.Compare(a.number, b.number) })
	s.problems = make(data.List, len(list))
	for i := range list {
		s.problems[i] = list[i].problem
	}
	perRound := s.share * float64(o.PerRound)
	s.draws = max(1, int(perRound*float64(o.Rounds)))
	s.stages = max(1, min(o.Rounds, int(float64(len(list))/max(1, perRound)), s.draws))
	return nil
}

// at returns the index in problems of draw i of a stage. Each pass over a stage has its
// own order.
func (s *source) at(stage, i int) int {
	from, to := s.bounds(stage)
	if pass := i / (to - from); s.order == nil || s.stage != stage || s.pass != pass {
		s.stage, s.pass = stage, pass
		s.order = rand.New(rand.NewPCG(s.seed+uint64(stage)*0xbf58476d1ce4e5b9, uint64(pass))).Perm(to - from)
	}
	return from + s.order[i%(to-from)]
}

// bounds returns where in problems a stage begins and ends.
func (s *source) bounds(stage int) (from, to int) {
	n := len(s.problems)
	return stage * n / s.stages, (stage + 1) * n / s.stages
}

// stageOf returns the stage of draw j of a run, and the number of the draw in the stage.
func (s *source) stageOf(j int) (stage, i int) {
	if s.stages == 1 {
		return 0, j
	}
	first := func(stage int) int { return stage * s.draws / s.stages }
	stage = min(s.stages-1, j*s.stages/s.draws)
	for stage+1 < s.stages && first(stage+1) <= j {
		stage++
	}
	for first(stage) > j {
		stage--
	}
	return stage, j - first(stage)
}

// A draw is draw number j of a source.
type draw struct{ source, j int }

// draws returns the sources of n places from first on. Draw j of a source with share w
// has a time within (j, j+1)/w that follows from the seed, and draws are ordered by time:
// so after any number of places, each source has had its share of them to within about
// one draw per source.
func (o *Order) draws(first, n int) []draw {
	out := make([]draw, 0, n)
	if len(o.sources) == 1 {
		for j := range n {
			out = append(out, draw{0, first + j})
		}
		return out
	}
	// Before the time began there are at most first draws, and hardly fewer.
	began := float64(first - len(o.sources))
	next := make([]int, len(o.sources))
	done := 0
	for i := range o.sources {
		j := max(0, int(began*o.sources[i].share)-1)
		for o.time(i, j) <= began {
			j++
		}
		next[i] = j
		done += j
	}
	for ; len(out) < n; done++ {
		best := 0
		for i := range next {
			if o.time(i, next[i]) < o.time(best, next[best]) {
				best = i
			}
		}
		if done >= first {
			out = append(out, draw{best, next[best]})
		}
		next[best]++
	}
	return out
}

// time returns the time of draw j of a source.
func (o *Order) time(i, j int) float64 {
	s := o.sources[i]
	late := float64(rand.NewPCG(^s.seed, uint64(j)).Uint64()>>11) / (1 << 53)
	return (float64(j) + late) / s.share
}
