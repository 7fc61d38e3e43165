// Package environment says what a policy talks to in an episode of several turns: the Environment interface,
// the registry of environments by name, and the Player that training and evaluation share.
//
// An environment answers what the policy writes: with the result of a tool, the next state of a game, the words of a
// user. Each lives in a folder of its own and registers itself; environment/all imports them all. The [environment]
// section of a run file names the one that a run plays in. Without one a response is a single turn.
package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onering/data"
	"onering/internal/registry"
	"onering/internal/settings"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// An Environment begins episodes.
//
// The value itself is the configuration, as a reward's is: its exported fields carry toml
// tags, and Validate is called if there is one. Further abilities are optional interfaces:
// Stopper, Holder, Repeating, io.Closer and the method About.
//
// Methods observe these rules, each of which is a case of environmenttest:
//
//   - New returns a fresh value every time, with defaults that Validate accepts and a toml
//     name on every exported field.
//   - Methods may be called concurrently; those of one Episode are not.
//   - Any text is answered: empty, very long, not UTF-8, with calls of tools that there are
//     not. An error means that the episode cannot go on.
//   - Rewards are numbers that CheckReward takes, and so are their sums.
//   - If the context has ended, Begin and Step return without waiting. A Step that is cut
//     off leaves no process behind once the episode is closed.
//   - No method modifies its arguments or keeps a reference to them.
type Environment interface {
	// Begin begins an episode. It is called once for each problem of a round, to see what
	// the policy reads first, and again when the policy has written its first turn.
	Begin(ctx context.Context, s Start) (Episode, error)
}

// A Start says how an episode begins.
type Start struct {
	Problem data.Problem
	// Seed is equal for all episodes of one problem in a round, which begin alike.
	Seed uint64
	// Sample is the number of the episode among those of its problem, from 0.
	Sample int
}

// An Episode is one conversation between the policy and the environment. It may be an Opener.
type Episode interface {
	// Step receives what the policy has written, and returns what follows. An error ends the episode without a grade.
	Step(ctx context.Context, t Turn) (Observation, error)
	// Close ends the episode, whether it is done or not. Close is called once, perhaps
	// before a Step that was cut off has returned.
	Close() error
}

// A Turn is what the policy said until it ended its turn.
type Turn struct {
	Number int    // the number of the turn, from 0
	Text   string // without special tokens and thoughts
	// Calls are the calls of tools that Text has in the form of the chat template; nil where the template knows
	// no tools. Unreadable calls never come here: the Player answers them with an error.
	Calls []Call
}

// A Call is a call of a tool. Its arguments are an object.
type Call = tools.Call

// An Observation is the text that the policy reads after its turn.
type Observation struct {
	// Messages are appended as the chat template writes them, with the role tool or user; only their Role and Content
	// are read. There is at least one unless Done. Without a chat template their contents are appended unchanged.
	Messages []tokenize.Message `json:"messages,omitempty"`
	// Reward is what the turn earned, nil if the environment does not say. The rewards of its turns add up to
	// that of the episode. If no turn has one, the run's [reward] grades the last turn.
	Reward *float64 `json:"reward,omitempty"`
	// Done says that the episode has ended; Messages are then not read.
	Done bool `json:"done,omitempty"`
}

// CheckReward refuses a reward of a turn, an episode or a response that is not a number
// or too large to compute a step with.
func CheckReward(x float64) error {
	if !(math.Abs(x) <= 1e9) {
		return fmt.Errorf("the reward would be %v: it must be a number from -1e9 to 1e9", x)
	}
	return nil
}

// An Opener is an Episode that says what the policy reads before its first turn: the same for all
// episodes of a Start. An episode fails if it opens differently from what the policy has read.
type Opener interface {
	Opening() (Opening, error)
}

// An Opening is the beginning of an episode.
type Opening struct {
	// Messages replace the problem. Without any, the problem in the template is the
	// prompt, as in a run without an environment.
	Messages []tokenize.Message
	// Tools are the descriptions of functions for the chat template, in OpenAI's form.
	Tools tokenize.Data
}

