package environment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
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
	AtOnce         int     `toml:"at_once" range:"[1,65536]" help:"how many episodes the environment answers at the same time, or has under way if each keeps a session or a process of its own; others wait, while responses go on"`
}

// DefaultLimits suit tools that answer at once or within seconds.
func DefaultLimits() Limits {
	return Limits{MaxTurns: 8, StepSeconds: 60, EpisodeSeconds: 600, AtOnce: 16}
}

// step bounds the time of an environment's answer.
func (l Limits) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, seconds(l.StepSeconds), fmt.Errorf("it has not answered within %g s (environment.step_seconds)", l.StepSeconds))
}

// InTime asks an environment something, such as whether its server can be reached, and
// waits at most as long as for an answer.
func (l Limits) InTime(ctx context.Context, ask func(context.Context) error) error {
	timed, cancel := l.step(ctx)
	defer cancel()
	_, err := within(timed, func() (struct{}, error) { return struct{}{}, ask(timed) })
	if err != nil && timed.Err() != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return err
}

// Single stands for no environment: a response is one turn.
type Single struct{}

func init() { Register("single", func() Environment { return &Single{} }) }

// About is the environment's line in lists.
func (*Single) About() string { return "a response is a single turn: no environment" }

// Begin implements Environment. A response to Single has no episode.
func (*Single) Begin(context.Context, Start) (Episode, error) {
	return nil, errors.New("environment: single has no episodes")
}

// A Journal remembers the answers of environments, so that an episode which is played again after the run was
// killed gets the same answers as before. Its methods may be called concurrently.
type Journal interface {
	// Recall returns the value that was noted under a key, nil if there is none.
	Recall(key string) []byte
	// Note remembers a value. An error ends the sampling.
	Note(key string, value []byte) error
}

// A Player plays episodes of an environment with the turns that a sampler writes.
type Player struct {
	Environment Environment
	Limits
	Prompter *data.Prompter
	EOS      []int32 // the tokens that end a turn
}

// An OpeningError is the error of an environment that could not open an episode.
type OpeningError struct{ Err error }

func (e *OpeningError) Error() string { return "environment: opening: " + e.Err.Error() }

func (e *OpeningError) Unwrap() error { return e.Err }

// Open returns the Group of a problem's episodes, and their prompt as a text and as tokens. It begins an episode to see
// its opening, and ends it again. With a Driver it does not: there the program makes the prompts.
func (p *Player) Open(ctx context.Context, s Start) (g Group, text string, ids []int32, err error) {
	g = Group{Start: s, Problem: s.Problem}
	if p.Driver() == nil {
		ctx, cancel := p.step(ctx)
		defer cancel()
		var e Episode
		e, g.Opening, err = p.begin(ctx, s, nil) // nil: in a full environment it waits until ctx ends
		s.end(e)                                 // also after an error: e may be there, or nil
		if err != nil {
			return g, "", nil, &OpeningError{err}
		}
		if g.Problem, err = p.withOpening(s.Problem, g.Opening); err != nil {
			return g, "", nil, err
		}
	}
	if text, ids, err = p.Prompter.Prompt(g.Problem); err == nil {
		g.prompt = ids
		g.talk, g.chat, err = p.Prompter.Talk(g.Problem)
	}
	if chat := g.Problem.Chat; err == nil && chat != nil && chat.Tools.Given() {
		g.format, err = tools.Of(p.Prompter.Tokenizer, g.talk)
	}
	return g, text, ids, err
}

