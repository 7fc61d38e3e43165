package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"onering/internal/strict"
	"onering/sampler"
	"onering/tokenize"
)

// A play is one episode that has begun. Its turns come one after the other.
type play struct {
	round     *Round
	group     Group   // the group of the episode; Start.Sample is its number
	episode   Episode // nil before the first turn that the journal does not know
	turnCount int     // number of the policy's turns
	turns     []Turn  // turns that the environment has seen, or would have seen without the journal
	lastText  string  // what the policy said in its newest turn
	timeSpent time.Duration
	hasSlot   bool // the play has one of the round's slots
	outcome   Outcome
}

// A noted is an observation as a Journal stores it.
type noted struct {
	Observation
	Failed string `json:"failed,omitempty"` // the error in place of an observation
}

// answerTurn returns what follows the newest turn of a response: the environment's messages as tokens, the end of the
// episode, or an error that ends the sampling. It notes the turn's reward, NaN for none, and a failure in x.outcome.
func (x *play) answerTurn(r sampler.Response) sampler.Observation {
	p := x.round.player
	t := Turn{Number: len(x.turns)}
	malformed := x.readTurn(&t, r)
	x.turnCount++ // counts the malformed turns, too, which x.turns does not have
	x.lastText = t.Text
	o, err := Observation{Messages: malformed}, error(nil) // a turn that cannot be read is answered here
	if malformed == nil {
		x.turns = append(x.turns, t)
		o, err = x.observe(r)
	}
	reward := math.NaN()
	if o.Reward != nil {
		reward = *o.Reward
	}
	x.outcome.Rewards = append(x.outcome.Rewards, reward)
	var journalFailed *journalError
	switch {
	case errors.As(err, &journalFailed):
		return sampler.Observation{Err: err}
	case err != nil:
		x.outcome.Failed = fmt.Errorf("environment: turn %d: %w", x.turnCount, err)
		return sampler.Observation{End: sampler.Stop}
	case o.Done:
		return sampler.Observation{End: sampler.Stop}
	case x.turnCount >= p.MaxTurns:
		return sampler.Observation{End: sampler.Length}
	}
	ids, err := x.appendMessages(r, o.Messages)
	if err != nil {
		return sampler.Observation{Err: err}
	}
	return sampler.Observation{IDs: ids}
}

// A journalError is an error of a Journal rather than of the environment.
type journalError struct{ error }

// readTurn sets in t what the policy says in its newest turn, and the calls of tools in that. If a call cannot be read,
// it returns a message that says why, and the environment does not see the turn.
func (x *play) readTurn(t *Turn, r sampler.Response) (malformed []tokenize.Message) {
	tokenizer, before, ids := x.round.player.Prompter.Tokenizer, x.group.prompt, r.LastTurn()
	if n := len(r.Observed); n > 0 {
		before = r.Observed[n-1].IDs // the text before a turn may begin its thought
	}
	_, t.Text = tokenizer.NewDecoder().Turn(before, ids) // without the thought, and without special tokens
	if x.group.format == nil {
		return nil
	}
	d := tokenizer.NewDecoder()
	d.Keep = slices.Clone(x.group.format.Marks) // the marks of calls may be special tokens
	_, text := d.Turn(before, ids)
	_, calls, err := x.group.format.Parse(text)
	if err != nil {
		return []tokenize.Message{{Role: "tool", Content: "error: " + err.Error()}}
	}
	t.Calls = calls
	return nil
}

// observe returns the journal's observation if there is one, else the environment's, which the journal then notes. A
// failure of the environment is noted, too; one of the journal is a journalError.
func (x *play) observe(r sampler.Response) (o Observation, err error) {
	journal := x.round.journal
	if journal == nil {
		return x.askEnvironment()
	}
	key := x.key(r)
	if value := journal.Recall(key); value != nil {
		var n noted
		if err := strict.JSON(value, &n); err != nil {
			return o, &journalError{fmt.Errorf("environment: a noted observation cannot be read: %q", value)}
		}
		if n.Failed != "" {
			err = errors.New(n.Failed)
		}
		return n.Observation, err
	}
	o, err = x.askEnvironment()
	if x.round.ctx.Err() != nil {
		return o, err // the run is ending, which says nothing about the environment
	}
	n := noted{Observation: o}
	if err != nil {
		n = noted{Failed: err.Error()}
	}
	text, failed := json.Marshal(n)
	if failed == nil {
		failed = journal.Note(key, text)
	}
	if failed != nil {
		return o, &journalError{failed}
	}
	return o, err
}

// key identifies a turn among all turns of the round.
func (x *play) key(r sampler.Response) string {
	all, _ := r.Tokens()
	return fmt.Sprintf("%q %d %d %d %d", x.group.Problem.ID, x.group.Seed, x.group.Sample, x.turnCount, all)
}

