package rl

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"onering/internal/strict"
	"onering/objectives"
	"onering/train/rundir"
)

// A weightsInput has groups of responses whose tokens an objective weighs.
type weightsInput struct {
	Groups [][]weightsTrajectory `json:"groups"`
	Step   int                   `json:"step"`
	Steps  int                   `json:"steps"`
	// State is the "state" of an earlier output, or null.
	State json.RawMessage `json:"state"`
}

// A weightsTrajectory is one response; the lists have one number per token.
// reward and logp must be given, old_logp too unless the response is empty.
type weightsTrajectory struct {
	Reward         *float64  `json:"reward"`
	LogProb        []float64 `json:"logp"`
	OldLogProb     []float64 `json:"old_logp"`
	RefLogProb     []float64 `json:"ref_logp"`
	Entropy        []float64 `json:"entropy"`
	TokenAdvantage []float64 `json:"token_advantage"`
	SampleLogProb  []float64 `json:"sample_logp"`
	SumPiSquared   []float64 `json:"sum_pi_squared"` // by token, over the vocabulary; for advantage = "otb"
	Role           string    `json:"role"`           // for the advantages rae and hierarchical
	Episode        string    `json:"episode"`
	IDs            []int32   `json:"ids"`
	Truncated      bool      `json:"truncated"`
	// Turns are the turns of an episode: the objective sees only the policy's tokens.
	Turns        rundir.Turns `json:"turns"`
	GreedyReward *float64     `json:"greedy_reward"`
	// Components are the parts of a combined reward.
	Components map[string]struct {
		Value  float64  `json:"value"`
		Weight *float64 `json:"weight"` // 1 if it is not given
	} `json:"components"`
}

// lists are the numbers of its tokens.
func (t *weightsTrajectory) lists() []*[]float64 {
	return []*[]float64{&t.LogProb, &t.OldLogProb, &t.RefLogProb, &t.Entropy, &t.TokenAdvantage, &t.SampleLogProb, &t.SumPiSquared}
}

// checkTurns refuses an episode in turns unless each list that is given has a number for every token, those of the
// environment too, and the turns cover them.
func (t *weightsTrajectory) checkTurns() error {
	if len(t.Turns) == 0 {
		return nil
	}
	lengths := []int{len(t.IDs)}
	for _, list := range t.lists() {
		lengths = append(lengths, len(*list))
	}
	for _, n := range lengths {
		if n > 0 && n != len(t.LogProb) {
			return fmt.Errorf("a list has %d numbers and logp %d: with turns each token has one, those of the environment too", n, len(t.LogProb))
		}
	}
	return t.Turns.Check(len(t.LogProb))
}

// trajectory returns the response as an objective reads it: without the tokens of an environment, whose turns
// become states of the policy's.
func (t weightsTrajectory) trajectory() objectives.Trajectory {
	for _, list := range t.lists() {
		*list = rundir.Sampled(t.Turns, *list)
	}
	out := objectives.Trajectory{
		Reward: *t.Reward, LogProb: t.LogProb, OldLogProb: t.OldLogProb, RefLogProb: t.RefLogProb,
		Entropy: t.Entropy, TokenAdvantage: t.TokenAdvantage, SampleLogProb: t.SampleLogProb, IDs: rundir.Sampled(t.Turns, t.IDs), Truncated: t.Truncated,
		SumPiSquared: t.SumPiSquared, Role: t.Role, Episode: t.Episode,
	}
	to := 0 // in tokens of the policy
	for _, x := range t.Turns {
		if x.Author == rundir.Policy {
			to += x.To - x.From
			out.Turns = append(out.Turns, objectives.Turn{To: to, State: x.State, Reward: *cmp.Or(x.Reward, new(float64))})
		}
	}
	if t.GreedyReward != nil {
		out.Greedy = &objectives.Trajectory{Reward: *t.GreedyReward}
	}
	if len(t.Components) > 0 {
		out.Components = map[string]objectives.Component{}
	}
	one := 1.0
	for name, c := range t.Components {
		out.Components[name] = objectives.Component{Value: c.Value, Weight: *cmp.Or(c.Weight, &one)}
	}
	return out
}

