package environment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"onering/data"
	"onering/internal/process"
	"onering/sampler"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// Limits bound an episode. A run file has them in [environment].
type Limits struct {
	MaxTurns       int     `toml:"max_turns" range:"[1,10000]" help:"most turns of the policy in an episode; one that reaches it is truncated"`
	StepSeconds    float64 `toml:"step_seconds" range:"(0,1000000]" help:"seconds that the environment has for an answer; an episode that waits longer has no grade"`
	EpisodeSeconds float64 `toml:"episode_seconds" range:"(0,10000000]" help:"seconds that the environment has for all answers of an episode together"`
	AtOnce         int     `toml:"at_once" range:"[1,65536]" help:"how many episodes the environment answers at the same time; others wait, while responses go on"`
}

// DefaultLimits are for tools that answer at once or in seconds.
func DefaultLimits() Limits {
	return Limits{MaxTurns: 8, StepSeconds: 60, EpisodeSeconds: 600, AtOnce: 16}
}

// step bounds the time of an answer.
func (l Limits) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, seconds(l.StepSeconds), fmt.Errorf("it has not answered within %g s (environment.step_seconds)", l.StepSeconds))
}

// InTime asks an environment something, such as whether its server is there, and waits for it
// no longer than for an answer.
func (l Limits) InTime(ctx context.Context, ask func(context.Context) error) error {
	timed, cancel := l.step(ctx)
	defer cancel()
	_, err := within(timed, func() (struct{}, error) { return struct{}{}, ask(timed) })
	if err != nil && timed.Err() != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return err
}

// Single is the environment without an environment: a response is one turn.
type Single struct{}

func init() { Register("single", func() Environment { return &Single{} }) }

// About is the environment's line in lists.
func (*Single) About() string { return "a response is a single turn: no environment" }

// Begin implements Environment. A response to Single has no episode.
func (*Single) Begin(context.Context, Start) (Episode, error) {
	return nil, errors.New("environment: single has no episodes")
}

// A Journal remembers what environments have answered, so that an episode which is played a
// second time, since the run was killed after the first, gets the answers of the first time.
// Its methods may be called concurrently.
type Journal interface {
	// Recall returns what was noted under a key, nil if there is nothing.
	Recall(key string) []byte
	// Note remembers a value. An error ends the sampling.
	Note(key string, value []byte) error
}

// A Player plays episodes of an environment with what a sampler writes.
type Player struct {
	Environment Environment
	Limits
	Prompter *data.Prompter
	EOS      []int32 // the tokens that end a turn
}

// An OpeningError is an environment's that could not open an episode.
type OpeningError struct{ Err error }

func (e *OpeningError) Error() string { return "environment: opening: " + e.Err.Error() }

func (e *OpeningError) Unwrap() error { return e.Err }

// Open returns the episodes of a problem, and their prompt as a text and as tokens.
func (p *Player) Open(ctx context.Context, s Start) (g Group, text string, ids []int32, err error) {
	g = Group{Start: s, Problem: s.Problem}
	if p.Driver() == nil {
		ctx, cancel := p.step(ctx)
		defer cancel()
		var e Episode
		e, g.Opening, err = p.begin(ctx, s)
		if s.end(e); err != nil {
			return g, "", nil, &OpeningError{err}
		}
		if g.Problem, err = p.opened(s.Problem, g.Opening); err != nil {
			return g, "", nil, err
		}
	}
	if text, ids, err = p.Prompter.Prompt(g.Problem); err == nil {
		g.talk, g.chat, err = p.Prompter.Talk(g.Problem)
	}
	if chat := g.Problem.Chat; err == nil && chat != nil && chat.Tools.Given() {
		g.format, err = tools.Of(p.Prompter.Tokenizer, g.talk)
	}
	return g, text, ids, err
}

// begin begins an episode, which may be there also with an error, and returns how it opens.
func (p *Player) begin(ctx context.Context, s Start) (Episode, Opening, error) {
	type begun struct {
		Episode
		Opening
	}
	x, err := within(ctx, func() (x begun, err error) {
		e, err := p.Environment.Begin(ctx, s)
		if err != nil {
			return x, err
		}
		x.Episode = e
		if opener, ok := e.(Opener); ok {
			x.Opening, err = opener.Opening()
		}
		return x, err
	})
	return x.Episode, x.Opening, err
}

// opened puts an opening into a problem.
func (p *Player) opened(q data.Problem, o Opening) (data.Problem, error) {
	if len(o.Messages) == 0 && !o.Tools.Given() {
		return q, nil
	}
	if around := p.Prompter.Template; !around.Chat && !around.Auto {
		if o.Tools.Given() {
			return q, fmt.Errorf("environment: the template %q describes no tools to the policy: set model.template to chat", around.Name)
		}
		var texts []string
		for _, m := range o.Messages {
			texts = append(texts, m.Content)
		}
		q.Text, q.Chat = strings.Join(texts, "\n\n"), nil
		return q, nil
	}
	chat := data.Chat{Conversation: tokenize.Talk(tokenize.Message{Role: "user", Content: q.Text})}
	if q.Chat != nil {
		chat = *q.Chat
	}
	if len(o.Messages) > 0 {
		chat.Messages = o.Messages
	}
	if o.Tools.Given() {
		chat.Tools = o.Tools
	}
	q.Chat = &chat
	return q, nil
}

