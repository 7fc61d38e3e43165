// Package rewardtest checks that a reward keeps the rules of reward.Reward. An
// author's whole test is
//
//	func TestConformance(t *testing.T) { rewardtest.Run(t, "mine") }
//
// Each rule is a subtest of its own, and a failure prints the rule.
package rewardtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"onering/data"
	"onering/internal/registry"
	"onering/internal/settings"
	"onering/reward"
)

// A Failure is a rule that a reward breaks.
type Failure = registry.Failure

// Run checks the reward that is registered as name, with its defaults.
func Run(t *testing.T, name string) {
	t.Helper()
	RunNew(t, suite.Named(t, name))
}

// RunNew checks the rewards that new returns. Use it for settings other than the defaults.
func RunNew(t *testing.T, new func() reward.Reward) {
	t.Helper()
	registry.Run(t, suite, new)
}

// Check returns what RunNew would report: nil, or joined errors each of which is a *Failure.
func Check(new func() reward.Reward) error { return suite.Check(new) }

// suite has the rules of reward.Reward's doc comment, in its order.
var suite = registry.Suite[reward.Reward]{New: reward.New, Rules: []registry.Rule[reward.Reward]{
	{Name: "defaults", Explanation: "New returns a fresh value every time, with defaults that Validate accepts and a toml name on every exported field", Check: checkDefaults},
	{Name: "count", Explanation: "Score returns one score per sample, in the order of the samples, for groups of any size, an empty one included", Check: checkCount},
	{Name: "values", Explanation: "values, components and log figures are finite, the status is OK, Limit or Error, and a sample that was skipped or whose status is not OK has value 0", Check: checkValues},
	{Name: "any-text", Explanation: "any text is graded without an error: empty, very long, not UTF-8, to a problem without answers or fields", Check: checkAnyText},
	{Name: "arguments", Explanation: "no method modifies its arguments", Check: checkArguments},
	{Name: "retention", Explanation: "no method keeps a reference to its arguments", Check: checkRetention},
	{Name: "determinism", Explanation: "equal groups get equal scores, whatever was graded before, unless the reward varies", Check: checkDeterminism},
	{Name: "order", Explanation: "the order of the samples does not matter", Check: checkOrder},
	{Name: "concurrency", Explanation: "methods may be called concurrently", Check: checkConcurrency},
	{Name: "context", Explanation: "if the context has ended, Score returns without waiting, with scores or with an error that wraps the context's", Check: checkContext},
	{Name: "same-answer", Explanation: "SameAnswer does not depend on the order of its arguments", Check: checkSameAnswer},
}}

func checkDefaults(new func() reward.Reward) error {
	return registry.CheckDefaults(new, taken(), "max_length")
}

// taken are the keys of the section that all rewards share.
func taken() map[string]bool {
	keys := map[string]bool{}
	for _, shared := range []any{new(reward.Part), new(reward.Combined)} {
		for _, f := range settings.Fields(shared) {
			keys[f.Key] = true
		}
	}
	return keys
}

// checkCount scores groups of all sizes from none on, and one of many samples.
func checkCount(new func() reward.Reward) error {
	r := new()
	all := group()
	for n := range len(all) + 1 {
		if _, err := score(r, all[:n]); err != nil {
			return fmt.Errorf("a group of %d: %w", n, err)
		}
	}
	// many samples must not exceed a limit inside the reward
	var many []reward.Sample
	for range 64 {
		many = append(many, group()...)
	}
	if _, err := score(r, many); err != nil {
		return fmt.Errorf("a group of %d: %w", len(many), err)
	}
	return nil
}

func checkValues(new func() reward.Reward) error {
	scores, err := score(new(), group())
	if err != nil {
		return err
	}
	for i, s := range scores {
		if err := s.Check(); err != nil {
			return fmt.Errorf("sample %d (%q): %w", i, variants[i].response, err)
		}
	}
	return nil
}

