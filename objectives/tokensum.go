package objectives

// tokenMean says how the tokens of a batch are averaged:
//
//	sequence-mean  1/(N n)   each response counts the same
//	token-mean     1/T       each token of the batch counts the same
//	constant       1/(N L)   as token-mean, with a constant L in place of the mean length
//	group-mean     1/(G U)   each of the G groups counts the same, and each of its U tokens
//	token-sum      1         nothing is averaged
type tokenMean struct {
	// Aggregate is one of these words.
	Aggregate string `toml:"aggregate" needs:"list=none kl_beta!=0 entropy_bonus!=0 entropy_target!=0" choice:"sequence-mean token-mean constant group-mean token-sum"`
	// ConstantLength is L. Default 3000, the response limit of the paper's recipe.
	ConstantLength float64 `toml:"constant_length" needs:"aggregate=constant" range:"[1,)"`
}

// TokenScale implements TokenScaler. It is infinite if there are no tokens.
func (o tokenMean) TokenScale(b Batch, i int) float64 {
	return o.TokenScales(b)[i]
}

// TokenScales returns TokenScale of each response.
func (o tokenMean) TokenScales(b Batch) []float64 {
	count, total := float64(len(b.Trajectories)), float64(b.Tokens())
	groups := map[int]float64{}
	for i := 0; i < len(b.Trajectories) && o.Aggregate == "group-mean"; i++ {
		groups[b.Trajectories[i].Group] += float64(len(b.Trajectories[i].LogProb))
	}
	scales := make([]float64, len(b.Trajectories))
	for i, t := range b.Trajectories {
		switch o.Aggregate {
		case "token-mean":
			scales[i] = 1 / total
		case "constant":
			scales[i] = 1 / (count * o.ConstantLength)
		case "group-mean":
			scales[i] = 1 / (float64(len(groups)) * groups[t.Group])
		case "token-sum":
			scales[i] = 1
		default:
			scales[i] = 1 / (count * float64(len(t.LogProb)))
		}
	}
	return scales
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
	loss, scales := 0.0, o.TokenScales(b)
	var v []float64
	for i, t := range b.Trajectories {
		c := scales[i]
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
	scales := o.TokenScales(b)
	for i, t := range b.Trajectories {
		c := scales[i]
		slopes(i, w[i])
		for j := range w[i] {
			w[i][j] *= -c
		}
		o.AddPenalty(t, c, w[i])
	}
}

// EntropyWeights implements EntropyWeigher.
func (o *TokenSum) EntropyWeights(b Batch, v [][]float64) {
	for i, c := range o.TokenScales(b) {
		o.FillEntropy(c, v[i])
	}
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
