package objectivetest

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"onering/internal/registry"
	"onering/objectives"
)

func checkDefaults(new func() objectives.Objective) error {
	return registry.CheckDefaults(new, map[string]bool{"name": true}, "clip_low")
}

// checkOverwrite wants the same weights whatever w held before the call.
func checkOverwrite(new func() objectives.Objective) error {
	o := new()
	b := draw(o, 23).ordinary()
	b.Trajectories[1].Advantage = 0 // a shortcut must not skip the row
	want := weights(o, b)
	for _, garbage := range []float64{math.NaN(), 12345} {
		w := rows(b, garbage)
		objectives.Weights(o, b, w)
		if err := same(w, want); err != nil {
			return fmt.Errorf("with w full of %v beforehand: %w", garbage, err)
		}
	}
	return nil
}

// same reports whether all bits are equal, except for the sign of zero.
func same(got, want [][]float64) error {
	for i := range want {
		for j := range want[i] {
			if got[i][j] != want[i][j] {
				return fmt.Errorf("trajectory %d, token %d: the weight is %v, and %v at another time", i, j, got[i][j], want[i][j])
			}
		}
	}
	return nil
}

// everything calls every method of o on b, but for Observe, which alone may change o: the caller then looks whether
// one of these calls changed o or an argument. Loss passes no gradient through the log-probs of at.
func everything(o objectives.Objective, b, at objectives.Batch, w [][]float64) {
	objectives.Loss(o, b, at)
	objectives.Weights(o, b, w)
	if d, ok := o.(objectives.Diagnoser); ok {
		d.Diagnose(b)
	}
	if e, ok := o.(objectives.EntropyWeigher); ok && e.WeighsEntropy() {
		e.EntropyWeights(b, rows(b, 0))
	}
	if k, ok := o.(objectives.Keeper); ok {
		k.Keep(b.Trajectories)
	}
	if s, ok := o.(objectives.Shaper); ok {
		for _, t := range b.Trajectories {
			s.Shape(t)
		}
	}
}

// checkArguments wants every method to leave the batch, the groups and the point at which Loss detaches as they
// were.
func checkArguments(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 29)
	b, at := s.ordinary(), s.ordinary()
	wantB, wantAt := clone(b), clone(at)
	everything(o, b, at, rows(b, 0))
	if observer, ok := o.(objectives.Observer); ok {
		observer.Observe(b)
	}
	if !reflect.DeepEqual(b, wantB) {
		return errors.New("the batch has changed")
	}
	if !reflect.DeepEqual(at, wantAt) {
		return errors.New("the batch at which Loss detaches has changed")
	}
	groups := [][]objectives.Trajectory{s.group([]float64{0, 1, 0.5, 1}), s.group([]float64{0, 1})}
	want := [][]objectives.Trajectory{cloneAll(groups[0]), cloneAll(groups[1])}
	objectives.Advantages(o, groups)
	if t, ok := o.(objectives.TokenAdvantager); ok {
		t.TokenAdvantages(groups[0])
	}
	if !reflect.DeepEqual(groups, want) {
		return errors.New("computing advantages changed the groups")
	}
	return nil
}

// checkRetention wants results that depend on no argument of an earlier call, and that no later call changes.
func checkRetention(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 31)
	first, second := s.ordinary(), s.ordinary()
	want, wantLoss := weights(new(), clone(second)), objectives.Loss(new(), clone(second), clone(second))

	// Results must not depend on the arguments of earlier calls...
	w := rows(first, 0)
	everything(o, first, first, w)
	advantages := objectives.Advantages(o, [][]objectives.Trajectory{s.group([]float64{0, 1})})[0]
	overwrite(first)
	if got := weights(o, second); same(got, want) != nil {
		return fmt.Errorf("after an earlier batch was overwritten: %w", same(got, want))
	}
	if loss := objectives.Loss(o, second, second); loss != wantLoss {
		return fmt.Errorf("after an earlier batch was overwritten: the loss is %v, and %v at another time", loss, wantLoss)
	}
	// ... and later calls must not change earlier results.
	earlier, earlierAdvantages := weights(o, second), slices.Clone(advantages)
	everything(o, s.ordinary(), second, rows(second, 0))
	objectives.Advantages(o, [][]objectives.Trajectory{s.group([]float64{5, 1})})
	if err := same(earlier, want); err != nil {
		return fmt.Errorf("a later call wrote to an earlier w: %w", err)
	}
	if !slices.Equal(advantages, earlierAdvantages) {
		return errors.New("a later call of Advantages wrote to the result of an earlier one")
	}
	return nil
}

