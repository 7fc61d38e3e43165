package environment

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"onering/sampler"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// A play is one episode on its way. Its turns come one after the other.
type play struct {
	round   *Round
	group   *Group
	start   Start
	episode Episode // nil before the first turn that the journal does not know
	count   int     // turns of the policy
	seen    []Turn  // that the environment has seen, or would have without the journal
	last    string  // the text of the newest turn
	chat    bool    // the template is a chat, in which the episode is talk
	talk    tokenize.Conversation
	format  *tools.Format // of calls, nil if there are no tools
	spent   time.Duration
	outcome Outcome
}

// A noted observation is a value of a Journal.
type noted struct {
	Texts  []string `json:"texts,omitempty"` // of the messages
	Roles  []string `json:"roles,omitempty"`
	Reward *float64 `json:"reward,omitempty"`
	Done   bool     `json:"done,omitempty"`
	Failed string   `json:"failed,omitempty"` // the error in place of an observation
}

// turn returns what follows the newest turn of a response.
func (x *play) turn(r sampler.Response) sampler.Observation {
	p := x.round.player
	if x.count == 0 {
		if err := x.prepare(); err != nil {
			return sampler.Observation{Err: err}
		}
	}
	ids := r.LastTurn()
	t := Turn{Number: len(x.seen), Text: p.Prompter.Tokenizer.Decode(ids, true)}
	malformed := x.parse(&t, ids)
	x.count++
	x.last = t.Text
	o, err := Observation{Messages: malformed}, error(nil)
	if malformed == nil {
		x.seen = append(x.seen, t)
		o, err = x.observe(r)
	}
	x.outcome.Rewards = append(x.outcome.Rewards, o.Reward)
	x.outcome.Rewarded = x.outcome.Rewarded || o.Reward != nil
	var lost *journalError
	switch {
	case errors.As(err, &lost):
		return sampler.Observation{Err: err}
	case err != nil:
		x.outcome.Failed = fmt.Errorf("environment: turn %d: %w", x.count, err)
		return sampler.Observation{End: sampler.Stop}
	case o.Done:
		return sampler.Observation{End: sampler.Stop}
	case len(o.Messages) == 0:
		x.outcome.Failed = fmt.Errorf("environment: turn %d: it has neither a message nor an end of the episode", x.count)
		return sampler.Observation{End: sampler.Stop}
	case x.count >= p.MaxTurns:
		return sampler.Observation{End: sampler.Length}
	}
	if ids, err = x.append(r, o.Messages); err != nil {
		return sampler.Observation{Err: err}
	}
	return sampler.Observation{IDs: ids}
}

// prepare finds how the template writes the episode's turns and calls.
func (x *play) prepare() (err error) {
	p := x.round.player
	if x.talk, x.chat, err = p.Prompter.Talk(x.group.Problem); err == nil {
		x.format, err = p.format(x.group.Problem)
	}
	return err
}

// A journalError is an error of a Journal, which is not the environment's.
type journalError struct{ error }

// parse finds the calls of tools in a turn. One that cannot be read is answered by a message
// that says why, and the environment does not see the turn.
func (x *play) parse(t *Turn, ids []int32) (malformed []tokenize.Message) {
	if x.format == nil {
		return nil
	}
	p, text := x.round.player, t.Text
	if x.format.Special {
		if n := len(ids); n > 0 && slices.Contains(p.EOS, ids[n-1]) {
			ids = ids[:n-1] // the end of the turn is no part of a call
		}
		text = p.Prompter.Tokenizer.Decode(ids, false)
	}
	_, calls, err := x.format.Parse(text)
	if err != nil {
		return []tokenize.Message{{Role: "tool", Content: "error: " + err.Error()}}
	}
	for _, c := range calls {
		t.Calls = append(t.Calls, Call{c.Name, json.RawMessage(c.Arguments)})
	}
	return nil
}

// observe asks the journal and else the environment.
func (x *play) observe(r sampler.Response) (o Observation, err error) {
	journal := x.round.journal
	if journal == nil {
		return x.ask()
	}
	key := x.key(r)
	if value := journal.Recall(key); value != nil {
		return recalled(value)
	}
	o, err = x.ask()
	if x.round.ctx.Err() != nil {
		return o, err // the run is ending, and this says nothing of the environment
	}
	if failed := journal.Note(key, note(o, err)); failed != nil {
		return o, &journalError{failed}
	}
	return o, err
}

