// Package environmenttest checks that an environment keeps the rules of
// environment.Environment. An author's whole test is
//
//	func TestConformance(t *testing.T) { environmenttest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule.
package environmenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/environment"
	"onering/internal/registry"
	"onering/internal/settings"
	"onering/tokenize"
)

// Run checks the environment that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, suite.Named(t, name))
}

// RunNew checks the environments that new returns. Use it for settings other than the
// defaults, such as the program that an environment starts.
func RunNew(t *testing.T, new func() environment.Environment) {
	t.Helper()
	registry.Run(t, suite, new)
}

// Check returns what RunNew would report: nil, or joined errors each of which is a
// *registry.Failure.
func Check(new func() environment.Environment) error { return suite.Check(new) }

// suite has the rules of environment.Environment's doc comment, in its order.
var suite = registry.Suite[environment.Environment]{New: environment.New, Rules: []registry.Rule[environment.Environment]{
	{Name: "defaults", Explanation: "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", Check: checkDefaults},
	{Name: "concurrency", Explanation: "methods may be called concurrently; those of one Episode are not", Check: checkConcurrency},
	{Name: "any-text", Explanation: "any text is answered: empty, very long, not UTF-8, with calls of tools that there are not, and what the policy reads is a message of a role that it knows", Check: checkAnyText},
	{Name: "rewards", Explanation: "rewards are finite", Check: checkRewards},
	{Name: "context", Explanation: "if the context has ended, Begin and Step return without waiting, with an answer or with an error that wraps the context's", Check: checkContext},
	{Name: "arguments", Explanation: "no method modifies its arguments or keeps a reference to them", Check: checkArguments},
	{Name: "alike", Explanation: "the episodes of one Start open alike, and a Repeating environment answers equal turns of equal episodes alike", Check: checkAlike},
	{Name: "close", Explanation: "an episode can be closed at any time, and an environment that was closed can be used again", Check: checkClose},
}}

// A maker makes the environments that are checked.
type maker = func() environment.Environment

func checkDefaults(new maker) error {
	taken := map[string]bool{"name": true} // keys of the section that all environments share
	for _, f := range settings.Fields(&environment.Limits{}) {
		taken[f.Key] = true
	}
	return registry.CheckDefaults(new, taken, "max_cards")
}

// oddTexts are texts that an environment must survive.
var oddTexts = []string{
	"", " \n\t", "\x00", "\xff\xfe2+2=", "2+2=", "/0=", strings.Repeat("(", 10_000) + "=", strings.Repeat("so ", 100_000),
	`{"id": 1, "done": true}`, "\u202e4\ufeff", strings.Repeat("9", 5_000) + "^" + strings.Repeat("9", 5_000) + "=", "<tool_call>",
}

