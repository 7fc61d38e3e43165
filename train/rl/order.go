package rl

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
	drawn   []pick           // the problems of the round drawn last
	cursors []sourceProgress // the cursor of each source after these draws; untaught is not set
}

// A source is a set of problems with one share of the draws.
type source struct {
	share    float64
	problems data.List
	seed     uint64
	stages   int            // stages of the curriculum, easy to hard
	draws    int            // expected number of draws in the whole run
	progress sourceProgress // what earlier rounds found out; saved where problems rest

	// The stage and pass whose shuffled order problemAt used last.
	stage, pass int
	order       []int
}

// endlessOrder returns the order of the problems of an embedded task.
func endlessOrder(problems data.Problems, o orderOptions) *problemOrder {
	return &problemOrder{options: o, endless: problems, digest: problems.Digest()}
}

// newOrder returns the order of the problems of files. Parts with a weight are sources with that share of the draws;
// the other parts together are one source with what is left of 1. A curriculum sorts each source.
func newOrder(parts []filePart, o orderOptions) (*problemOrder, error) {
	order := &problemOrder{options: o}
	var rest data.List
	weights := 0.0
	for _, p := range parts {
		if len(p.Problems) == 0 {
			return nil, fmt.Errorf("data: %s has no problem", p.File.Path)
		}
		if p.File.Weight > 0 {
			weights += p.File.Weight
		} else {
			rest = append(rest, p.Problems...)
		}
	}
	if len(rest) > 0 {
		order.add(rest, 1-weights)
		weights = 1 // the shares add up to 1 already; else the weights are divided by their sum
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

// add appends a source, and puts its problems and its share into the digest.
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

// Digest identifies these problems and their shares. For a single file it is the digest of its problems.
func (o *problemOrder) Digest() string { return o.digest }

// Len is the number of problems; 0 for an embedded task.
func (o *problemOrder) Len() int {
	n := 0
	for _, s := range o.sources {
		n += len(s.problems)
	}
	return n
}

// sort orders the problems from easy to hard by the column of o.Curriculum, and divides them into equal stages that
// the run draws from one after the other: one a round, or fewer where a stage would have too few problems for a round.
func (s *source) sort(o orderOptions) error {
	column, descending := strings.CutPrefix(o.Curriculum, "-")
	type ranked struct {
		problem    data.Problem
		difficulty float64
	}
	list := make([]ranked, len(s.problems))
	// Equally hard problems are shuffled, since a stage may have only some of them.
	for i, at := range rand.New(rand.NewPCG(s.seed, 1<<63)).Perm(len(list)) { // 1<<63: not the number of a pass, see problemAt
		p := s.problems[at]
		value, ok := p.Fields.Lookup(column)
		if !ok {
			return fmt.Errorf("data: problem %q has no column %q to say how hard it is: name one with data.curriculum", p.ID, column)
		}
		x, ok := data.Number(value)
		if !ok || math.IsNaN(x) {
			return fmt.Errorf("data: problem %q: the column %q of data.curriculum is %v, which is not a number: leave such rows out with data.filter",
				p.ID, column, value)
		}
		if descending {
			x = -x
		}
		list[i] = ranked{p, x}
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(a.difficulty, b.difficulty) })
	s.problems = make(data.List, len(list))
	for i := range list {
		s.problems[i] = list[i].problem
	}
	perRound := s.share * float64(o.PerRound)
	s.draws = max(1, int(perRound*float64(o.Rounds))) // from this source in the whole run
	s.stages = max(1, min(o.Rounds, int(float64(len(list))/max(1, perRound)), s.draws))
	return nil
}

// problemAt returns the index in problems of draw i of a stage. Each pass over a stage has its own order.
func (s *source) problemAt(stage, i int) int {
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
	for stage+1 < s.stages && first(stage+1) <= j { // the estimate and first are rounded differently
		stage++
	}
	for first(stage) > j {
		stage--
	}
	return stage, j - first(stage)
}

// A pick is a draw of a source, by its number, and the problem that it gives: its stage and its index in problems.
type pick struct{ source, draw, stage, index int }

// draws returns which draw of which source each of n places of the run has, from place first on. Draw j of a source
// with share w has a time within (j, j+1)/w that follows from the seed, and draws are ordered by time: so after any
// number of places, each source has had its share of them to within about one draw per source.
func (o *problemOrder) draws(first, n int) []pick {
	out := make([]pick, 0, n)
	if len(o.sources) == 1 {
		for j := range n {
			out = append(out, pick{draw: first + j})
		}
		return out
	}
	// A source of share w has at most w*began+1 draws until the time began, so all have at most first, and hardly
	// fewer: counting starts there, and not at the run's first draw.
	began := float64(first - len(o.sources))
	next := make([]int, len(o.sources)) // the next draw of each source
	done := 0                           // draws of all sources before these
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
		if done >= first { // earlier ones belong to places before first
			out = append(out, pick{source: best, draw: next[best]})
		}
		next[best]++
	}
	return out
}

// time returns the time of draw j of source i, for draws to be ordered by.
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
	untaught                  // no advantage tells its responses apart: the problem teaches nothing
)

// A sourceProgress says how far a run has drawn from the present stage of a source, and which problems taught nothing.
type sourceProgress struct {
	stage, cursor int          // the stage, and its next draw; skipped draws count
	untaught      map[int]rest // by index in problems
}

