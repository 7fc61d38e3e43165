// Package environment says what a policy talks to in an episode of several turns: the
// Environment interface, the registry of environments by name, and the Player that
// training and evaluation share.
//
// An environment answers what the policy writes: with the result of a tool, the next state
// of a game, the words of a user. Each lives in a folder of its own and registers itself;
// environment/all imports them all. The [environment] section of a run file names the one
// that a run plays in. Without one a response is a single turn.
package environment

import (
	"context"
	"encoding/json"

	"onering/data"
	"onering/tokenize"
)

// An Environment begins episodes.
//
// The value itself is the configuration, as a reward's is: its exported fields carry toml
// tags, and Validate is called if there is one. Further abilities are optional interfaces:
// Opener, Stopper, Repeating, Describer and io.Closer.
//
// Methods observe these rules, each of which is a case of environmenttest:
//
//   - New returns a fresh value every time, with defaults that Validate accepts and a toml
//     name on every exported field.
//   - Methods may be called concurrently; those of one Episode are not.
//   - Any text is answered: empty, very long, not UTF-8, with calls of tools that there are
//     not. An error means that the episode cannot go on.
//   - Rewards are finite.
//   - If the context has ended, Begin and Step return without waiting. A Step that is cut
//     off leaves no process behind once the episode is closed.
//   - No method modifies its arguments or keeps a reference to them.
type Environment interface {
	// Begin begins an episode. It is called when the policy has written its first turn.
	Begin(ctx context.Context, s Start) (Episode, error)
}

// A Start is what an episode begins with.
type Start struct {
	Problem data.Problem
	// Seed is the same for all episodes of one problem in a round, which are to begin
	// alike.
	Seed uint64
	// Sample is the number of the episode among those of its problem, from 0.
	Sample int
}

// An Episode is one talk between the policy and the environment.
type Episode interface {
	// Step is told what the policy has written, and returns what follows. An error ends the
	// episode, and it has no grade.
	Step(ctx context.Context, t Turn) (Observation, error)
	// Close ends the episode, whether it is done or not. It is called once, also while a Step
	// that was cut off has not returned.
	Close() error
}

// A Turn is what the policy wrote until it ended its turn.
type Turn struct {
	Number int    // from 0
	Text   string // without special tokens
	// Calls are the calls of tools that Text has in the form of the chat template; nil
	// where the template knows no tools. Those that cannot be read never come here: the
	// Player answers them with an error.
	Calls []Call
}

// A Call is a call of a tool.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object
}

// An Observation is what the policy reads after its turn.
type Observation struct {
	// Messages are appended as the chat template writes them, with the role tool or user:
	// their Role and Content alone are read. There is at least one unless Done.
	// In a template that is no chat their contents are appended as they are.
	Messages []tokenize.Message
	// Reward is what the turn earned, nil if the environment does not say. The rewards of
	// its turns add up to that of the episode. If no turn has one, the run's [reward] grades
	// the last turn.
	Reward *float64
	// Done says that the episode has ended; Messages are then not read.
	Done bool
}

// An Opener says what the policy reads before its first turn.
type Opener interface {
	// Open is called once for each problem of a round.
	Open(ctx context.Context, s Start) (Opening, error)
}

// An Opening is the beginning of an episode.
type Opening struct {
	// Messages stand in the place of the problem. Without any it is the problem in the
	// template, as in a run without an environment.
	Messages []tokenize.Message
	// Tools are the descriptions of functions for the chat template, in OpenAI's form.
	Tools tokenize.Data
}

// A Stopper ends turns by strings, beside the tokens that end a response.
type Stopper interface {
	Stops() []string
}

// A Repeating environment answers equal turns of equal episodes alike, so that a run need not
// remember its answers to be resumed.
type Repeating interface {
	Repeats() bool
}

// A Describer says what its environment is, in a line for lists.
type Describer interface {
	About() string
}