// checkAnyText scores responses, problems and answers that are odd texts.
func checkAnyText(new func() reward.Reward) error {
	r := new()
	empty := data.Problem{ID: "x"}
	odd := problem()
	const whole, truncated = false, true
	for _, text := range oddTexts {
		odd.Text, odd.Answers = text, []string{text}
		for _, s := range []reward.Sample{
			sample(problem(), text, whole), sample(problem(), text, truncated),
			sample(empty, text, whole), sample(odd, text, whole), sample(odd, `\boxed{4}`, whole),
		} {
			scores, err := score(r, []reward.Sample{s})
			if err == nil {
				err = scores[0].Check()
			}
			if err != nil {
				return fmt.Errorf("the response %.40q to the problem %.40q with the answers %.40q: %w", s.Response, s.Problem.Text, s.Problem.Answers, err)
			}
		}
	}
	return nil
}

func checkArguments(new func() reward.Reward) error {
	given, want := group(), group()
	if _, err := score(new(), given); err != nil {
		return err
	}
	for i := range want {
		if !reflect.DeepEqual(given[i], want[i]) {
			return fmt.Errorf("sample %d has changed from %+v to %+v", i, want[i], given[i])
		}
	}
	return nil
}

// checkRetention overwrites a group after it was scored, and compares scores from before and after.
func checkRetention(new func() reward.Reward) error {
	want, err := score(new(), group())
	if err != nil {
		return err
	}
	r := new()
	first := group()
	early, err := score(r, first)
	if err != nil {
		return err
	}
	before := fmt.Sprintf("%+v", early)
	// graded samples are overwritten: later scores must not change...
	for i := range first {
		s := &first[i]
		clear(s.IDs)
		clear(s.PromptIDs)
		clear(s.Problem.Answers)
		clear(s.Problem.Fields)
		s.Response = "overwritten"
	}
	later, err := score(r, group())
	if err != nil {
		return err
	}
	if err := equal(r, later, want); err != nil {
		return fmt.Errorf("after an earlier group was overwritten: %w", err)
	}
	// ... and earlier ones must not change when others are graded
	if _, err := score(r, []reward.Sample{sample(problem(), "another", false)}); err != nil {
		return err
	}
	if after := fmt.Sprintf("%+v", early); after != before {
		return fmt.Errorf("a later call wrote to an earlier result: it was %s and is %s", before, after)
	}
	return nil
}

// checkDeterminism scores a group again after others, and by another reward of the same kind.
func checkDeterminism(new func() reward.Reward) error {
	want, err := score(new(), group())
	if err != nil {
		return err
	}
	r := new()
	for range 3 {
		for _, text := range oddTexts {
			if _, err := score(r, []reward.Sample{sample(problem(), text, true)}); err != nil {
				return err
			}
		}
		got, err := score(r, group())
		if err != nil {
			return err
		}
		if err := equal(r, got, want); err != nil {
			return err
		}
	}
	return nil
}

func checkOrder(new func() reward.Reward) error {
	r := new()
	want, err := score(r, group())
	if err != nil {
		return err
	}
	reversed := group()
	slices.Reverse(reversed)
	got, err := score(r, reversed)
	if err != nil {
		return err
	}
	slices.Reverse(got)
	return equal(r, got, want)
}

// checkConcurrency calls the methods of one reward from several goroutines.
func checkConcurrency(new func() reward.Reward) error {
	r := new()
	want, err := score(new(), group())
	if err != nil {
		return err
	}
	return registry.AtOnce(8, func(int) (err error) {
		for range 20 {
			got, failed := score(r, group())
			if failed == nil {
				failed = equal(r, got, want)
			}
			err = errors.Join(err, failed)
			if c, ok := r.(reward.Comparer); ok {
				c.SameAnswer("4", "5") // for the race detector
			}
		}
		return err
	})
}

func checkContext(new func() reward.Reward) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	given := group()
	scores, err := new().Score(ctx, given)
	if err == nil && len(scores) != len(given) {
		return fmt.Errorf("%d scores for %d samples, and no error", len(scores), len(given))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the error %q does not wrap the context's", err)
	}
	return nil
}

func checkSameAnswer(new func() reward.Reward) error {
	c, ok := new().(reward.Comparer)
	if !ok {
		return nil
	}
	answers := append([]string{"4", "4.0", "8/2", "5", "A", "x=4", "(1,2)"}, oddTexts...)
	for i, a := range answers {
		for _, b := range answers[:i] {
			if c.SameAnswer(a, b) != c.SameAnswer(b, a) {
				return fmt.Errorf("%.40q and %.40q are the same in one order only", a, b)
			}
		}
	}
	return nil
}
