package objectives

// tokenMean says how the tokens of a batch are averaged:
//
//	sequence-mean  1/(N n)   each response counts the same
//	token-mean     1/T       each token of the batch counts the same
//	constant       1/(N L)   as token-mean, with a constant L in place of the mean length
type tokenMean struct {
	// Aggregate is sequence-mean, token-mean or constant.
	Aggregate string `toml:"aggregate" choice:"sequence-mean token-mean constant"`
	// ConstantLength is L. Default 3000, the response limit of the paper's recipe.
	ConstantLength float64 `toml:"constant_length" needs:"aggregate=constant" range:"[1,)"`
}

// TokenScale implements TokenScaler. It is infinite if there are no tokens.
func (o tokenMean) TokenScale(b Batch, i int) float64 {
	return o.scale(len(b.Trajectories[i].LogProb), len(b.Trajectories), b.Tokens())
}

// scale returns how much each token of a response of n tokens counts in a batch of
// count responses and total tokens.
func (o tokenMean) scale(n, count, total int) float64 {
	switch o.Aggregate {
	case "token-mean":
		return 1 / float64(total)
	case "constant":
		return 1 / (float64(count) * o.ConstantLength)
	}
	return 1 / (float64(count) * float64(n))
}

// TokenSum is a loss that is a sum over tokens,
//
//	L = -sum_i c_i sum_t v_it
//
// with c_i of tokenMean and the penalties of Shared. An objective embeds it and passes
// its v or the derivative of v to the methods.
type TokenSum struct {
	Shared
	tokenMean
}

// NewTokenSum returns the default settings with the given advantage and mean.
func NewTokenSum(advantage, aggregate string) TokenSum {
	return TokenSum{Defaults(advantage), tokenMean{aggregate, 3000}}
}

// SumLoss returns L. values sets v to the values of the tokens of response i of b.
func (o *TokenSum) SumLoss(b Batch, values func(i int, v []float64)) float64 {
	loss, total := 0.0, b.Tokens()
	var v []float64
	for i, t := range b.Trajectories {
		c := o.scale(len(t.LogProb), len(b.Trajectories), total)
		v = append(v[:0], t.LogProb...)
		values(i, v)
		for _, x := range v {
			loss -= c * x
		}
		loss += o.Penalty(t, c)
	}
	return loss
}

// SumWeights sets w to the derivative of L. slopes sets g to the derivatives of the
// values of response i, each by its own log-prob.
func (o *TokenSum) SumWeights(b Batch, w [][]float64, slopes func(i int, g []float64)) {
	total := b.Tokens()
	for i, t := range b.Trajectories {
		c := o.scale(len(t.LogProb), len(b.Trajectories), total)
		slopes(i, w[i])
		for j := range w[i] {
			w[i][j] *= -c
		}
		o.AddPenalty(t, c, w[i])
	}
}

// EntropyWeights implements EntropyWeigher.
func (o *TokenSum) EntropyWeights(b Batch, v [][]float64) {
	total := b.Tokens()
	for i := range v {
		o.FillEntropy(o.scale(len(v[i]), len(b.Trajectories), total), v[i])
	}
}

// Reinforce is a TokenSum whose values are v = k LogProb with detached coefficients k,
// importance weights times advantages:
//
//	L = -sum_i c_i sum_t sg[k_it] LogProb_it
//
// coefficients sets k of one response.
func (o *TokenSum) Reinforce(b, at Batch, coefficients func(t *Trajectory, k []float64)) float64 {
	return o.SumLoss(b, func(i int, v []float64) {
		coefficients(&at.Trajectories[i], v)
		for j, logp := range b.Trajectories[i].LogProb {
			v[j] *= logp
		}
	})
}

// ReinforceWeights sets w to the derivative of Reinforce, -c k.
func (o *TokenSum) ReinforceWeights(b Batch, w [][]float64, coefficients func(t *Trajectory, k []float64)) {
	o.SumWeights(b, w, func(i int, g []float64) { coefficients(&b.Trajectories[i], g) })
}

// DiagnoseCut returns the diagnostics of an objective that cuts single tokens: those for
// which cut returns true.
func (b Batch) DiagnoseCut(cut func(t *Trajectory, token int) bool) []Diagnostics {
	all := make([]Diagnostics, len(b.Trajectories))
	for i := range b.Trajectories {
		t, n := &b.Trajectories[i], 0
		for token := range t.LogProb {
			if cut(t, token) {
				n++
			}
		}
		all[i] = Diagnostics{Advantage: t.Advantage, Clipped: Fraction(n, len(t.LogProb))}
	}
	return all
}
