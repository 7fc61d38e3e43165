package sft

import "math"

// A preferenceLoss is a loss of pairs of responses, of which one is better, and what it depends on. D is what the
// policy's log-prob of the chosen response, less the reference's, exceeds that of the rejected one.
type preferenceLoss struct {
	Loss        string  `toml:"loss" flag:"loss" choice:"dpo ipo simpo orpo kto" help:"what is minimized" note:"dpo (arXiv 2305.18290): -log sigmoid(beta D); ipo (2310.12036): (D a token - 1/(2 beta))^2; simpo (2405.14734): -log sigmoid(beta (log-probs a token, chosen less rejected) - margin), without a reference; orpo (2403.07691): -log p a token of the chosen response - beta log sigmoid(log odds), without a reference; kto (2402.01306): each response against the mean of mismatched ones"`
	Beta        float64 `toml:"beta" flag:"beta" range:"(0,)" help:"how strongly the policy is held to the reference; in orpo the weight of the odds"`
	Smoothing   float64 `toml:"label_smoothing" flag:"label-smoothing" needs:"loss=dpo loss=simpo" range:"[0,0.5]" help:"share of the pairs that are taken to be the wrong way round (conservative DPO)"`
	Margin      float64 `toml:"margin" flag:"margin" needs:"loss=simpo" range:"[0,)" help:"by how much the chosen response has to be ahead; gamma in SimPO's paper"`
	Desirable   float64 `toml:"desirable" needs:"loss=kto" range:"[0,)" help:"weight of chosen responses"`
	Undesirable float64 `toml:"undesirable" needs:"loss=kto" range:"[0,)" help:"weight of rejected responses"`
}

// defaultLoss is DPO's, with the settings of the others where they are chosen.
func defaultLoss() preferenceLoss {
	return preferenceLoss{Loss: "dpo", Beta: 0.1, Margin: 0.5, Desirable: 1, Undesirable: 1}
}

// usesReference says whether the loss compares the policy with what it was at the beginning.
func (s preferenceLoss) usesReference() bool { return s.Loss != "simpo" && s.Loss != "orpo" }

// usesMismatched says whether the loss needs responses to other prompts.
func (s preferenceLoss) usesMismatched() bool { return s.Loss == "kto" }

// A response is the log-prob of a whole response under the policy and under the reference,
// sums over its tokens in nats, and the number of tokens.
type response struct {
	logp, reference float64
	tokens          int
}

// ahead is how far the policy is ahead of the reference.
func (r response) ahead() float64 { return r.logp - r.reference }

// A pair is two responses to one prompt, or of kto one alone: the chosen or the rejected one, as only says.
type pair struct {
	chosen, rejected response
	only             string
}

// has returns 1 if the pair has the response, chosen or rejected, else 0.
func (p pair) has(which string) float64 {
	if p.only == "" || p.only == which {
		return 1
	}
	return 0
}

// meanOf returns the mean loss of pairs, and by pair its derivatives with respect to the log-probs of the chosen and of
// the rejected response. A response's ahead is its log-prob under the policy less that under the reference. Its mean over
// mismatched, responses to other prompts, or 0 if that is less, estimates the divergence of the policy: kto's
// baseline. preferenceLoss.Loss has the formulas, and the papers.
func (s preferenceLoss) meanOf(pairs []pair, mismatched []response) (loss float64, chosen, rejected []float64) {
	baseline, chosenTokens := 0.0, 0 // of kto; of orpo
	for _, r := range mismatched {
		baseline += r.ahead() / float64(len(mismatched))
	}
	baseline = max(baseline, 0)
	for _, p := range pairs {
		chosenTokens += p.chosen.tokens
	}
	for _, p := range pairs {
		c, r := p.chosen, p.rejected
		n, m := float64(max(c.tokens, 1)), float64(max(r.tokens, 1))
		var l, dc, dr float64 // the pair's loss, and its derivatives by the log-probs of c and of r
		switch s.Loss {
		case "dpo":
			var d float64
			l, d = s.smoothed(s.Beta * (c.ahead() - r.ahead()))
			dc, dr = s.Beta*d, -s.Beta*d
		case "ipo":
			x := c.ahead()/n - r.ahead()/m - 1/(2*s.Beta)
			l, dc, dr = x*x, 2*x/n, -2*x/m
		case "simpo":
			var d float64
			l, d = s.smoothed(s.Beta*(c.logp/n-r.logp/m) - s.Margin)
			dc, dr = s.Beta*d/n, -s.Beta*d/m
		case "orpo":
			odds := logOdds(c.logp/n) - logOdds(r.logp/m)
			share := float64(len(pairs)) / float64(max(chosenTokens, 1)) // the mean over tokens, times the pairs, by whose number all is divided below
			l = -share*c.logp - s.Beta*logSigmoid(odds)
			d := -s.Beta * sigmoid(-odds)
			dc, dr = d*oddsSlope(c.logp/n)/n-share, -d*oddsSlope(r.logp/m)/m
		case "kto":
			good, bad := sigmoid(s.Beta*(c.ahead()-baseline)), sigmoid(s.Beta*(baseline-r.ahead()))
			desirable, undesirable := s.Desirable*p.has("chosen"), s.Undesirable*p.has("rejected")
			responses := p.has("chosen") + p.has("rejected") // 1 or 2, each of which counts the same
			l = (desirable*(1-good) + undesirable*(1-bad)) / responses
			dc, dr = -desirable*s.Beta*good*(1-good)/responses, undesirable*s.Beta*bad*(1-bad)/responses
		}
		count := float64(len(pairs))
		loss += l / count
		chosen, rejected = append(chosen, dc/count), append(rejected, dr/count)
	}
	return loss, chosen, rejected
}

// smoothed is -(1-e) log sigmoid(x) - e log sigmoid(-x) and its derivative, with e the label smoothing.
func (s preferenceLoss) smoothed(x float64) (loss, slope float64) {
	e := s.Smoothing
	return -(1-e)*logSigmoid(x) - e*logSigmoid(-x), e*sigmoid(x) - (1-e)*sigmoid(-x)
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// logSigmoid does not overflow, whatever x is.
func logSigmoid(x float64) float64 { return min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) }

// certain is the largest log-prob whose odds are taken: at 0 they are infinite.
const certain = -1e-9

// logOdds is log(p/(1-p)) of p = e^logp.
func logOdds(logp float64) float64 {
	logp = min(logp, certain)
	return logp - math.Log(-math.Expm1(logp))
}

// oddsSlope is the derivative of logOdds, 1/(1-p).
func oddsSlope(logp float64) float64 { return -1 / math.Expm1(min(logp, certain)) }