// begin begins an episode and returns its opening. With an error there may be an episode too. While the environment is
// full, begin tries again; but if others, which may be nil, says that other episodes are under way, it returns ErrFull,
// for the caller to wait until one ends.
func (p *Player) begin(ctx context.Context, s Start, others func() bool) (Episode, Opening, error) {
	type opened struct {
		Episode
		Opening
	}
	for {
		x, err := within(ctx, func() (x opened, err error) {
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
		if !errors.Is(err, ErrFull) || others != nil && others() {
			return x.Episode, x.Opening, err
		}
		select {
		case <-ctx.Done():
			return nil, Opening{}, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// withOpening returns a problem with an opening in place of its text, and the opening's tools: as a chat, or, if the
// prompt's template is no chat template, the texts of the opening's messages as one text.
func (p *Player) withOpening(q data.Problem, o Opening) (data.Problem, error) {
	if len(o.Messages) == 0 && !o.Tools.Given() {
		return q, nil
	}
	if template := p.Prompter.Template; !template.Chat && (!template.Auto || p.Prompter.Tokenizer.CheckChat() != nil) {
		if o.Tools.Given() {
			return q, fmt.Errorf("environment: the template %q describes no tools to the policy: set model.template to chat", template.Name)
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
	q.Chat, q.Plain = &chat, false
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
	Problem data.Problem // the problem, with the opening in place of Start's
	Opening Opening
	Samples []int // the number of each sample, nil if they are 0, 1 and so on

	prompt []int32               // the tokens before the first turn
	chat   bool                  // the template is a chat template, so episodes are conversations
	talk   tokenize.Conversation // the conversation up to the first turn
	format *tools.Format         // the format of calls, nil if there are no tools
}

// Number returns the number of sample k among those of its problem.
func (g Group) Number(k int) int {
	if g.Samples != nil {
		return g.Samples[k]
	}
	return k
}

// A Round holds the episodes that are played during one call of a sampler.
type Round struct {
	player     *Player
	groups     []Group
	journal    Journal // remembers answers; may be nil
	ctx        context.Context
	slots      chan struct{} // has an element for each answer that is being waited for, or each episode under way
	keepsSlots bool          // an episode keeps its slot until its end
	underWay   atomic.Int64  // episodes of the environment that have not ended
	answering  sync.WaitGroup

	mu    sync.Mutex
	plays map[sampleKey]*play
}

// A sampleKey is the number of a request and of a sample in it.
type sampleKey struct{ request, sample int }

// Play begins a round of episodes for groups, which are those of the sampler's requests, and
// sets the options of the sampler in o. Close ends the round, after the sampler has ended.
func (p *Player) Play(ctx context.Context, o *sampler.Options, groups []Group, journal Journal) *Round {
	if p.Repeats() {
		journal = nil
	}
	r := &Round{player: p, groups: groups, journal: journal, ctx: ctx, slots: make(chan struct{}, p.AtOnce), plays: map[sampleKey]*play{}}
	if h, ok := p.Environment.(Holder); ok {
		r.keepsSlots = h.Holds()
	}
	if s, ok := p.Environment.(Stopper); ok {
		o.Stops = append(o.Stops[:len(o.Stops):len(o.Stops)], s.Stops()...)
	}
	o.Turn = r.turn
	return r
}

// turn implements Turn of a sampler's Options: it answers a turn on a goroutine of its own. At most at_once goroutines
// wait for the environment. If its episodes keep something of it (Holder), an episode keeps its slot until its end.
func (r *Round) turn(response sampler.Response, answer func(sampler.Observation)) {
	at := sampleKey{response.Request, response.Sample}
	r.mu.Lock()
	x := r.plays[at]
	if x == nil {
		x = &play{round: r, group: r.groups[at.request]}
		x.group.Sample = x.group.Number(at.sample) // a request may play only some samples of its problem
		r.plays[at] = x
	}
	r.mu.Unlock()
	r.answering.Go(func() {
		if r.keepsSlots {
			x.hasSlot = x.hasSlot || r.takeSlot()
		} else if r.takeSlot() {
			defer r.leaveSlot()
		}
		answer(x.answerTurn(response)) // also without a slot: then the round is ending, and so does the turn
	})
}

// takeSlot waits for one of the at_once slots. It reports false if the round ends before.
func (r *Round) takeSlot() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// leaveSlot frees a slot.
func (r *Round) leaveSlot() { <-r.slots }

// An Outcome is the result of an episode.
type Outcome struct {
	// Rewards are those of the turns, NaN where the environment gave none.
	Rewards []float64
	// Failed says why the episode could not go on; nil if nothing failed.
	Failed error
}

// Reward is the sum of the rewards. ok is false if there is none.
func (o Outcome) Reward() (sum float64, given bool) {
	for _, x := range o.Rewards {
		if !math.IsNaN(x) {
			sum, given = sum+x, true
		}
	}
	return sum, given
}

// End ends the episode of a complete response, and returns its outcome: an empty one if
// the round is nil, which has no episodes.
func (r *Round) End(response sampler.Response) Outcome {
	if r == nil {
		return Outcome{}
	}
	at := sampleKey{response.Request, response.Sample}
	r.mu.Lock()
	x := r.plays[at]
	delete(r.plays, at)
	r.mu.Unlock()
	if x == nil {
		return Outcome{}
	}
	r.answering.Go(x.end) // closing an episode may take long
	return x.outcome
}

// Close ends the remaining episodes, once nothing waits for the environment.
func (r *Round) Close() {
	if r == nil {
		return
	}
	r.answering.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.plays {
		x.end()
	}
	r.plays = nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// within returns the result of f, or the cause of ctx shortly after ctx has ended: an
// environment that ignores ctx is left running. An error of f after that is the cause, too.
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
	var late <-chan time.Time // nil until ctx has ended
	for ended := ctx.Done(); ; {
		select {
		case r := <-done:
			if r.err != nil && ctx.Err() != nil {
				r.err = context.Cause(ctx)
			}
			return r.value, r.err
		case <-ended:
			ended, late = nil, time.After(grace) // from now on, wait for done and late alone
		case <-late:
			return value, context.Cause(ctx)
		}
	}
}

// grace is how long an environment may take to notice that its time has ended.
const grace = 2 * time.Second

// A Driver plays episodes of programs that ask for each turn themselves, such as agents that
// know nothing of training. Package serve has one.
type Driver interface {
	// Drive plays all episodes and calls ended as each ends, never twice at the same time.
	Drive(ctx context.Context, d Drive, ended func(Driven)) (sampler.Stats, error)
	// Close ends what Drive has started.
	Close() error
}

// Driver returns the Driver that plays the episodes in place of the sampler, nil if there is none.
func (p *Player) Driver() Driver {
	if p == nil {
		return nil
	}
	if x, ok := p.Environment.(*Program); ok {
		return x.Driver
	}
	return nil
}

// A Drive says which episodes a round has, and how their turns are sampled.
type Drive struct {
	*Player
	Decoder  sampler.Decoder // without sequences; its bits do not depend on other sequences in it
	Options  sampler.Options
	Requests []sampler.Request // their prompts are those of the problems; a program may send others
	Groups   []Group           // the groups of the requests
}

// A Driven is the result of one episode.
type Driven struct {
	Request, Sample int
	// Segments are the parts of the conversation that only grew: one, unless the program rewrote earlier messages.
	Segments []sampler.Segment
	Outcome
}

func init() { Register("program", func() Environment { return &Program{} }) }

// A Program is the environment of programs that ask for each turn themselves: agents that
// use the policy through OpenAI's API. A run starts one for each episode, or waits for
// programs to connect. The program is the environment, so Begin does nothing.
type Program struct {
	Command []string `toml:"command" help:"the program that is run for each episode, and its arguments, such as [\"python3\", \"agent.py\"]. OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL tell it where to ask, ONERING_PROBLEM has the problem as JSON, and the descriptor ONERING_REWARD_FD the key for POST /rl/reward. Without one the run waits for programs, which begin an episode by POST /rl/start"`

	Driver `toml:"-"` // the driver; nil if programs cannot connect here
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

// Ready says which part of the program is missing.
func (p *Program) Ready(context.Context) error { return process.Find("environment.command", p.Command) }

// Close ends the driver.
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
