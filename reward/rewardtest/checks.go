package rewardtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"onering/data"
	"onering/internal/registry"
	"onering/internal/settings"
	"onering/reward"
)

func checkDefaults(new func() reward.Reward) error {
	return registry.CheckDefaults(new, taken(), "max_length")
}

// taken are the keys of a run file that every reward shares its section with.
func taken() map[string]bool {
	keys := map[string]bool{}
	for _, shared := range []any{new(reward.Part), new(reward.Combined)} {
		for _, f := range settings.Fields(shared) {
			keys[f.Key] = true
		}
	}
	return keys
}

func checkCount(new func() reward.Reward) error {
	r := new()
	all := group()
	for n := range len(all) + 1 {
		if _, err := score(r, all[:n]); err != nil {
			return fmt.Errorf("a group of %d: %w", n, err)
		}
	}
	// A group of many must not exceed a limit of the reward's own.
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

func checkAnyText(new func() reward.Reward) error {
	r := new()
	empty := data.Problem{ID: "x"}
	odd := problem()
	for _, text := range oddTexts {
		odd.Text, odd.Answers = text, []string{text}
		for _, s := range []reward.Sample{
			sample(problem(), text, false), sample(problem(), text, true),
			sample(empty, text, false), sample(odd, text, false), sample(odd, `\boxed{4}`, false),
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
	// What was graded before is overwritten: later scores must not change...
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
	// ... and neither must earlier ones when others are graded.
	if _, err := score(r, []reward.Sample{sample(problem(), "another", false)}); err != nil {
		return err
	}
	if after := fmt.Sprintf("%+v", early); after != before {
		return fmt.Errorf("a later call wrote to an earlier result: it was %s and is %s", before, after)
	}
	return nil
}

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
				c.SameAnswer("4", "5")
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