// turns are the policy's turns in an episode that tests the rules: plain texts, and calls
// of existing and of unknown tools.
func turns() []environment.Turn {
	var list []environment.Turn
	for _, text := range oddTexts {
		list = append(list, environment.Turn{Text: text})
	}
	for _, call := range []environment.Call{
		{Name: "calculator", Arguments: json.RawMessage(`{"expression": "2+2"}`)},
		{Name: "", Arguments: json.RawMessage(`{}`)},
		{Name: "no such tool", Arguments: json.RawMessage(`{"x": "\ud800"}`)},
		{Name: strings.Repeat("long", 10_000), Arguments: json.RawMessage(`{"expression": 7, "code": [], "x": ` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`)},
	} {
		list = append(list, environment.Turn{Text: "a call", Calls: []environment.Call{call}})
	}
	all := environment.Turn{Text: "several"}
	for _, t := range list {
		all.Calls = append(all.Calls, t.Calls...)
	}
	return append(list, all)
}

// start returns the Start of an episode. Each call returns an equal one that shares no memory with the others.
func start() environment.Start {
	return environment.Start{Seed: 7, Problem: data.Problem{
		ID: "rows:1", Text: "What is 2+2?", Answers: []string{"4", "four"},
		Fields: data.Object{{Name: "problem", Value: "What is 2+2?"}, {Name: "level", Value: int64(3)},
			{Name: "reward_model", Value: data.Object{{Name: "ground_truth", Value: "4"}}}},
	}}
}

// play plays an episode of turns, and returns what followed each. If the episode is done,
// play begins another, so that each turn is answered.
func play(e environment.Environment, s environment.Start, turns []environment.Turn) (list []environment.Observation, err error) {
	ctx := context.Background()
	var episode environment.Episode
	for _, t := range turns {
		if episode == nil {
			if episode, err = e.Begin(ctx, s); err != nil {
				return nil, fmt.Errorf("Begin: %w", err)
			}
		}
		o, err := episode.Step(ctx, t)
		if err == nil {
			err = checkMessages(o.Messages, "tool", "user")
		}
		if err == nil && len(o.Messages) == 0 && !o.Done {
			err = errors.New("nothing is read after it, and the episode is not done")
		}
		if o.Done || err != nil {
			err = errors.Join(err, episode.Close())
			episode = nil
		}
		if err != nil {
			return nil, fmt.Errorf("the turn %.40q with %d calls: %w", t.Text, len(t.Calls), err)
		}
		list = append(list, o)
	}
	if episode != nil {
		err = episode.Close()
	}
	return list, err
}

// checkMessages wants messages of these roles.
func checkMessages(messages []tokenize.Message, roles ...string) error {
	for _, m := range messages {
		if !slices.Contains(roles, m.Role) {
			return fmt.Errorf("a message has the role %q: want one of %q", m.Role, roles)
		}
	}
	return nil
}

// Open opens an episode of a Start, returns its opening and closes it: an empty opening if it is no Opener.
func Open(e environment.Environment, s environment.Start) (o environment.Opening, err error) {
	episode, err := e.Begin(context.Background(), s)
	if err != nil {
		return o, fmt.Errorf("Begin: %w", err)
	}
	if opener, ok := episode.(environment.Opener); ok {
		if o, err = opener.Opening(); err == nil {
			err = checkMessages(o.Messages, "system", "user", "assistant", "tool")
		}
	}
	return o, errors.Join(err, episode.Close())
}

func checkConcurrency(new maker) error {
	e := new()
	return registry.AtOnce(4, func(i int) error {
		s := start()
		s.Sample = i
		_, openErr := Open(e, s)
		_, playErr := play(e, s, turns()[:6])
		return errors.Join(openErr, playErr)
	})
}

func checkAnyText(new maker) error {
	e := new()
	_, openErr := Open(e, start())
	_, playErr := play(e, start(), turns())
	_, emptyErr := play(e, environment.Start{Problem: data.Problem{ID: "x"}}, turns()[:2])
	return errors.Join(openErr, playErr, emptyErr)
}

func checkRewards(new maker) error {
	list, err := play(new(), start(), turns())
	for i, o := range list {
		if o.Reward != nil && (math.IsNaN(*o.Reward) || math.IsInf(*o.Reward, 0)) {
			err = errors.Join(err, fmt.Errorf("the turn %.40q earned %v", turns()[i].Text, *o.Reward))
		}
	}
	return err
}

// checkContext wants Begin and Step to return an answer or the context's error if the context has ended.
func checkContext(new maker) error {
	e := new()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	check := func(method string, err error) error {
		if err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: the error %q does not wrap the context's", method, err)
		}
		return nil
	}
	if episode, err := e.Begin(ended, start()); err == nil {
		episode.Close()
	} else if err := check("Begin", err); err != nil {
		return err
	}
	episode, err := e.Begin(context.Background(), start())
	if err != nil {
		return err
	}
	_, err = episode.Step(ended, turns()[len(oddTexts)]) // the first turn with a call
	return errors.Join(check("Step", err), episode.Close())
}

// checkArguments wants Starts and turns to stay as they are, and observations not to change if they are overwritten.
func checkArguments(new maker) error {
	e := new()
	s, given := start(), turns()
	first, err := play(e, s, given)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(s, start()) || !reflect.DeepEqual(given, turns()) {
		return errors.New("a problem or a turn was changed")
	}
	before := shown(first)
	// The arguments of earlier calls are overwritten: the answers must not change.
	clear(s.Problem.Answers)
	clear(s.Problem.Fields)
	for _, t := range given {
		for _, call := range t.Calls {
			clear(call.Arguments)
		}
		clear(t.Calls)
	}
	if _, err := play(e, start(), turns()[:4]); err != nil {
		return err
	}
	if after := shown(first); after != before {
		return fmt.Errorf("an earlier answer has changed from %.200q to %.200q", before, after)
	}
	return nil
}

// shown writes a list of observations as a text to compare, with rewards by their values.
func shown(list []environment.Observation) string {
	text, err := json.Marshal(list)
	return fmt.Sprintf("%s%v", text, err)
}

// checkAlike wants equal Starts to open alike, and equal episodes of a Repeating environment to be answered alike.
func checkAlike(new maker) error {
	e := new()
	one, err1 := Open(e, start())
	two, err2 := Open(e, start())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if !reflect.DeepEqual(one, two) {
		return fmt.Errorf("one problem with one seed opens as %.200s and as %.200s", fmt.Sprintf("%+v", one), fmt.Sprintf("%+v", two))
	}
	if r, ok := e.(environment.Repeating); !ok || !r.Repeats() {
		return nil
	}
	want, err := play(e, start(), turns())
	if err != nil {
		return err
	}
	got, err := play(e, start(), turns())
	if g, w := shown(got), shown(want); err == nil && g != w {
		err = fmt.Errorf("equal episodes were answered with %.200q and with %.200q", g, w)
	}
	return err
}

// checkClose wants an environment to stay usable when an episode is closed before its first turn, and when it is closed.
func checkClose(new maker) error {
	e := new()
	for range 2 { // again, after the environment was closed
		episode, err := e.Begin(context.Background(), start())
		if err == nil {
			err = episode.Close() // close before any turn
		}
		if err == nil {
			_, err = play(e, start(), turns()[:1])
		}
		if c, ok := e.(io.Closer); ok && err == nil {
			err = c.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