// askEnvironment gives the environment the turns that it has not seen, and returns its answer to the
// last. If earlier answers came from the journal, it begins the episode and gives it those turns first.
func (x *play) askEnvironment() (o Observation, err error) {
	unseen := x.turns[len(x.turns)-1:] // the newest turn
	if x.episode == nil {
		unseen = x.turns // no episode has begun: the journal had all earlier answers
		for err = ErrFull; errors.Is(err, ErrFull); {
			err = x.withinTime(x.begin)
			// A slot that becomes free belonged to an episode that ended: this play keeps its slot and takes
			// that one, too, so fewer episodes are under way from here on.
			if errors.Is(err, ErrFull) && (x.round.underWay.Load() == 0 || !x.round.takeSlot()) {
				return o, err
			}
		}
	}
	if err != nil {
		return o, err
	}
	err = x.withinTime(func(ctx context.Context) error {
		for _, t := range unseen {
			t.Calls = slices.Clone(t.Calls) // an environment that is left running must not share them
			episode := x.episode
			if o, err = within(ctx, func() (Observation, error) { return episode.Step(ctx, t) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Observation{}, err
	}
	if r := o.Reward; r != nil {
		sum, _ := x.outcome.Reward()
		if err := errors.Join(CheckReward(*r), CheckReward(sum+*r)); err != nil {
			return Observation{}, err
		}
	}
	if len(o.Messages) == 0 && !o.Done {
		return Observation{}, errors.New("it has neither a message nor an end of the episode")
	}
	return o, nil
}

// begin begins the episode.
func (x *play) begin(ctx context.Context) (err error) {
	var opening Opening
	x.episode, opening, err = x.round.player.begin(ctx, x.group.Start, func() bool { return x.round.underWay.Load() > 0 })
	if x.episode != nil {
		x.round.underWay.Add(1)
	}
	if err == nil && !reflect.DeepEqual(opening, x.group.Opening) {
		err = errors.New("this episode opens with other messages than the first one of the problem; episodes with one seed must open alike")
	}
	return err
}

// withinTime asks the environment something within the time that it has for an answer and for all of the episode.
func (x *play) withinTime(ask func(ctx context.Context) error) error {
	p := x.round.player
	left := seconds(p.EpisodeSeconds) - x.timeSpent
	if left <= 0 {
		return fmt.Errorf("the episode's answers have taken its %g s (environment.episode_seconds)", p.EpisodeSeconds)
	}
	ctx, end := context.WithTimeoutCause(x.round.ctx, left,
		fmt.Errorf("it has not answered within the %g s of the episode (environment.episode_seconds)", p.EpisodeSeconds))
	defer end()
	ctx, cancel := p.step(ctx)
	defer cancel()
	began := time.Now()
	defer func() { x.timeSpent += time.Since(began) }()
	return ask(ctx)
}

// end ends the environment's episode, if there is one, and leaves its slot.
func (x *play) end() {
	if x.episode != nil {
		x.group.end(x.episode)
		x.round.underWay.Add(-1)
	}
	if x.hasSlot {
		x.round.leaveSlot()
	}
}

// end ends an episode, if there is one. An error is only logged, since the outcome is known already.
func (s Start) end(e Episode) {
	if e == nil {
		return
	}
	if err := e.Close(); err != nil {
		slog.Warn("an episode did not end in order", "problem", s.Problem.ID, "sample", s.Sample, "error", err)
	}
}

// appendMessages returns the tokens of messages after a response: the chat template's text after an answer, or
// without a chat template the messages' own. The policy's tokens stay as they were sampled.
func (x *play) appendMessages(r sampler.Response, messages []tokenize.Message) ([]int32, error) {
	p := x.round.player
	t := p.Prompter.Tokenizer
	if !x.group.chat {
		var text strings.Builder
		for _, m := range messages {
			text.WriteString(m.Content)
		}
		ids, _ := t.EncodeSpans(withoutUnknown(t, text.String()), nil)
		return ids, nil
	}
	// Clip: the plays of a group begin with the same messages.
	x.group.talk.Messages = append(slices.Clip(x.group.talk.Messages), tokenize.Message{Role: "assistant", Content: x.lastText})
	for _, m := range messages {
		x.group.talk.Messages = append(x.group.talk.Messages, tokenize.Message{Role: m.Role, Content: withoutUnknown(t, m.Content)})
	}
	_, ids, err := t.NextTurn(x.group.talk)
	if err != nil {
		return nil, err
	}
	return tokenize.After(r.IDs[len(r.IDs)-1], p.EOS, ids), nil // without the end token, if the policy has sampled it
}

// withoutUnknown removes the characters that the vocabulary lacks.
func withoutUnknown(t *tokenize.Tokenizer, text string) string {
	if t.Check(text) == nil {
		return text
	}
	return strings.Map(func(r rune) rune {
		if t.Check(string(r)) != nil {
			return -1
		}
		return r
	}, text)
}
