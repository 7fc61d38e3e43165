package cmd

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/objectives"
	"onering/train/rundir"
)

func newWeights() *cobra.Command {
	var config configFlags
	var explain bool
	c := &cobra.Command{
		Use:   "weights [--objective NAME] [FILE]",
		Short: "Compute the loss and the token weights of an objective",
		Args:  cobra.MaximumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return runWeights(c, args, &config, explain) },
	}
	config.registerObjective(c)
	c.Flags().BoolVar(&explain, "explain", false, "print a table for people instead of JSON")
	return c
}

// runWeights reads a batch and prints what the objective makes of it.
func runWeights(c *cobra.Command, args []string, config *configFlags, explain bool) error {
	r, err := config.resolve(c, nil)
	if err != nil {
		return err
	}
	if err := r.Locate(r.Config.Objective.Validate()); err != nil {
		return usageError{err}
	}
	return withInput(c, args, func(in io.Reader, name string) error {
		var result objectives.Result
		var state json.RawMessage
		batch, err := decodeWeights(in)
		if err == nil {
			result, state, err = computeWeights(r.Objective.Settings, batch)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if explain {
			return printWeights(c.OutOrStdout(), result)
		}
		for g, group := range result.Groups {
			for k := range group {
				group[k].Weights = rundir.Spread(batch.Groups[g][k].Turns, group[k].Weights)
			}
		}
		return cli.WriteLine(c.OutOrStdout(), weightsOutput{result.Loss, result.Groups, state})
	})
}

// A weightsInput is what `onering weights` reads.
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
	IDs            []int32   `json:"ids"`
	Truncated      bool      `json:"truncated"`
	// Turns are those of an episode: the objective sees the numbers of the policy's tokens.
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
	return []*[]float64{&t.LogProb, &t.OldLogProb, &t.RefLogProb, &t.Entropy, &t.TokenAdvantage, &t.SampleLogProb}
}

// checkTurns refuses turns that are not those of the tokens that have numbers.
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

// trajectory returns the response as an objective reads it.
func (t weightsTrajectory) trajectory() objectives.Trajectory {
	for _, list := range t.lists() {
		*list = rundir.Sampled(t.Turns, *list)
	}
	out := objectives.Trajectory{
		Reward: *t.Reward, LogProb: t.LogProb, OldLogProb: t.OldLogProb, RefLogProb: t.RefLogProb,
		Entropy: t.Entropy, TokenAdvantage: t.TokenAdvantage, SampleLogProb: t.SampleLogProb, IDs: rundir.Sampled(t.Turns, t.IDs), Truncated: t.Truncated,
	}
	if t.GreedyReward != nil {
		out.Greedy = &objectives.Trajectory{Reward: *t.GreedyReward}
	}
	for name, c := range t.Components {
		if out.Components == nil {
			out.Components = map[string]objectives.Component{}
		}
		weight := 1.0
		if c.Weight != nil {
			weight = *c.Weight
		}
		out.Components[name] = objectives.Component{Value: c.Value, Weight: weight}
	}
	return out
}

// A weightsOutput is what `onering weights` writes.
type weightsOutput struct {
	Loss   float64                 `json:"loss"`
	Groups [][]objectives.Weighted `json:"groups"`
	// State is the objective's after Observe; nil if it keeps none.
	State json.RawMessage `json:"state,omitempty"`
}

// decodeWeights reads one weightsInput. Unknown keys, missing ones and anything
// after the object are errors.
func decodeWeights(r io.Reader) (weightsInput, error) {
	const want = `one object {"groups":[[{"reward","logp","old_logp"}]]}`
	var in weightsInput
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		var kind *json.UnmarshalTypeError
		switch {
		case errors.Is(err, io.EOF):
			err = errors.New("no input: want " + want)
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("not JSON: it ends too early")
		case errors.As(err, &kind) && kind.Field == "":
			err = fmt.Errorf("want %s, not a JSON %s", want, kind.Value)
		case errors.As(err, &kind):
			err = fmt.Errorf("%q cannot be a JSON %s, at byte %d", kind.Field, kind.Value, kind.Offset)
		}
		return in, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return in, errors.New("want one JSON object, but more follows it")
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

// trajectories returns the groups as an objective reads them.
func (in weightsInput) trajectories() [][]objectives.Trajectory {
	groups := make([][]objectives.Trajectory, len(in.Groups))
	for g, inputs := range in.Groups {
		groups[g] = make([]objectives.Trajectory, len(inputs))
		for k, t := range inputs {
			groups[g][k] = t.trajectory()
		}
	}
	return groups
}

// computeWeights restores the state of o, if one is given, and evaluates o on
// the groups of in. It also returns the state that o has afterwards.
func computeWeights(o objectives.Objective, in weightsInput) (objectives.Result, json.RawMessage, error) {
	if len(in.State) > 0 && !bytes.Equal(in.State, []byte("null")) {
		u, ok := o.(encoding.TextUnmarshaler)
		if !ok {
			return objectives.Result{}, nil, errors.New("a state is given, but the objective keeps none: leave it out")
		}
		if err := u.UnmarshalText(in.State); err != nil {
			return objectives.Result{}, nil, err
		}
	}
	result, err := objectives.Evaluate(o, in.trajectories(), in.Step, in.Steps)
	if err != nil {
		return objectives.Result{}, nil, err
	}
	m, ok := o.(encoding.TextMarshaler)
	if !ok {
		return result, nil, nil
	}
	state, err := m.MarshalText()
	if err == nil && !json.Valid(state) {
		err = errors.New("the text is not JSON")
	}
	if err != nil {
		return result, nil, fmt.Errorf("state of the objective: %w", err)
	}
	return result, state, nil
}

// printWeights writes the table of `onering weights --explain`, one line per
// response. A dash stands where the objective has no such quantity.
func printWeights(w io.Writer, result objectives.Result) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "response\ttokens\tA\tf\teta*\tp\tESS\tr\tlog r\tclipped\ttop 10 %\t")
	for g, group := range result.Groups {
		for k, t := range group {
			shares := objectives.GradientShares(slices.Clone(t.Weights))
			top := &shares[0]
			if *top == 0 {
				top = nil
			}
			fmt.Fprintf(tab, "%d.%d\t%d\t%s", g, k, len(t.Weights), formatOptional(&t.Advantage))
			for _, x := range []*float64{t.ClipFraction, t.TargetESS, t.P, t.ESS, t.Ratio, t.LogRatio, t.Clipped, top} {
				fmt.Fprintf(tab, "\t%s", formatOptional(x))
			}
			fmt.Fprintln(tab, "\t")
		}
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "loss %.6g\n", result.Loss)
	return err
}

// formatOptional formats a number, or "-" for nil.
func formatOptional(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *x)
}
