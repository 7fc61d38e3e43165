package rl

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"onering/data"
	"onering/internal/strict"
)

// orderOptions say how problems are ordered.
type orderOptions struct {
	Seed     int64
	PerRound int // number of problems in a round
	Rounds   int // number of rounds in the run
	// Curriculum, if not empty, is the column whose number says how hard a problem is,
	// with a minus in front of its name if easy problems have high numbers.
	Curriculum string
	// Rest, if not 0, says after how many consecutive draws that taught nothing a problem
	// rests (is skipped), and for how many passes.
	Rest int
}

// A filePart holds the problems of one of several files.
type filePart struct {
	File     TrainFile
	Problems data.List
}

// A problemOrder decides the order in which a run draws problems: it mixes files by weights,
// puts easy problems first, and lets problems rest (skips them) that teach nothing.
//
// The order depends on the seed, the place and, where problems rest, on their measured
// rewards, which State saves.
type problemOrder struct {
	options orderOptions
	endless data.Problems // the problems of an embedded task, else nil
	sources []*source
	digest  string
	drawn   []pick     // the problems of the round drawn last
	cursors []measured // the cursor of each source after these draws; flat is not set
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

// endlessOrder returns the order of the problems of an embedded task.
func endlessOrder(problems data.Problems, o orderOptions) *problemOrder {
	return &problemOrder{options: o, endless: problems, digest: problems.Digest()}
}

// newOrder returns the order of the problems of files. Parts with a weight are sources with
// that share; the other parts together are one source.
func newOrder(parts []filePart, o orderOptions) (*problemOrder, error) {
	order := &problemOrder{options: o}
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
func (o *problemOrder) add(problems data.List, share float64) {
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
func (o *problemOrder) Digest() string { return o.digest }

// Len is the number of problems; 0 for an embedded task.
func (o *problemOrder) Len() int {
	n := 0
	for _, s := range o.sources {
		n += len(s.problems)
	}
	return n
}

// sort orders the problems from easy to hard and divides them into stages.
func (s *source) sort(o orderOptions) error {
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
			return fmt.Errorf("data: problem %q: the column %q of data.curriculum is %v, which is not a number: leave such rows out with data.filter",
				p.ID, column, value)
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

// A pick is a draw of a source, by its number, and the problem that it gives: its stage and
// its place in problems.
type pick struct{ source, draw, stage, at int }

// draws returns the sources and draws of n places from first on. Draw j of a source with share w
// has a time within (j, j+1)/w that follows from the seed, and draws are ordered by time:
// so after any number of places, each source has had its share of them to within about
// one draw per source.
func (o *problemOrder) draws(first, n int) []pick {
	out := make([]pick, 0, n)
	if len(o.sources) == 1 {
		for j := range n {
			out = append(out, pick{draw: first + j})
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
			out = append(out, pick{source: best, draw: next[best]})
		}
		next[best]++
	}
	return out
}

// time returns the time of draw j of a source.
func (o *problemOrder) time(i, j int) float64 {
	s := o.sources[i]
	late := float64(rand.NewPCG(^s.seed, uint64(j)).Uint64()>>11) / (1 << 53)
	return (float64(j) + late) / s.share
}

// A measure is what a round found out about a problem.
type measure int

const (
	unmeasured measure = iota // too few responses were graded
	taught                    // the steps learned from its responses
	flat                      // no advantage tells its responses apart: the problem teaches nothing
)

// measured is what is known about the problems of a source in its present stage.
type measured struct {
	stage, cursor int // the stage, and its next draw; skipped draws count
	flat          map[int]rest
}

// A rest counts how many consecutive draws of a problem were flat, and has the last pass
// that skips it; 0 if none does.
type rest struct{ draws, until int }

// Round returns the problems of round n, from 0. Where problems rest, n must follow the
// round that Learned received last.
func (o *problemOrder) Round(n int) []data.Problem {
	if o.endless != nil {
		return o.endless.Take(o.options.Seed, n*o.options.PerRound, o.options.PerRound)
	}
	o.cursors = nil
	for _, s := range o.sources {
		o.cursors = append(o.cursors, measured{stage: s.measured.stage, cursor: s.measured.cursor})
	}
	o.drawn = o.draws(n*o.options.PerRound, o.options.PerRound)
	out := make([]data.Problem, len(o.drawn))
	for k := range o.drawn {
		p := &o.drawn[k]
		s := o.sources[p.source]
		stage, i := s.stageOf(p.draw)
		p.stage = stage
		if o.options.Rest > 0 {
			p.at = s.awake(stage, &o.cursors[p.source])
		} else {
			p.at = s.at(stage, i)
		}
		out[k] = s.problems[p.at]
	}
	return out
}

// awake returns the next problem of a stage that does not rest and advances c beyond it.
// If all rest, it returns the next one.
func (s *source) awake(stage int, c *measured) int {
	if c.stage != stage {
		*c = measured{stage: stage}
	}
	from, to := s.bounds(stage)
	n := to - from
	known := s.measured.flat
	if s.measured.stage != stage {
		known = nil
	}
	for i := range n {
		at := s.at(stage, c.cursor+i)
		if (c.cursor+i)/n > known[at].until || known[at].until == 0 {
			c.cursor += i + 1
			return at
		}
	}
	at := s.at(stage, c.cursor)
	c.cursor++
	return at
}

// Learned receives the measures of the problems of the round drawn last, in their order.
func (o *problemOrder) Learned(of []measure) {
	if o.options.Rest == 0 || o.endless != nil {
		return
	}
	for i := range o.sources {
		m, c := &o.sources[i].measured, o.cursors[i]
		if m.stage != c.stage {
			m.flat = nil
		}
		m.stage, m.cursor = c.stage, c.cursor
	}
	for i, p := range o.drawn {
		s := o.sources[p.source]
		m := &s.measured
		switch {
		case p.stage != m.stage || of[i] == unmeasured:
		case of[i] == taught:
			delete(m.flat, p.at)
		default:
			if m.flat == nil {
				m.flat = map[int]rest{}
			}
			x := rest{draws: m.flat[p.at].draws + 1}
			if x.draws >= o.options.Rest {
				from, to := s.bounds(m.stage)
				x.until = (m.cursor-1)/(to-from) + o.options.Rest
			}
			m.flat[p.at] = x
		}
	}
}

// Resting counts the problems that the next pass over their file skips.
func (o *problemOrder) Resting() int {
	n := 0
	for _, s := range o.sources {
		from, to := s.bounds(s.measured.stage)
		for _, x := range s.measured.flat {
			if x.until > 0 && x.until >= s.measured.cursor/(to-from) {
				n++
			}
		}
	}
	return n
}

// A sourceState is the form of measured in a checkpoint: Flat has the place, the draws
// and the last pass of each problem's rest.
type sourceState struct {
	Stage  int      `json:"stage"`
	Cursor int      `json:"cursor"`
	Flat   [][3]int `json:"flat"`
}

// State returns what Round needs to know of earlier rounds; nothing unless problems rest.
func (o *problemOrder) State() string {
	if o.options.Rest == 0 || o.endless != nil {
		return ""
	}
	var states []sourceState
	for _, s := range o.sources {
		m := s.measured
		x := sourceState{Stage: m.stage, Cursor: m.cursor}
		for _, at := range slices.Sorted(maps.Keys(m.flat)) {
			x.Flat = append(x.Flat, [3]int{at, m.flat[at].draws, m.flat[at].until})
		}
		states = append(states, x)
	}
	text, err := json.Marshal(states)
	if err != nil {
		panic(err) // numbers can always be encoded
	}
	return string(text)
}

// Restore restores the result of State. An empty state is that of a run in which nothing
// was measured.
func (o *problemOrder) Restore(state string) error {
	if state == "" || o.options.Rest == 0 || o.endless != nil {
		return nil
	}
	var states []sourceState
	if err := strict.JSON([]byte(state), &states); err != nil {
		return fmt.Errorf("data: what was measured of the problems: %w", err)
	}
	if len(states) != len(o.sources) {
		return fmt.Errorf("data: there is something measured of %d files, and there are %d", len(states), len(o.sources))
	}
	for i, x := range states {
		s := o.sources[i]
		m := measured{stage: x.Stage, cursor: x.Cursor, flat: map[int]rest{}}
		if x.Stage < 0 || x.Stage >= s.stages || x.Cursor < 0 {
			return fmt.Errorf("data: what was measured has draw %d of stage %d, and there are %d", x.Cursor, x.Stage, s.stages)
		}
		for _, f := range x.Flat {
			if f[0] < 0 || f[0] >= len(s.problems) || f[1] < 0 || f[2] < 0 {
				return fmt.Errorf("data: what was measured names problem %d, and there are %d", f[0], len(s.problems))
			}
			m.flat[f[0]] = rest{f[1], f[2]}
		}
		s.measured = m
	}
	return nil
}