// checkDeterminism wants the same bits from repeated calls, and from a second objective.
func checkDeterminism(new func() objectives.Objective) error {
	o, other := new(), new()
	b := draw(o, 37).ordinary()
	want, loss := weights(o, b), objectives.Loss(o, b, b)
	for range 20 {
		for _, o := range []objectives.Objective{o, other} {
			if err := same(weights(o, b), want); err != nil {
				return err
			}
			if again := objectives.Loss(o, b, b); again != loss {
				return fmt.Errorf("the loss is %v, and %v at another time", again, loss)
			}
		}
	}
	return nil
}

// checkEqualRewards wants no signal from a group with equal rewards, beside another group in the round.
func checkEqualRewards(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 41)
	b, greedy := s.ordinary(), s.greedy(0.5)
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		t.Reward, t.Greedy = 0.1, greedy
		t.RefLogProb = slices.Clone(t.LogProb) // equal log-probs make the gradient of the KL penalty zero
	}
	// another group, with other rewards, is in the same round
	objectives.SetAdvantages(o, b.Trajectories, s.group([]float64{1, 0, 0.5, 1}))
	return checkNoSignal(o, b)
}

// checkNoSignal wants advantages of zero, unless the objective shapes rewards, and then
// weights of zero.
func checkNoSignal(o objectives.Objective, b objectives.Batch) error {
	_, shapes := o.(objectives.Shaper)
	for i, t := range b.Trajectories {
		if t.HasAdvantage() && !shapes {
			return fmt.Errorf("trajectory %d: the advantage is %v", i, t.Advantage)
		}
		b.Trajectories[i].Advantage, b.Trajectories[i].TokenAdvantage = 0, nil
	}
	for i, row := range weights(o, b) {
		if largest(row) != 0 {
			return fmt.Errorf("trajectory %d: the largest weight is %v", i, largest(row))
		}
	}
	return nil
}

// checkWithoutAdvantage wants weights, loss and state that do not depend on the log-probs of responses without an
// advantage, and no weights of these.
func checkWithoutAdvantage(new func() objectives.Objective) error {
	o := new()
	if objectives.NeedsOf(o).All {
		return nil // it says that it reads them
	}
	s := draw(o, 45)
	for range 3 {
		b := s.ordinary()
		for i := range b.Trajectories {
			if i%2 == 1 {
				b.Trajectories[i].Advantage, b.Trajectories[i].TokenAdvantage = 0, nil
			}
		}
		other := clone(b)
		weightless := func(i int) bool { return !objectives.NeedsOf(o).Live(b.Trajectories[i]) }
		for i := range other.Trajectories {
			if weightless(i) {
				copy(other.Trajectories[i].LogProb, other.Trajectories[i].OldLogProb) // as where they are not computed
			}
		}
		w, again := weights(o, b), weights(o, other)
		for i := range w {
			if !slices.Equal(w[i], again[i]) {
				return fmt.Errorf("trajectory %d: other weights where the log-probs of responses without advantage are other", i)
			}
			if weightless(i) && largest(w[i]) != 0 {
				return fmt.Errorf("trajectory %d has no advantage: the largest weight is %v", i, largest(w[i]))
			}
		}
		// The second batch is that at which Loss detaches.
		if x, y := objectives.Loss(o, b, b), objectives.Loss(o, other, other); !(math.Abs(x-y) <= 1e-12*(1+math.Abs(x))) {
			return fmt.Errorf("the loss is %v, and %v where the log-probs of responses without advantage are other", x, y)
		}
		if err := sameState(new, b, other); err != nil {
			return err
		}
	}
	return nil
}

// checkApart wants an objective that weighs responses apart to give each the same weights beside others whose log-probs and
// entropies are not computed yet, so that a host has the old log-probs and any entropies in their place.
func checkApart(new func() objectives.Objective) error {
	o := new()
	if !objectives.NeedsOf(o).Apart {
		return nil
	}
	s := draw(o, 46)
	for range 3 {
		b := s.ordinary()
		w, v := weights(o, b), entropyWeights(o, b)
		for i := range b.Trajectories {
			other := clone(b)
			for j := range other.Trajectories {
				t := &other.Trajectories[j]
				if j != i {
					copy(t.LogProb, t.OldLogProb)
					for k := range t.Entropy {
						t.Entropy[k] = math.Abs(t.OldLogProb[k])
					}
				}
			}
			if !slices.Equal(w[i], weights(o, other)[i]) || !slices.Equal(v[i], entropyWeights(o, other)[i]) {
				return fmt.Errorf("trajectory %d: other weights where the log-probs and entropies of other responses are other: WeighsApart must be false", i)
			}
		}
	}
	return nil
}

