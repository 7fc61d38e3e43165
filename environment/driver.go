package environment

import (
	"context"

	"onering/sampler"
)

// A Driver plays episodes of programs that ask for each turn themselves, such as agents that
// know nothing of training. An environment that has one answers nothing: see Driven.
type Driver interface {
	// Drive plays all episodes and tells ended of each as it ends, never two at the same time.
	Drive(ctx context.Context, d Drive, ended func(Driven)) (sampler.Stats, error)
}

// A Programmed environment is played by a Driver.
type Programmed interface {
	// Driver is nil if nothing plays it here.
	Driver() Driver
}

// A Drive is the episodes of a round, and how their turns are sampled.
type Drive struct {
	*Player
	Decoder  sampler.Decoder // has no sequences; its bits do not depend on what is decoded beside
	Options  sampler.Options
	Requests []sampler.Request // their prompts are those of the problems; a program may ask otherwise
	Groups   []Group           // of the requests
}

// Driven is what came of one episode.
type Driven struct {
	Request, Sample int
	// Segments are its histories that only grew, one after the other: one unless the program
	// has rewritten what was said.
	Segments []sampler.Segment
	Outcome
}

// driver returns what plays the episodes in place of the sampler, nil if nothing does.
func (p *Player) driver() Driver {
	if x, ok := p.Environment.(Programmed); ok {
		return x.Driver()
	}
	return nil
}

// Driven says whether programs play the episodes.
func (p *Player) Driven() bool { return p.driver() != nil }

// Drive plays the episodes by the environment's Driver; it is Driven.
func (p *Player) Drive(ctx context.Context, d Drive, ended func(Driven)) (sampler.Stats, error) {
	d.Player = p
	return p.driver().Drive(ctx, d, ended)
}
