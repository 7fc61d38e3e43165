package pmpo

import (
	"bytes"
	"errors"

	"onering/internal/strict"
	"onering/objectives"
	"onering/objectives/means"
)

// moments are the mean and the variance of a batch's lengths or entropies, or
// their moving averages.
type moments struct {
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
}

// parseMoments reads the text that MarshalText wrote; null gives nil.
func parseMoments(text []byte) (*moments, error) {
	if bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		return nil, nil
	}
	var state struct {
		Mean     *float64 `json:"mean"`
		Variance *float64 `json:"variance"`
	}
	if err := strict.Known(text, &state); err != nil {
		return nil, err
	}
	if state.Mean == nil || state.Variance == nil {
		return nil, errors.New(`want {"mean","variance"}`)
	}
	if *state.Variance < 0 {
		return nil, errors.New("the variance is negative")
	}
	return &moments{*state.Mean, *state.Variance}, nil
}

// statistic returns the number of a response that the length or the entropy rule measures.
func (o *PMPO) statistic(t objectives.Trajectory) float64 {
	if o.PRule == "length" {
		return float64(len(t.LogProb))
	}
	return means.Mean(t.Entropy, nil)
}

// measure returns the mean and the population variance of the statistic over the
// responses that are not empty (D16). It reports false if there are none, or if
// the rule keeps no history.
func (o *PMPO) measure(b objectives.Batch) (m moments, ok bool) {
	if o.PRule != "length" && o.PRule != "entropy" {
		return m, false
	}
	all := make([]float64, 0, len(b.Trajectories))
	for _, t := range b.Trajectories {
		if len(t.LogProb) > 0 {
			all = append(all, o.statistic(t))
		}
	}
	if len(all) == 0 {
		return m, false
	}
	return moments{means.Mean(all, nil), means.Variance(all)}, true
}
