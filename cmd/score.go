package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/policy"
	"onering/runtime"
	"onering/train/rl"
)

func newScore() *cobra.Command {
	s := modelSettings(withTrainDefaults)
	s.samplesOnly = false
	c := newCommand("score", nil, s.withResolved(func(c *cobra.Command, args []string, r *resolved) error {
		return r.with(c, oneProcess, args, noNamedAdapters, func(in io.Reader, name string, p *policy.Policy) error {
			return score(in, name, c.OutOrStdout(), p, r.Rollout.Temperature)
		})
	}))
	s.addModelFlags(c, adapterFlag, "rollout.temperature")
	return c
}

// microTokens is how many tokens are computed at once, unless a single row has more.
const microTokens = 4096

// score reads rows of prompts and responses, and writes the log-probs and entropies of each response in the same
// order. It computes several rows at once. A row with an error becomes a line with it.
func score(in io.Reader, name string, out io.Writer, p *policy.Policy, temperature float64) error {
	learner, err := p.Env.NewLearner(p.Ring, runtime.LearnerOptions{})
	if err != nil {
		return err
	}
	defer learner.Close()
	type scored struct {
		LogP    []float32 `json:"logp"`
		Entropy []float32 `json:"entropy"`
	}
	lines := cli.Answers{Name: name, Out: out}
	var batch []runtime.Sequence
	var rows []rl.ScoredRow
	var places [][2]int // of the batch: index and input line of each row
	tokens := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		pass, err := learner.Forward(batch, temperature, false) // false: keep nothing for a backward pass
		if err != nil {
			return err
		}
		defer pass.Release()
		for i, at := range places {
			err := checkFinite(pass.LogProb[i], pass.Entropy[i])
			if err != nil {
				err = lines.Fail(at[0], at[1], err)
			} else {
				err = lines.Give(at[0], 0, scored{rows[i].Widen(pass.LogProb[i]), rows[i].Widen(pass.Entropy[i])}) // 0: its only line
			}
			if err != nil {
				return err
			}
		}
		batch, rows, places, tokens = batch[:0], rows[:0], places[:0], 0
		return nil
	}
	err = cli.EachRow(in, name, func(index, number int, row rl.ScoredRow) error {
		s, failed := row.Sequence(p)
		if failed != nil || tokens+len(s.Tokens) > microTokens { // lines of output stand in the order of rows
			if err := flush(); err != nil {
				batch = nil // not again by the flush at the end
				return err
			}
		}
		if failed != nil {
			return lines.Fail(index, number, failed)
		}
		batch, rows, places = append(batch, s), append(rows, row), append(places, [2]int{index, number})
		tokens += len(s.Tokens)
		return nil
	})
	return errors.Join(flush(), cmp.Or(err, lines.Err()))
}

// checkFinite refuses infinite figures and NaN, which a sound model does not give.
func checkFinite(logp, entropy []float32) error {
	for j, x := range logp {
		if h := entropy[j]; x-x != 0 || h-h != 0 {
			return fmt.Errorf("response token %d has the log-prob %v and the entropy %v: the model's weights hold NaN "+
				"or an infinity, or numbers too large to compute with", j, x, h)
		}
	}
	return nil
}