// sameState wants an Observer to have the same state after b and after other, each seen by an objective of its own.
func sameState(new func() objectives.Objective, b, other objectives.Batch) error {
	var texts [2]string
	for i, batch := range []objectives.Batch{b, other} {
		o := new()
		ob, ok := o.(objectives.Observer)
		m, carries := o.(encoding.TextMarshaler)
		if !ok || !carries {
			return nil
		}
		ob.Observe(batch)
		text, err := m.MarshalText()
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		return fmt.Errorf("Observe keeps %s, and %s where the log-probs of responses without advantage are other", texts[0], texts[1])
	}
	return nil
}

// checkEqualRounds wants no signal from a round in which all rewards of all groups are equal.
func checkEqualRounds(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 42)
	round := [][]objectives.Trajectory{s.group([]float64{0.1, 0.1, 0.1}), s.group([]float64{0.1, 0.1})}
	objectives.SetAdvantages(o, round...)
	b := objectives.Batch{Steps: 1, Trajectories: slices.Concat(round...)}
	for i, t := range b.Trajectories {
		b.Trajectories[i].RefLogProb = slices.Clone(t.LogProb) // equal log-probs make the gradient of the KL penalty zero
	}
	return checkNoSignal(o, b)
}

// checkAdvantages wants finite advantages that belong to the responses, in whatever order they and the groups
// come.
func checkAdvantages(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 44)
	for _, rewards := range [][]float64{
		{}, {1}, {0.1, 0.1, 0.1}, {-3, -3}, {0, 1}, {1, 0, 0, 1, 1}, {-1, 0.25, 1e6, 0.5}, {1e-9, 2e-9, 0},
	} {
		group, other := s.group(rewards), s.group([]float64{1, 0, 0})
		round := objectives.Advantages(o, [][]objectives.Trajectory{group, other})
		if len(round) != 2 || len(round[0]) != len(rewards) || len(round[1]) != len(other) {
			return fmt.Errorf("rewards %v: %d groups of advantages for 2 groups, or too few or many of a group", rewards, len(round))
		}
		// the same group in reverse, and after the other group: advantages must belong to
		// the responses
		reversed := slices.Clone(group)
		slices.Reverse(reversed)
		moved := objectives.Advantages(o, [][]objectives.Trajectory{other, reversed})[1]
		for i, a := range round[0] {
			if !finite(a) {
				return fmt.Errorf("rewards %v: advantages %v", rewards, round[0])
			}
			if back := moved[len(moved)-1-i]; math.Abs(back-a) > 1e-9*math.Abs(a)+1e-12 {
				return fmt.Errorf("rewards %v: advantage %v of reward %v is %v in reverse order", rewards, a, rewards[i], back)
			}
		}
		if err := checkTokenAdvantages(o, group); err != nil {
			return fmt.Errorf("rewards %v: %w", rewards, err)
		}
	}
	return nil
}

// checkTokenAdvantages wants one number per token, or none.
func checkTokenAdvantages(o objectives.Objective, group []objectives.Trajectory) error {
	t, ok := o.(objectives.TokenAdvantager)
	if !ok {
		return nil
	}
	rows := t.TokenAdvantages(group)
	if len(rows) != len(group) {
		return fmt.Errorf("%d rows of token advantages for %d responses", len(rows), len(group))
	}
	for i, row := range rows {
		if row != nil && len(row) != len(group[i].LogProb) || slices.ContainsFunc(row, func(a float64) bool { return !finite(a) }) {
			return fmt.Errorf("response %d of %d tokens has the token advantages %v", i, len(group[i].LogProb), row)
		}
	}
	return nil
}

// checkOrder wants the same loss and weights, but for rounding, in whatever order the responses of a batch
// come.
func checkOrder(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 43)
	b := s.ordinary()
	want, loss := weights(o, b), objectives.Loss(o, b, b) // b again: constants of the gradient come from it
	order := s.Perm(len(b.Trajectories))
	shuffled := b
	shuffled.Trajectories = nil
	for _, i := range order {
		shuffled.Trajectories = append(shuffled.Trajectories, b.Trajectories[i])
	}
	if x := objectives.Loss(o, shuffled, shuffled); math.Abs(x-loss) > 1e-12*max(1, math.Abs(loss)) {
		return fmt.Errorf("the loss is %v, and %v in another order", loss, x)
	}
	for k, row := range weights(o, shuffled) {
		for j, x := range row {
			if y := want[order[k]][j]; math.Abs(x-y) > 1e-12*largest(row) {
				return fmt.Errorf("trajectory %d, token %d: the weight is %v, and %v in another order", order[k], j, y, x)
			}
		}
	}
	return nil
}

