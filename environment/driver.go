package environment

import (
	"context"
	"errors"

	"onering/internal/process"
	"onering/sampler"
)

// A Driver plays episodes of programs that ask for each turn themselves, such as agents that
// know nothing of training. Package serve/episodes has one.
type Driver interface {
	// Drive plays all episodes and tells ended of each as it ends, never two at the same time.
	Drive(ctx context.Context, d Drive, ended func(Driven)) (sampler.Stats, error)
	// Close ends what has been begun for that.
	Close() error
}

// Driver returns what plays the episodes in place of the sampler, nil if nothing does.
func (p *Player) Driver() Driver {
	if x, ok := p.Environment.(*Program); ok {
		return x.Driver
	}
	return nil
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

func init() { Register("program", func() Environment { return &Program{} }) }

// A Program is the environment of programs that drive themselves: agents that talk to the policy
// as to any server of OpenAI's API. A run starts one for each episode, or waits for programs to
// come. The program is the environment, so it answers nothing here.
type Program struct {
	Command []string `toml:"command" help:"the program that is run for each episode, and its arguments, such as [\"python3\", \"agent.py\"]. OPENAI_BASE_URL and OPENAI_API_KEY tell it where to ask, ONERING_PROBLEM has the problem as JSON. Without one the run waits for programs, which begin an episode by POST /rl/start"`

	Driver `toml:"-"` // nil if nothing plays the episodes here
}

// About is the environment's line in lists.
func (*Program) About() string {
	return "programs that talk to the policy as to a server of OpenAI's API"
}

// Validate refuses a command without a name.
func (p *Program) Validate() error {
	if len(p.Command) == 0 {
		return nil
	}
	return process.Check("command", p.Command, "agent.py")
}

// Close ends what plays the episodes.
func (p *Program) Close() error {
	if p.Driver == nil {
		return nil
	}
	return p.Driver.Close()
}

// Begin implements Environment: there is nothing to begin.
func (*Program) Begin(context.Context, Start) (Episode, error) {
	return nil, errors.New("environment: program: its episodes are played by onering train alone")
}
