package objectives

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// foreign are masks for rollouts of a policy that was not quite the old one, such as another program's. With
// y = OldLogProb - SampleLogProb of a token, or its sum over the response, they scale the gradient as masks do.
type foreign struct {
	// ImportanceCap is the largest weight, min(exp(OldLogProb - SampleLogProb), cap). 0 (default) is none.
	ImportanceCap float64 `toml:"importance_cap" range:"[0,)"`
	// Importance multiplies by e^y, put into [ImportanceFloor, importance_cap] (truncate), or 0 outside (mask; D58). A
	// cap alone is token-truncate; a cap of 0 is none.
	Importance      string  `toml:"importance" choice:"none token-truncate token-mask sequence-truncate sequence-mask"`
	ImportanceFloor float64 `toml:"importance_floor" needs:"importance!=none" range:"[0,)"`
	// Reject drops tokens, or responses by the sum, mean or maximum over their tokens, where k2 = y^2/2 or k3 = e^y - 1 - y
	// is above RejectHigh, or k1 = y outside [log RejectLow, log RejectHigh] (D59).
	Reject       string  `toml:"reject" choice:"none k1 k2 k3"`
	RejectReduce string  `toml:"reject_reduce" needs:"reject!=none" choice:"token sum mean max"`
	RejectLow    float64 `toml:"reject_low" needs:"reject=k1" range:"[0,)"`
	RejectHigh   float64 `toml:"reject_high" needs:"reject!=none" range:"[0,)"`
}

// scale multiplies the factors of t's tokens by their importance weights, and by 0 where the token is rejected.
func (m foreign) scale(t *Trajectory, factors []float64) {
	if m.Importance == "none" && m.ImportanceCap != 0 { // a cap alone means this
		m.Importance = "token-truncate"
	}
	if m.Importance == "none" && m.Reject == "none" {
		return
	}
	y, f := make([]float64, len(factors)), make([]float64, len(factors))
	for j, sampled := range t.SampledLogProb() {
		y[j] = t.OldLogProb[j] - sampled
	}
	m.weigh(y, f)
	m.reject(y, f)
	for j := range factors {
		factors[j] *= f[j]
	}
}

// neverRejects is the default of RejectHigh.
const neverRejects = 1e300

// check refuses bounds that leave nothing, or all.
func (m foreign) check() error {
	switch {
	case m.Reject == "k1" && m.RejectLow > m.RejectHigh:
		return &SettingError{Key: "reject_low", Value: m.RejectLow, Remedy: "must be at most reject_high"}
	case m.Reject != "none" && m.RejectLow == 0 && m.RejectHigh == neverRejects:
		return &SettingError{Key: "reject", Value: m.Reject, Remedy: "must be none, or go with reject_high, or reject_low for k1: nothing is rejected"}
	case m.Importance != "none" && m.ImportanceCap != 0 && m.ImportanceFloor > m.ImportanceCap:
		return &SettingError{Key: "importance_floor", Value: m.ImportanceFloor, Remedy: "must be at most importance_cap"}
	}
	return nil
}

// weigh sets f to the importance weights of tokens with the log-ratios y: e^y put into [ImportanceFloor, ImportanceCap]
// (truncate), or 0 outside of it (mask); 1 if Importance is none.
func (m foreign) weigh(y, f []float64) {
	scope, how, _ := strings.Cut(m.Importance, "-") // such as "sequence-mask"; "none" has no how
	sum := reduce("sum", y)
	for j, x := range y {
		if scope == "sequence" {
			x = sum
		}
		f[j] = math.Exp(x)
		switch bounded := max(m.ImportanceFloor, min(f[j], cmp.Or(m.ImportanceCap, math.Inf(1)))); {
		case how == "":
			f[j] = 1
		case how == "truncate":
			f[j] = bounded
		case bounded != f[j]: // mask
			f[j] = 0
		}
	}
}

// reject sets the factors f to 0 of tokens whose estimate, by the log-ratios y, is outside the bounds: each token's own, or
// that of the response for all.
func (m foreign) reject(y, f []float64) {
	least, most := math.Inf(-1), m.RejectHigh // k1 alone has a lower bound
	k := slices.Clone(y)                      // the estimates
	for j, x := range y {
		switch m.Reject {
		case "none":
			return
		case "k1":
			least, most = math.Log(m.RejectLow), math.Log(m.RejectHigh)
		case "k2":
			k[j] = x * x / 2
		case "k3":
			k[j] = math.Expm1(x) - x
		}
	}
	ofResponse := reduce(m.RejectReduce, k) // their mean, max or sum; not read if each token has its own
	for j, x := range k {
		if m.RejectReduce != "token" {
			x = ofResponse
		}
		if x < least || x > most {
			f[j] = 0
		}
	}
}

// reduce returns the mean or the max of x, or the sum for any other word.
func reduce(how string, x []float64) float64 {
	switch {
	case how == "max" && len(x) > 0:
		return slices.Max(x)
	case how == "mean":
		return mean(x)
	}
	return total(x)
}
