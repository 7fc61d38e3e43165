package objectives

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A Result is the output of an objective for the groups of one batch.
type Result struct {
	Loss   float64
	Groups [][]Weighted // one entry per group and trajectory, as given to Evaluate
}

// Weighted is the output of an objective for one trajectory.
type Weighted struct {
	// Diagnostics holds only the advantage if the objective is not a Diagnoser.
	Diagnostics
	// Weights holds the derivative of the loss with respect to the log-prob of each token.
	Weights []float64 `json:"weights"`
}

// GradientShares returns how the gradient is spread over the tokens: element k is the
// share of sum |w| that belongs to the (k+1)/10 of the tokens with the largest |w|.
func (w Weighted) GradientShares() [9]float64 { return gradientShares(slices.Clone(w.Weights)) }

// Evaluate applies o to whole groups of trajectories as one batch, at optimizer
// step number step of steps. It sets the advantages in groups from the rewards,
// which o may shape; it does not call Keep. Observe is called last and changes the
// state of o.
//
// Unusable input and results that are not finite are errors that name the group and the
// response, both counted from 0. Diagnostics omits a ratio that overflows, but has its
// logarithm.
func Evaluate(o Objective, groups [][]Trajectory, step, steps int) (result Result, err error) {
	defer recoverFailed(&err) // an objective without an answer, such as a program that died, panics
	if err := Check(o); err != nil {
		return Result{}, fmt.Errorf("objectives: %w", err)
	}
	b := Batch{Step: step, Steps: steps}
	// kl_reward reads log-probs before the advantages, which are checked later, exist
	if err := cmp.Or(checkGroups(o, groups), checkComponents(groups)); err != nil {
		return Result{}, err
	}
	for g := range groups {
		for k := range groups[g] {
			groups[g][k].Group = g
		}
	}
	SetAdvantages(o, groups...)
	if err := checkGroups(o, groups); err != nil { // now with the advantages
		return Result{}, err
	}
	b.Trajectories = slices.Concat(groups...)
	// Adding 0 turns -0 into 0: JSON writes them differently.
	out := Result{Loss: Loss(o, b, b) + 0, Groups: make([][]Weighted, len(groups))}
	if !finite(out.Loss) {
		return Result{}, fmt.Errorf("objectives: the loss is %v: too large a ratio for this objective; %s", out.Loss, farthest(groups, NeedsOf(o).Reference))
	}
	w := b.Zeros()
	Weights(o, b, w)
	var diagnostics []Diagnostics
	if d, ok := o.(Diagnoser); ok {
		diagnostics = d.Diagnose(b)
	}
	i := 0
	for g, group := range groups {
		out.Groups[g] = make([]Weighted, len(group))
		for k, t := range group {
			row := Weighted{Diagnostics: Diagnostics{Advantage: t.Advantage}, Weights: w[i]}
			if diagnostics != nil {
				row.Diagnostics = diagnostics[i]
			}
			for j, x := range row.Weights {
				if !finite(x) {
					return Result{}, fmt.Errorf("objectives: group %d, response %d: the weight of token %d is %v: too large a ratio for this objective", g, k, j, x)
				}
				row.Weights[j] = x + 0
			}
			out.Groups[g][k] = row
			i++
		}
	}
	if observer, ok := o.(Observer); ok {
		observer.Observe(b)
	}
	return out, nil
}

// recoverFailed turns the panic of an objective without an answer into an error. It is to be deferred.
func recoverFailed(err *error) {
	p := recover()
	if failed, ok := p.(Failed); ok {
		*err = failed
	} else if p != nil {
		panic(p)
	}
}

func checkGroups(o Objective, groups [][]Trajectory) error {
	needs := NeedsOf(o)
	for g, group := range groups {
		for k, t := range group {
			if err := t.check(needs); err != nil {
				return fmt.Errorf("objectives: group %d, response %d: %w", g, k, err)
			}
		}
	}
	return nil
}

// farthest names the token whose log-prob is farthest from the old policy's or, if it
// counts, the reference's.
func farthest(groups [][]Trajectory, reference bool) string {
	most, text := -1.0, "there is no token"
	for g, group := range groups {
		for k, t := range group {
			look := func(of string, from []float64) {
				for j, x := range from {
					if d := math.Abs(t.LogProb[j] - x); d > most {
						most, text = d, fmt.Sprintf("group %d, response %d, token %d is farthest: log-prob %v, %s %v", g, k, j, t.LogProb[j], of, x)
					}
				}
			}
			look("old log-prob", t.OldLogProb)
			if reference {
				look("reference log-prob", t.RefLogProb)
			}
		}
	}
	return text
}

// checkComponents refuses groups in which a part of the reward has several weights: a
// part's weight is a setting of the combined reward and equal for all responses.
func checkComponents(groups [][]Trajectory) error {
	for g, group := range groups {
		first := map[string]int{} // the response from which a part's weight was taken
		for k, t := range group {
			for _, name := range slices.Sorted(maps.Keys(t.Components)) {
				f, seen := first[name]
				if !seen {
					first[name] = k
				} else if was, is := group[f].Components[name].Weight, t.Components[name].Weight; was != is {
					return fmt.Errorf("objectives: group %d, response %d: component %q has the weight %v, and %v in response %d: give it the same in all",
						g, k, name, is, was, f)
				}
			}
		}
	}
	return nil
}