// A rest counts how many consecutive draws of a problem taught nothing, and has the last pass
// that skips it; 0 if none does.
type rest struct{ draws, lastPass int }

// Round returns the problems of round n, from 0. Where problems rest, n must follow the
// round that Learned received last, since how far a stage is drawn then depends on what was skipped.
func (o *problemOrder) Round(n int) []data.Problem {
	if o.endless != nil {
		return o.endless.Take(o.options.Seed, n*o.options.PerRound, o.options.PerRound)
	}
	o.cursors = nil
	for _, s := range o.sources {
		o.cursors = append(o.cursors, sourceProgress{stage: s.progress.stage, cursor: s.progress.cursor})
	}
	o.drawn = o.draws(n*o.options.PerRound, o.options.PerRound)
	out := make([]data.Problem, len(o.drawn))
	for k := range o.drawn {
		p := &o.drawn[k]
		s := o.sources[p.source]
		stage, i := s.stageOf(p.draw)
		p.stage = stage
		if o.options.Rest > 0 {
			p.index = s.nextAwake(stage, &o.cursors[p.source])
		} else {
			p.index = s.problemAt(stage, i)
		}
		out[k] = s.problems[p.index]
	}
	return out
}

// nextAwake returns the index of the next problem of a stage that does not rest, from the cursor c on, and advances c
// beyond it. If all rest, it returns the next one.
func (s *source) nextAwake(stage int, c *sourceProgress) int {
	if c.stage != stage { // a new stage begins
		*c = sourceProgress{stage: stage}
	}
	from, to := s.bounds(stage)
	n := to - from
	rests := s.progress.untaught   // the problems that taught nothing, and the last pass that skips each
	if s.progress.stage != stage { // they are of the stage before
		rests = nil
	}
	for i := range n {
		index, pass := s.problemAt(stage, c.cursor+i), (c.cursor+i)/n
		if pass > rests[index].lastPass || rests[index].lastPass == 0 {
			c.cursor += i + 1
			return index
		}
	}
	c.cursor++ // all rest
	return s.problemAt(stage, c.cursor-1)
}

// Learned receives the measures of the problems of the round drawn last, in their order. A problem that has taught nothing
// in options.Rest draws running rests in the next options.Rest passes, and if it teaches nothing after them, at once again;
// a draw that taught ends the count, and an unmeasured one leaves it. It also takes over the cursors behind this round.
func (o *problemOrder) Learned(measures []measure) {
	if o.options.Rest == 0 || o.endless != nil {
		return
	}
	for i := range o.sources {
		m, c := &o.sources[i].progress, o.cursors[i]
		if m.stage != c.stage { // a new stage has other problems
			m.untaught = nil
		}
		m.stage, m.cursor = c.stage, c.cursor
	}
	for i, p := range o.drawn {
		s := o.sources[p.source]
		m := &s.progress
		switch {
		case p.stage != m.stage || measures[i] == unmeasured: // a stage that has ended is not drawn again
		case measures[i] == taught:
			delete(m.untaught, p.index)
		default:
			if m.untaught == nil {
				m.untaught = map[int]rest{}
			}
			x := rest{draws: m.untaught[p.index].draws + 1}
			if x.draws >= o.options.Rest {
				from, to := s.bounds(m.stage)
				pass := (m.cursor - 1) / (to - from) // of the round's last draw
				x.lastPass = pass + o.options.Rest   // the problem rests until this pass has ended
			}
			m.untaught[p.index] = x
		}
	}
}

// Resting counts the problems that the next pass over their file skips.
func (o *problemOrder) Resting() int {
	n := 0
	for _, s := range o.sources {
		from, to := s.bounds(s.progress.stage)
		for _, x := range s.progress.untaught {
			if x.lastPass > 0 && x.lastPass >= s.progress.cursor/(to-from) {
				n++
			}
		}
	}
	return n
}

// A sourceState is the form of sourceProgress in a checkpoint: Flat has the index of each problem that
// taught nothing, and the draws and the last pass of its rest.
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
		m := s.progress
		x := sourceState{Stage: m.stage, Cursor: m.cursor}
		for _, index := range slices.Sorted(maps.Keys(m.untaught)) {
			x.Flat = append(x.Flat, [3]int{index, m.untaught[index].draws, m.untaught[index].lastPass})
		}
		states = append(states, x)
	}
	text, err := json.Marshal(states)
	if err != nil {
		panic(err) // numbers can always be encoded
	}
	return string(text)
}

// Restore restores the result of State. An empty state is that of a run in which nothing was measured.
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
		m := sourceProgress{stage: x.Stage, cursor: x.Cursor, untaught: map[int]rest{}}
		if x.Stage < 0 || x.Stage >= s.stages || x.Cursor < 0 {
			return fmt.Errorf("data: what was measured has draw %d of stage %d, and there are %d", x.Cursor, x.Stage, s.stages)
		}
		for _, f := range x.Flat {
			index, draws, lastPass := f[0], f[1], f[2]
			if index < 0 || index >= len(s.problems) || draws < 0 || lastPass < 0 {
				return fmt.Errorf("data: what was measured names problem %d, and there are %d", index, len(s.problems))
			}
			m.untaught[index] = rest{draws, lastPass}
		}
		s.progress = m
	}
	return nil
}