// A Stopper ends turns at strings, in addition to the tokens that end a response.
type Stopper interface {
	Stops() []string
}

// A Holder says whether an episode keeps something of the environment until it is closed,
// such as a session or a process. Then at_once bounds the episodes under way.
type Holder interface {
	Holds() bool
}

// ErrFull is wrapped by the error of Begin of an environment that has no room for another episode until one is closed.
var ErrFull = errors.New("it has no room for another episode")

// A Repeating environment answers equal turns of equal episodes alike, so that a run need not
// remember its answers to be resumed.
type Repeating interface {
	Repeats() bool
}

var registered = registry.Makers[Environment]{Package: "environment", Kind: "environment"}

func init() { settings.Register("environment", Names, New) }

// Register makes an environment available by name; call it from init. new returns a fresh
// value that holds the defaults. Register panics if the name is empty or new is nil.
func Register(name string, new func() Environment) { registered.Register(name, new) }

// New returns a fresh environment with its defaults.
func New(name string) (Environment, error) { return registered.New(name) }

// Names returns the registered names, sorted.
func Names() []string { return registered.Names() }

// A Function describes a tool. Parameters are a JSON schema of an object.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Functions are the tools that a policy can call in an episode.
type Functions []Function

// Check refuses names that no tool may have in a prompt, and one name of two tools.
func (list Functions) Check() error {
	for i, f := range list {
		if err := tools.CheckName(f.Name); err != nil {
			return fmt.Errorf("one of its tools has %w", err)
		}
		if slices.ContainsFunc(list[:i], func(other Function) bool { return other.Name == f.Name }) {
			return fmt.Errorf("two of its tools have the name %q: rename one in the server", f.Name)
		}
	}
	return nil
}

// Opening describes the functions for the chat template, in OpenAI's form.
func (list Functions) Opening() (o Opening, err error) {
	type entry struct {
		Type     string   `json:"type"`
		Function Function `json:"function"`
	}
	var entries []entry
	for _, f := range list {
		entries = append(entries, entry{"function", f})
	}
	if len(list) > 0 {
		var text []byte
		if text, err = json.Marshal(entries); err == nil {
			err = o.Tools.UnmarshalJSON(text)
		}
	}
	return o, err
}

// mostCalls is how many calls of a turn are answered, since each may take long, and
// mostBytes how many bytes of an answer the policy reads.
const mostCalls, mostBytes = 16, 64 << 10

// Answer answers the calls of a turn one after the other, each by a message of the role tool. A turn without
// calls ends the episode. The policy reads what call returns; an error of call ends the episode without a
// grade. An unknown function is not called: the policy reads which functions exist.
func (list Functions) Answer(ctx context.Context, t Turn, call func(ctx context.Context, c Call) (string, error)) (o Observation, err error) {
	var names []string
	for _, f := range list {
		names = append(names, f.Name)
	}
	for i, c := range t.Calls {
		if err := ctx.Err(); err != nil {
			return Observation{}, err
		}
		text := ""
		switch {
		case i >= mostCalls:
			text = fmt.Sprintf("error: only %d calls are answered in one turn", mostCalls)
		case !slices.Contains(names, c.Name):
			text = fmt.Sprintf("error: there is no tool %.80q; there are %s", c.Name, strings.Join(names, ", "))
		default:
			text, err = call(ctx, c)
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return Observation{}, err
		}
		if more := len(text) - mostBytes; more > 0 {
			text = strings.ToValidUTF8(text[:mostBytes], "") + fmt.Sprintf("\n[%d bytes are cut off]", more)
		}
		o.Messages = append(o.Messages, tokenize.Message{Role: "tool", Content: strings.ToValidUTF8(text, "\ufffd")})
	}
	o.Done = len(t.Calls) == 0
	return o, ctx.Err()
}