// checkConcurrency wants concurrent calls on different batches to return what each returns alone.
func checkConcurrency(new func() objectives.Objective) error {
	o := new()
	const callers = 8
	var batches [callers]objectives.Batch
	var want [callers][][]float64
	var loss [callers]float64
	for i := range batches {
		batches[i] = draw(o, 50+uint64(i)).ordinary()
		want[i], loss[i] = weights(new(), batches[i]), objectives.Loss(new(), batches[i], batches[i])
	}
	return registry.AtOnce(callers, func(i int) (err error) {
		for range 50 {
			err = cmp.Or(err, same(weights(o, batches[i]), want[i]))
			if x := objectives.Loss(o, batches[i], batches[i]); x != loss[i] {
				err = cmp.Or(err, fmt.Errorf("the loss is %v, and %v alone", x, loss[i]))
			}
			everything(o, batches[i], batches[i], rows(batches[i], 0))
		}
		return err
	})
}

// checkState wants a state that survives MarshalText and UnmarshalText, and that Observe alone changes.
func checkState(new func() objectives.Objective) error {
	o := new()
	observer, observes := o.(objectives.Observer)
	marshaler, marshals := o.(encoding.TextMarshaler)
	_, unmarshals := o.(encoding.TextUnmarshaler)
	if observes != marshals || marshals != unmarshals {
		return errors.New("an objective has all of Observe, MarshalText and UnmarshalText or none: state must survive a checkpoint")
	}
	s := draw(o, 47)
	if !observes {
		// Without Observe there can be no state: history must not matter.
		b := s.ordinary()
		want := weights(new(), b)
		for range 3 {
			other := s.ordinary()
			everything(o, other, other, rows(other, 0))
		}
		return same(weights(o, b), want)
	}
	for step := range 4 {
		before, err := marshaler.MarshalText()
		if err != nil {
			return fmt.Errorf("after %d steps: MarshalText: %w", step, err)
		}
		resumed := new()
		if err := resumed.(encoding.TextUnmarshaler).UnmarshalText(slices.Clone(before)); err != nil {
			return fmt.Errorf("after %d steps: UnmarshalText of what MarshalText gave: %w", step, err)
		}
		if again, err := resumed.(encoding.TextMarshaler).MarshalText(); err != nil || string(again) != string(before) {
			return fmt.Errorf("after %d steps: the state is %q, and %q after a round trip (%v)", step, before, again, err)
		}
		b := s.ordinary()
		if err := same(weights(resumed, b), weights(o, b)); err != nil {
			return fmt.Errorf("after %d steps: resumed from the state: %w", step, err)
		}
		everything(o, b, b, rows(b, 0))
		if after, err := marshaler.MarshalText(); err != nil || string(after) != string(before) {
			return fmt.Errorf("after %d steps: the state is %q, and %q before Observe was called (%v)", step, after, before, err)
		}
		observer.Observe(b)
	}
	return nil
}

// checkDiagnose wants complete and finite diagnostics of a Diagnoser.
func checkDiagnose(new func() objectives.Objective) error {
	o := new()
	d, ok := o.(objectives.Diagnoser)
	if !ok {
		return nil
	}
	b := draw(o, 53).ordinary()
	return checkDiagnostics(b, d.Diagnose(b))
}

// checkDiagnostics wants one diagnostics for each trajectory, with its advantage and finite figures.
func checkDiagnostics(b objectives.Batch, all []objectives.Diagnostics) error {
	if len(all) != len(b.Trajectories) {
		return fmt.Errorf("%d diagnostics for %d trajectories", len(all), len(b.Trajectories))
	}
	for i, d := range all {
		if d.Advantage != b.Trajectories[i].Advantage {
			return fmt.Errorf("trajectory %d: the advantage is reported as %v, but is %v", i, d.Advantage, b.Trajectories[i].Advantage)
		}
		v := reflect.ValueOf(d)
		for f := range v.NumField() {
			if x, ok := v.Field(f).Interface().(*float64); ok && x != nil && !finite(*x) {
				return fmt.Errorf("trajectory %d: %s is %v", i, v.Type().Field(f).Name, *x)
			}
		}
	}
	return nil
}

// checkGroups wants Keep and Shape to answer alike for equal groups, whatever was asked between.
func checkGroups(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 59)
	group, other := s.ordinary(), s.ordinary()
	for range 3 {
		if k, ok := o.(objectives.Keeper); ok {
			first := k.Keep(group.Trajectories)
			k.Keep(nil)
			k.Keep(other.Trajectories[:1])
			if k.Keep(cloneAll(group.Trajectories)) != first {
				return errors.New("calls of Keep return different answers for equal groups")
			}
		}
		if shaper, ok := o.(objectives.Shaper); ok {
			first := shaper.Shape(group.Trajectories[0])
			shaper.Shape(other.Trajectories[1])
			if again := shaper.Shape(cloneAll(group.Trajectories)[0]); again != first || !finite(again) {
				return fmt.Errorf("calls of Shape return %v and %v for equal trajectories", first, again)
			}
		}
		weights(o, other)
	}
	return nil
}