// A weightsOutput has the objective's results for groups.
type weightsOutput struct {
	Loss   float64                 `json:"loss"`
	Groups [][]objectives.Weighted `json:"groups"`
	// State is the objective's after Observe; nil if it keeps none.
	State json.RawMessage `json:"state,omitempty"`
}

// ReadWeights reads the groups of `onering weights`. Unknown keys, missing ones, turns that do not cover the
// lists of tokens, and anything after the object are errors.
func ReadWeights(r io.Reader) (in weightsInput, err error) {
	const want = `one object {"groups":[[{"reward","logp","old_logp"}]]}`
	text, err := io.ReadAll(r)
	switch {
	case err != nil:
		return in, err
	case len(bytes.TrimSpace(text)) == 0:
		return in, errors.New("no input: want " + want)
	}
	if err := strict.Known(text, &in); err != nil {
		return in, err
	}
	if in.Groups == nil {
		return in, errors.New(`"groups" is missing`)
	}
	for g, group := range in.Groups {
		for k, t := range group {
			if t.Reward == nil || t.LogProb == nil {
				return in, fmt.Errorf(`group %d, response %d: "reward" and "logp" must be given`, g, k)
			}
			if err := t.checkTurns(); err != nil {
				return in, fmt.Errorf("group %d, response %d: %w", g, k, err)
			}
		}
	}
	return in, nil
}

// Weigh restores the state of o, if one is given, and evaluates o on the groups. The output has o's state afterwards,
// if it keeps one, and weights of the policy's tokens only; Widen adds those of an environment.
func (in weightsInput) Weigh(o objectives.Objective) (out weightsOutput, err error) {
	if len(in.State) > 0 && !bytes.Equal(in.State, []byte("null")) {
		u, ok := o.(encoding.TextUnmarshaler)
		if !ok {
			return out, errors.New("a state is given, but the objective keeps none: leave it out")
		}
		if err := u.UnmarshalText(in.State); err != nil {
			return out, err
		}
	}
	groups := make([][]objectives.Trajectory, len(in.Groups))
	for g, group := range in.Groups {
		for _, t := range group {
			groups[g] = append(groups[g], t.trajectory())
		}
	}
	result, err := objectives.Evaluate(o, groups, in.Step, in.Steps)
	if err != nil {
		return out, err
	}
	out.Loss, out.Groups = result.Loss, result.Groups
	if m, ok := o.(encoding.TextMarshaler); ok {
		out.State, err = m.MarshalText()
		if err == nil && len(out.State) > 0 && !json.Valid(out.State) {
			err = errors.New("the text is not JSON")
		}
		if err != nil {
			return out, fmt.Errorf("state of the objective: %w", err)
		}
	}
	return out, nil
}

// Widen gives the tokens of an environment weights of 0.
func (in weightsInput) Widen(out weightsOutput) weightsOutput {
	for g, group := range out.Groups {
		for k := range group {
			group[k].Weights = rundir.Widen(in.Groups[g][k].Turns, group[k].Weights)
		}
	}
	return out
}

// Print writes a table for people, one line per response, and the loss. A dash means that the objective lacks the
// quantity. "top 10 %" is the share of the response's sum |w| that the tenth of its tokens with the largest |w| has.
func (out weightsOutput) Print(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "response\ttokens\tA\tf\teta*\tp\tESS\tr\tlog r\tclipped\ttop 10 %\t")
	for g, group := range out.Groups {
		for k, t := range group {
			shares := t.GradientShares()
			top := &shares[0]
			if *top == 0 { // no token has a gradient
				top = nil
			}
			fmt.Fprintf(tab, "%d.%d\t%d", g, k, len(t.Weights))
			for _, x := range []*float64{&t.Advantage, t.ClipFraction, t.TargetESS, t.P, t.ESS, t.Ratio, t.LogRatio, t.Clipped, top} {
				if x == nil {
					fmt.Fprint(tab, "\t-")
				} else {
					fmt.Fprintf(tab, "\t%.4g", *x)
				}
			}
			fmt.Fprintln(tab, "\t")
		}
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "loss %.6g\n", out.Loss)
	return err
}
