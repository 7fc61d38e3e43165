package objectivetest

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"onering/objectives"
)

// checkDerivative compares Weights with central differences of Loss(., at = b).
// Differences at two step sizes tell a kink, such as the edge of a clip, from a
// wrong weight: tokens at which they disagree are skipped, but most must be compared.
func checkDerivative(new func() objectives.Objective) error {
	checked, skipped := 0, 0
	for seed := range uint64(4) {
		o := new()
		b := draw(o, 100+seed).ordinary()
		w := weights(o, b)
		moved := clone(b)
		for i, t := range moved.Trajectories {
			for j := range t.LogProb {
				slope, smooth := slopeOf(&t.LogProb[j], func() float64 { return objectives.Loss(o, moved, b) })
				if !smooth {
					skipped++
					continue
				}
				checked++
				if math.Abs(slope-w[i][j]) > 1e-6*max(math.Abs(slope), largest(w[i]), 1e-3) {
					return fmt.Errorf("trajectory %d, token %d (d = %.4g, advantage %.4g): Weights says %.9g, the difference quotient of Loss %.9g",
						i, j, t.LogProb[j]-t.OldLogProb[j], t.Advantage, w[i][j], slope)
				}
			}
		}
	}
	if skipped > checked/4 {
		return fmt.Errorf("the loss is not smooth at %d of %d tokens, which is no clip's edge: what the method detaches must be computed from at",
			skipped, checked+skipped)
	}
	return nil
}

// slopeOf returns the derivative of f in *x, and whether f is smooth there.
func slopeOf(x *float64, f func() float64) (slope float64, smooth bool) {
	at := *x
	quotient := func(h float64) float64 {
		*x = at + h
		up := f()
		*x = at - h
		down := f()
		*x = at
		return (up - down) / (2 * h)
	}
	const h = 1e-4
	wide, narrow := quotient(2*h), quotient(h)
	if math.IsNaN(wide) || math.IsNaN(narrow) {
		return math.NaN(), true // not to be skipped
	}
	slope = (4*narrow - wide) / 3 // the error of order h^2 cancels
	return slope, math.Abs(wide-narrow) <= 1e-5*max(math.Abs(slope), 1e-3)
}

// checkEntropy compares EntropyWeights with differences of Loss in Entropy, in which Loss is linear. Without that method
// the loss may not depend on the entropy.
func checkEntropy(new func() objectives.Objective) error {
	o := new()
	e, ok := o.(objectives.EntropyWeigher)
	if _, has := reflect.TypeOf(o).MethodByName("EntropyWeights"); has && !ok {
		return errors.New("there is a method EntropyWeights, but the host never calls it: objectives.EntropyWeigher " +
			"wants WeighsEntropy() bool and EntropyWeights(b objectives.Batch, v [][]float64)")
	}
	b := draw(o, 7).ordinary()
	v := rows(b, 0) // the derivative of a loss that does not depend on the entropy
	if objectives.NeedsOf(o).EntropyGradient {
		if b.Trajectories[0].Entropy == nil {
			return errors.New("WeighsEntropy is true, but NeedsEntropy does not ask for the entropy")
		}
		v = rows(b, math.NaN()) // each element has to be set
		e.EntropyWeights(b, v)
	}
	moved := clone(b)
	for i, t := range moved.Trajectories {
		for j := range t.Entropy {
			slope, _ := slopeOf(&t.Entropy[j], func() float64 { return objectives.Loss(o, moved, b) })
			if !(math.Abs(slope-v[i][j]) <= 1e-6*max(math.Abs(slope), 1e-3)) { // true of NaN, too
				return fmt.Errorf("trajectory %d, token %d: the entropy weight is %.9g, the difference quotient of Loss %.9g", i, j, v[i][j], slope)
			}
		}
	}
	return nil
}

// checkDirection wants a loss that falls where all log-probs of a response with a positive advantage rise together, and
// rises for a negative one: the sum of the weights says so.
func checkDirection(new func() objectives.Objective) error {
	o := new()
	b := draw(o, 11).onPolicy()
	for i := range b.Trajectories {
		b.Trajectories[i].RefLogProb = clone(b).Trajectories[i].LogProb // equal log-probs make the gradient of the KL penalty zero
	}
	var masks [][]float64
	if m, ok := o.(objectives.Masker); ok {
		masks = m.Mask(b)
	}
	for i, row := range weights(o, b) {
		if masks != nil && largest(masks[i]) == 0 {
			continue // the response is left out
		}
		sum := 0.0
		for _, x := range row {
			sum += x
		}
		if a := b.Trajectories[i].Advantage; a*sum > 0 || a != 0 && sum == 0 {
			return fmt.Errorf("trajectory %d has advantage %.4g, and its weights sum to %.4g", i, a, sum)
		}
	}
	return nil
}

// checkFinite wants a finite loss, weights and diagnostics of o on b.
func checkFinite(o objectives.Objective, b objectives.Batch) error {
	if loss := objectives.Loss(o, b, b); !finite(loss) {
		return fmt.Errorf("the loss is %v", loss)
	}
	for i, row := range weights(o, b) {
		for j, x := range row {
			if !finite(x) {
				t := b.Trajectories[i]
				return fmt.Errorf("trajectory %d, token %d (d = %.4g, advantage %.4g): the weight is %v", i, j, t.LogProb[j]-t.OldLogProb[j], t.Advantage, x)
			}
		}
	}
	if d, ok := o.(objectives.Diagnoser); ok {
		return checkDiagnostics(b, d.Diagnose(b))
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// checkEmpty wants finite results for batches without responses, and with responses without tokens.
func checkEmpty(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 13)
	d := func() float64 { return s.NormFloat64() }
	for _, c := range []struct {
		name   string
		groups [][]int
	}{
		{"an empty batch", nil},
		{"a batch of one empty response", [][]int{{0}}},
		{"a batch of empty responses", [][]int{{0, 0}, {0, 0, 0}}},
		{"some empty responses", [][]int{{0, 5, 3}, {4, 0}}},
	} {
		b := s.batch(c.groups, d)
		if err := checkFinite(o, b); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if observer, ok := o.(objectives.Observer); ok {
			observer.Observe(b)
		}
		if err := checkFinite(o, b); err != nil {
			return fmt.Errorf("%s, observed: %w", c.name, err)
		}
	}
	return nil
}

// checkOneToken wants finite results for responses of one token.
func checkOneToken(new func() objectives.Objective) error {
	o := new()
	s := draw(o, 17)
	for _, groups := range [][][]int{{{1}}, {{1, 1}}, {{1, 7}, {1, 1, 4}}} {
		if err := checkFinite(o, s.batch(groups, func() float64 { return s.NormFloat64() })); err != nil {
			return fmt.Errorf("lengths %v: %w", groups, err)
		}
	}
	return nil
}

// checkExtreme wants finite results where log-probs differ from the old ones by 700 nats, at which e^d nearly
// overflows.
func checkExtreme(new func() objectives.Objective) error {
	for _, c := range []struct {
		name string
		d    func(source) float64
	}{
		{"every d = 700", func(source) float64 { return 700 }},
		{"every d = -700", func(source) float64 { return -700 }},
		{"d = +-700", func(s source) float64 { return 1400*float64(s.IntN(2)) - 700 }},
		{"d = 0 or +-700", func(s source) float64 { return 700 * float64(s.IntN(3)-1) }},
	} {
		o := new()
		s := draw(o, 19)
		b := s.batch([][]int{{1, 40, 12, 3}, {7, 2}, {30, 30}}, func() float64 { return c.d(s) })
		if err := checkFinite(o, b); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}