func note(o Observation, err error) []byte {
	n := noted{Reward: o.Reward, Done: o.Done}
	for _, m := range o.Messages {
		n.Texts, n.Roles = append(n.Texts, m.Content), append(n.Roles, m.Role)
	}
	if err != nil {
		n = noted{Failed: err.Error()}
	}
	text, _ := json.Marshal(n) // texts and finite numbers never fail
	return text
}

func recalled(value []byte) (o Observation, err error) {
	var n noted
	if err := json.Unmarshal(value, &n); err != nil || len(n.Texts) != len(n.Roles) {
		return o, &journalError{fmt.Errorf("environment: a noted observation cannot be read: %q", value)}
	}
	if n.Failed != "" {
		return o, errors.New(n.Failed)
	}
	o.Reward, o.Done = n.Reward, n.Done
	for i, text := range n.Texts {
		o.Messages = append(o.Messages, tokenize.Message{Role: n.Roles[i], Content: text})
	}
	return o, nil
}

// key tells a turn from all others of the round.
func (x *play) key(r sampler.Response) string {
	h := sha256.New()
	all, _ := r.Tokens()
	id := x.start.Problem.ID
	binary.Write(h, binary.LittleEndian, []uint64{uint64(len(id)), x.start.Seed, uint64(x.start.Sample), uint64(x.count)})
	h.Write([]byte(id))
	binary.Write(h, binary.LittleEndian, all)
	return hex.EncodeToString(h.Sum(nil))
}

// ask gives the environment the turns that it has not seen, and returns what it says to the
// last. It has seen none if those before are from the journal: then it is told again.
func (x *play) ask() (o Observation, err error) {
	p := x.round.player
	left := seconds(p.EpisodeSeconds) - x.spent
	if left <= 0 {
		return o, fmt.Errorf("the episode's answers have taken its %g s (environment.episode_seconds)", p.EpisodeSeconds)
	}
	limit, name := left, fmt.Sprintf("within the %g s of the episode (environment.episode_seconds)", p.EpisodeSeconds)
	if step := seconds(p.StepSeconds); step < left {
		limit, name = step, fmt.Sprintf("within %g s (environment.step_seconds)", p.StepSeconds)
	}
	ctx, cancel := context.WithTimeoutCause(x.round.ctx, limit, errors.New("it has not answered "+name))
	defer cancel()
	began := time.Now()
	defer func() { x.spent += time.Since(began) }()
	unseen := x.seen[len(x.seen)-1:]
	if x.episode == nil {
		unseen = x.seen
		if x.episode, err = within(ctx, func() (Episode, error) { return p.Environment.Begin(ctx, x.start) }); err != nil {
			x.episode = nil
			return o, timedOut(ctx, err)
		}
	}
	for _, t := range unseen {
		t.Calls = slices.Clone(t.Calls)
		episode := x.episode
		if o, err = within(ctx, func() (Observation, error) { return episode.Step(ctx, t) }); err != nil {
			return Observation{}, timedOut(ctx, err)
		}
	}
	if r := o.Reward; r != nil && (math.IsNaN(*r) || math.IsInf(*r, 0)) {
		return Observation{}, fmt.Errorf("its reward is %v, which is not a finite number", *r)
	}
	return o, nil
}

// timedOut says in the words of the limit that it was reached.
func timedOut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// close ends the episode. What comes of it is known already, so an error is only told.
func (x *play) close() {
	if x.episode == nil {
		return
	}
	if err := x.episode.Close(); err != nil {
		slog.Warn("an episode did not end in order", "problem", x.start.Problem.ID, "sample", x.start.Sample, "error", err)
	}
}

// append returns the tokens of messages after a response: what the chat template writes after
// an answer, or in a template that is no chat their text. What the policy has written stays as
// it was sampled.
func (x *play) append(r sampler.Response, messages []tokenize.Message) ([]int32, error) {
	p := x.round.player
	t := p.Prompter.Tokenizer
	if !x.chat {
		var text strings.Builder
		for _, m := range messages {
			text.WriteString(m.Content)
		}
		ids, _ := t.EncodeSpans(known(t, text.String()), nil)
		return ids, nil
	}
	x.talk.Messages = append(slices.Clip(x.talk.Messages), tokenize.Message{Role: "assistant", Content: x.last})
	for _, m := range messages {
		x.talk.Messages = append(x.talk.Messages, tokenize.Message{Role: m.Role, Content: known(t, m.Content)})
	}
	_, ids, err := tokenize.NextTurn(t, x.talk)
	if err != nil {
		return nil, err
	}
	return tokenize.After(r.IDs[len(r.IDs)-1], p.EOS, ids), nil
}

// known leaves out the characters that the vocabulary lacks.
func known(t *tokenize.Tokenizer, text string) string {
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
