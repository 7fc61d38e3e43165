package rl

import (
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"onering/objectives"
	"onering/train/learn"
)

// weigh asks an objective for the loss and the derivatives of a batch, in which setScores has put the scores s, and if
// they are finite for figures about them, of the responses that have scores. An objective is a plug-in: its panic is an
// error that names it, and so is a change that it makes to the batch.
func weigh(o objectives.Objective, name string, b objectives.Batch, s learn.Scores) (x learn.Loss, stats []objectives.Stat, err error) {
	defer func() {
		p := recover()
		if failed, ok := p.(objectives.Failed); ok {
			err = failed
		} else if p != nil {
			err = fmt.Errorf("objective %q panics: %v\n%s", name, p, debug.Stack())
		}
	}()
	before := fingerprint(b)
	defer func() {
		if err == nil && fingerprint(b) != before {
			err = fmt.Errorf("objective %q changes its batch: Loss and Weights may only read it (objectivetest says where)", name)
		}
	}()
	x.LogProb = b.Zeros()
	x.Value = objectives.Loss(o, b, b) // at the batch itself: what the objective detaches is taken from it, too
	objectives.Weights(o, b, x.LogProb)
	if e, ok := o.(objectives.EntropyWeigher); ok && e.WeighsEntropy() {
		x.Entropy = b.Zeros()
		e.EntropyWeights(b, x.Entropy)
	}
	if x.Check() != nil {
		return x, nil, nil // the Stepper reports it
	}
	var diagnostics []objectives.Diagnostics
	if d, ok := o.(objectives.Diagnoser); ok {
		diagnostics = d.Diagnose(b)
	}
	part, w, diagnostics := scored(b, x.LogProb, diagnostics, s)
	return x, slices.Concat(part.Summarize(w, diagnostics), objectives.MaskStats(o, b), objectives.TermStats(o, b, x.LogProb)), nil
}

// scored returns the part of a batch, of its weights and of its diagnostics (which may be nil), that has scores.
func scored(b objectives.Batch, w [][]float64, d []objectives.Diagnostics, s learn.Scores) (objectives.Batch, [][]float64, []objectives.Diagnostics) {
	part := objectives.Batch{Step: b.Step, Steps: b.Steps}
	var weights [][]float64
	var diagnostics []objectives.Diagnostics
	for i, logp := range s.LogProb {
		if logp == nil {
			continue
		}
		part.Trajectories, weights = append(part.Trajectories, b.Trajectories[i]), append(weights, w[i])
		if d != nil {
			diagnostics = append(diagnostics, d[i])
		}
	}
	return part, weights, diagnostics
}

// fingerprint is a hash over the usual figures of a batch, to find out that one changed.
func fingerprint(b objectives.Batch) uint64 {
	const prime = 1099511628211                           // of FNV
	h := uint64(14695981039346656037)                     // as FNV begins
	add := func(x uint64) { h = (h ^ x ^ x>>32) * prime } // x>>32: high bits reach the low ones, too
	floats := func(list []float64) {
		add(uint64(len(list)))
		for _, x := range list {
			add(math.Float64bits(x))
		}
	}
	for i := range b.Trajectories {
		x := &b.Trajectories[i]
		floats([]float64{x.Reward, x.Advantage})
		for _, list := range [][]float64{x.LogProb, x.OldLogProb, x.RefLogProb, x.Entropy, x.TokenAdvantage, x.SampleLogProb} {
			floats(list)
		}
		for _, flag := range []bool{x.Truncated, x.Degenerate} {
			if flag {
				add(1)
			}
			add(2) // the end of the flag, so that which one is set matters
		}
	}
	return h
}
