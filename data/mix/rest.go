package mix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"onering/data"
)

// A Measure is what a round found out about a problem.
type Measure int

const (
	unmeasured Measure = iota // too few responses were graded
	Taught                    // the rewards of its responses differ
	Flat                      // the rewards are all the same: the problem teaches nothing
)

// measured is what is known about the problems of a source in its present stage.
type measured struct {
	stage, cursor int // the stage, and its next draw; skipped draws count
	flat          map[int]rest
}

// A rest counts how many consecutive draws of a problem were flat, and has the last pass
// that skips it; 0 if none does.
type rest struct{ draws, until int }

// picks are the problems of a round.
type picks struct {
	round   int
	drawn   []pick
	cursors []measured // the cursor of each source after the draws; Flat is not set
}

// A pick is a drawn problem.
type pick struct{ source, stage, at int }

// Round returns the problems of round n, from 0. Where problems rest, n must follow the
// round that Learned received last.
func (o *Order) Round(n int) []data.Problem {
	if o.endless != nil {
		return o.endless.Take(o.options.Seed, n*o.options.PerRound, o.options.PerRound)
	}
	p := &picks{round: n}
	for _, s := range o.sources {
		m := s.measured
		p.cursors = append(p.cursors, measured{stage: m.stage, cursor: m.cursor})
	}
	out := make([]data.Problem, 0, o.options.PerRound)
	for _, d := range o.draws(n*o.options.PerRound, o.options.PerRound) {
		s := o.sources[d.source]
		stage, i := s.stageOf(d.j)
		at := 0
		if o.options.Rest > 0 {
			at = s.awake(stage, &p.cursors[d.source])
		} else {
			at = s.at(stage, i)
		}
		p.drawn = append(p.drawn, pick{d.source, stage, at})
		out = append(out, s.problems[at])
	}
	o.pending = p
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
func (o *Order) Learned(of []Measure) {
	if o.options.Rest == 0 || o.endless != nil {
		return
	}
	for i := range o.sources {
		m, c := &o.sources[i].measured, o.pending.cursors[i]
		if m.stage != c.stage {
			m.flat = nil
		}
		m.stage, m.cursor = c.stage, c.cursor
	}
	for i, p := range o.pending.drawn {
		s := o.sources[p.source]
		m := &s.measured
		switch {
		case p.stage != m.stage || of[i] == unmeasured:
		case of[i] == Taught:
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
func (o *Order) Resting() int {
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
func (o *Order) State() string {
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
func (o *Order) Restore(state string) error {
	if state == "" || o.options.Rest == 0 || o.endless != nil {
		return nil
	}
	var states []sourceState
	if err := json.Unmarshal([]byte(state), &states); err != nil {
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
