package objectives

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A WeightsInput is what `onering weights` reads: whole groups of responses, so
// that advantages can be computed.
type WeightsInput struct {
	Groups [][]InputTrajectory `json:"groups"`
	Step   int                 `json:"step"`
	Steps  int                 `json:"steps"`
	// State is what a former call gave as state, or null.
	State json.RawMessage `json:"state"`
}

// An InputTrajectory is one response; the arrays have one number per token.
// reward and logp must be given, old_logp too unless the response is empty.
type InputTrajectory struct {
	Reward         *float64  `json:"reward"`
	LogProb        []float64 `json:"logp"`
	OldLogProb     []float64 `json:"old_logp"`
	RefLogProb     []float64 `json:"ref_logp"`
	Entropy        []float64 `json:"entropy"`
	TokenAdvantage []float64 `json:"token_advantage"`
}

// A WeightsOutput is what `onering weights` writes.
type WeightsOutput struct {
	Loss   float64              `json:"loss"`
	Groups [][]OutputTrajectory `json:"groups"`
	// State is that of the objective after Observe; nil if it keeps none.
	State json.RawMessage `json:"state,omitempty"`
}

// An OutputTrajectory is what the objective made of one response.
type OutputTrajectory struct {
	Diagnostics
	Weights []float64 `json:"weights"`
}

// DecodeWeights reads one WeightsInput. Unknown keys, missing ones and anything
// that follows are errors.
func DecodeWeights(r io.Reader) (WeightsInput, error) {
	var in WeightsInput
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		var kind *json.UnmarshalTypeError
		switch {
		case errors.Is(err, io.EOF):
			err = errors.New(`no input: want one object {"groups":[[{"reward","logp","old_logp"}]]}`)
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = errors.New("not JSON: it ends too early")
		case errors.As(err, &kind) && kind.Field == "":
			err = fmt.Errorf(`want one object {"groups":[[{"reward","logp","old_logp"}]]}, not a JSON %s`, kind.Value)
		case errors.As(err, &kind):
			err = fmt.Errorf("%q cannot be a JSON %s, at byte %d", kind.Field, kind.Value, kind.Offset)
		}
		return in, fmt.Errorf("objectives: weights: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return in, errors.New("objectives: weights: want one JSON object, but more follows it")
	}
	if in.Groups == nil {
		return in, errors.New(`objectives: weights: "groups" is missing`)
	}
	for g, group := range in.Groups {
		for k, t := range group {
			if t.Reward == nil || t.LogProb == nil {
				return in, fmt.Errorf(`objectives: weights: group %d, response %d: "reward" and "logp" must be given`, g, k)
			}
		}
	}
	return in, nil
}

// ComputeWeights runs o on a batch made of all groups of in: the advantages of each
// group (of shaped rewards, if o shapes them; Keep is not asked), loss, weights and
// diagnostics. It changes o: the state of in is put into it first and Observe is
// called last, so that o should be fresh.
//
// Results that are not finite are an error, since JSON cannot say them. A ratio
// that overflows is left out; its logarithm is there.
func ComputeWeights(o Objective, in WeightsInput) (out WeightsOutput, err error) {
	if v, ok := o.(Validator); ok {
		if err := v.Validate(); err != nil {
			return out, fmt.Errorf("objectives: %w", err)
		}
	}
	if err := restore(o, in.State); err != nil {
		return out, fmt.Errorf("objectives: weights: %w", err)
	}
	b := Batch{Step: in.Step, Steps: in.Steps}
	for g, inputs := range in.Groups {
		group := make([]Trajectory, len(inputs))
		for k, t := range inputs {
			group[k] = Trajectory{
				LogProb: t.LogProb, OldLogProb: t.OldLogProb, RefLogProb: t.RefLogProb,
				Entropy: t.Entropy, TokenAdvantage: t.TokenAdvantage,
			}
			if t.Reward == nil {
				return out, fmt.Errorf(`objectives: weights: group %d, response %d: "reward" is missing`, g, k)
			}
			group[k].Reward = *t.Reward
		}
		SetAdvantages(o, group)
		for k, t := range group {
			if err := t.check(NeedsReference(o), NeedsEntropy(o)); err != nil {
				return out, fmt.Errorf("objectives: weights: group %d, response %d: %w", g, k, err)
			}
		}
		b.Trajectories = append(b.Trajectories, group...)
	}

	out.Loss = o.Loss(b, b) + 0
	if !finite(out.Loss) {
		return out, fmt.Errorf("objectives: weights: the loss is %v: too large a ratio for this objective", out.Loss)
	}
	w := make([][]float64, len(b.Trajectories))
	for i, t := range b.Trajectories {
		w[i] = make([]float64, len(t.LogProb))
	}
	o.Weights(b, w)
	var told []Diagnostics
	if d, ok := o.(Diagnoser); ok {
		told = d.Diagnose(b)
	}
	i := 0
	out.Groups = make([][]OutputTrajectory, len(in.Groups))
	for g, group := range in.Groups {
		out.Groups[g] = make([]OutputTrajectory, len(group))
		for k := range group {
			row := OutputTrajectory{Diagnostics: Diagnostics{Advantage: b.Trajectories[i].Advantage}, Weights: w[i]}
			if told != nil {
				row.Diagnostics = told[i]
			}
			for j, x := range w[i] {
				if !finite(x) {
					return out, fmt.Errorf("objectives: weights: group %d, response %d: the weight of token %d is %v: too large a ratio for this objective", g, k, j, x)
				}
				w[i][j] = x + 0 // JSON would tell -0 from 0
			}
			out.Groups[g][k] = row
			i++
		}
	}
	if observer, ok := o.(Observer); ok {
		observer.Observe(b)
	}
	out.State, err = save(o)
	return out, err
}

// restore puts a state as save gave it into o. null and nothing are no state.
func restore(o Objective, state json.RawMessage) error {
	if len(state) == 0 || bytes.Equal(state, []byte("null")) {
		return nil
	}
	u, ok := o.(encoding.TextUnmarshaler)
	if !ok {
		return errors.New("a state is given, but the objective keeps none: leave it out")
	}
	return u.UnmarshalText(state)
}

// save returns the state of o as JSON, nil if it keeps none.
func save(o Objective) (json.RawMessage, error) {
	m, ok := o.(encoding.TextMarshaler)
	if !ok {
		return nil, nil
	}
	text, err := m.MarshalText()
	if err == nil && !json.Valid(text) {
		err = errors.New("the text is not JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("objectives: state of the objective: %w", err)
	}
	return text, nil
}