// Repeats says whether the environment answers equal turns of equal episodes alike.
func (p *Player) Repeats() bool {
	r, ok := p.Environment.(Repeating)
	return ok && r.Repeats()
}

// A Group is the episodes of one prompt.
type Group struct {
	Start
	Problem data.Problem // with the opening in the place of Start's
	Opening Opening
	Samples []int // the number of each sample, nil if they are 0, 1 and so on

	chat   bool                  // the template is a chat, in which the episodes are talk
	talk   tokenize.Conversation // until the first turn
	format *tools.Format         // of calls, nil if there are no tools
}

// Number is the number of sample k.
func (g Group) Number(k int) int {
	if g.Samples != nil {
		return g.Samples[k]
	}
	return k
}

// A Round is the episodes that are played during one call of a sampler.
type Round struct {
	player  *Player
	groups  []Group
	journal Journal // nil to remember nothing
	ctx     context.Context
	turns   chan struct{} // has an element for each answer that the environment is asked for
	asked   sync.WaitGroup

	mu    sync.Mutex
	plays map[place]*play
}

// A place is the number of a request and of one of its samples.
type place struct{ request, sample int }

// Play begins a round of episodes of the groups, which are those of the sampler's requests, and
// sets what the sampler has to know in o. Close ends it, after the sampler has.
func (p *Player) Play(ctx context.Context, o *sampler.Options, groups []Group, journal Journal) *Round {
	if p.Repeats() {
		journal = nil
	}
	r := &Round{player: p, groups: groups, journal: journal, ctx: ctx, turns: make(chan struct{}, p.AtOnce), plays: map[place]*play{}}
	if s, ok := p.Environment.(Stopper); ok {
		o.Stops = append(o.Stops[:len(o.Stops):len(o.Stops)], s.Stops()...)
	}
	o.Turn = r.turn
	return r
}

// turn implements Turn of a sampler's Options.
func (r *Round) turn(response sampler.Response, answer func(sampler.Observation)) {
	at := place{response.Request, response.Sample}
	r.mu.Lock()
	x := r.plays[at]
	if x == nil {
		x = &play{round: r, group: r.groups[at.request]}
		x.group.Sample = x.group.Number(at.sample)
		r.plays[at] = x
	}
	r.mu.Unlock()
	r.asked.Go(func() {
		r.turns <- struct{}{}
		defer func() { <-r.turns }()
		answer(x.turn(response))
	})
}

// An Outcome is what came of an episode.
type Outcome struct {
	// Rewards are those of the turns, NaN where the environment gave none.
	Rewards []float64
	// Failed says why the episode could not go on; nil if nothing failed.
	Failed error
}

// Reward is the sum of the rewards, if there is any.
func (o Outcome) Reward() (sum float64, given bool) {
	for _, x := range o.Rewards {
		if !math.IsNaN(x) {
			sum, given = sum+x, true
		}
	}
	return sum, given
}

// End ends the episode of a response that has ended, and returns what came of it: nothing if the
// round is nil, which has no episodes.
func (r *Round) End(response sampler.Response) Outcome {
	if r == nil {
		return Outcome{}
	}
	at := place{response.Request, response.Sample}
	r.mu.Lock()
	x := r.plays[at]
	delete(r.plays, at)
	r.mu.Unlock()
	if x == nil {
		return Outcome{}
	}
	r.asked.Go(func() { x.group.end(x.episode) }) // which may take its time
	return x.outcome
}

// Close ends the episodes that are left, once nothing waits for the environment.
func (r *Round) Close() {
	if r == nil {
		return
	}
	r.asked.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.plays {
		x.group.end(x.episode)
	}
	r.plays = nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// within returns what f does, or the cause of ctx a moment after that has ended: an environment
// that does not look at it is left behind. An error then is that cause, too.
func within[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if x := recover(); x != nil {
				done <- result{err: fmt.Errorf("the environment panics: %v", x)}
			}
		}()
		value, err := f()
		done <- result{value, err}
	}()
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case r := <-done:
			if r.err != nil && ctx.Err() != nil {
				r.err = context.Cause(ctx)
			}
			return r.value, r.err
		case <-ended:
			ended, late = nil, time.After(grace)
		case <-late:
			return value, context.Cause(ctx)
		}
	}
}

// grace is how long an environment may take to notice that its time has ended.
const grace = 2 * time.Second

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
	if p == nil {
		return nil
	}
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
