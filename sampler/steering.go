package sampler

import (
	"cmp"
	"math"
	"slices"
)

// A Steering changes how likely tokens are drawn, before the filters. It concerns the choice
// and nothing else: the log-probs of a response stay those of the model. The zero value
// changes nothing.
type Steering struct {
	Bias      map[int32]float64 `json:"logit_bias"` // added to the logits
	Presence  float64           `toml:"presence_penalty" json:"presence_penalty" range:"[-2,2]" help:"taken from the logits of tokens that the response has"`
	Frequency float64           `toml:"frequency_penalty" json:"frequency_penalty" range:"[-2,2]" help:"taken from a token's logit for each time that the response has it"`
	// Repetition is applied as in a beam search of transformers, since logits stay in the
	// graph; 0 is 1, no penalty.
	Repetition float64 `toml:"repetition_penalty" json:"repetition_penalty" range:"[0,100]" help:"multiplies the log-probs of tokens that the prompt or the response has"`
	MinTokens  int     `toml:"min_tokens" json:"min_tokens" range:"[0,16777216]" help:"how many tokens a response has before an end-of-sequence token or a stop string may end it"`
}

// On reports whether s changes anything.
func (s *Steering) On() bool {
	return len(s.Bias) > 0 || s.Presence != 0 || s.Frequency != 0 || s.Repetition != 0 && s.Repetition != 1 || s.MinTokens > 0
}

// steer begins to count the tokens of a sequence, if a Steering has to know them.
func (q *sequence) steer() {
	q.score, q.had = nil, nil
	if q.call.Steering.On() {
		q.score, q.had = q.steered, map[int32]int{}
		for _, id := range q.call.Prompt {
			q.had[id] = 0
		}
	}
}

// steered returns the log-prob, up to a constant, with which the next token is chosen.
func (q *sequence) steered(c Candidate) float32 {
	s := &q.call.Steering
	if len(q.ids) < s.MinTokens && slices.Contains(q.call.EOS, c.ID) {
		return float32(math.Inf(-1))
	}
	n, read := q.had[c.ID]
	x := float64(c.LogProb)
	if read {
		x *= cmp.Or(s.Repetition, 1)
	}
	return float32(x + (s.Bias[c.ID]-s.Presence*float64(min(n, 1))-s.Frequency*float64(n))/q.way.Temperature)
}

// Draw sets Out to a draw as Sampling.Draw makes it, by the candidates' scores if the row
// has some. These need the whole vocabulary, whose distribution has this entropy.
func (r *Row) Draw(likeliest []Candidate, all bool, entropy float32) (ok bool) {
	if r.Score == nil {
		drawn, kept, ok := r.Way.Draw(r.Uniform, likeliest, all)
		r.Out = Drawn{ID: drawn.ID, LogProb: drawn.LogProb, Entropy: entropy}
		if whole := all && len(kept) == len(likeliest); ok && r.Kept && !whole {
			r.Out.restrict(kept)
		}
		return ok
	}
	if !all {
		return false
	}
	way, list, total := r.Way, slices.Clone(likeliest), 0.0
	if way.Greedy {
		way = Sampling{TopK: 1, TopP: 1}
	}
	for i := range list {
		list[i].LogProb = r.Score(list[i])
		total += math.Exp(float64(list[i].LogProb))
	}
	for i := range list {
		list[i].LogProb -= float32(math.Log(total))
	}
	slices.SortFunc(list, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.LogProb, a.LogProb), cmp.Compare(a.ID, b.ID))
	})
	drawn, _, ok := way.Draw(r.Uniform, list, true)
	drawn = likeliest[slices.IndexFunc(likeliest, func(c Candidate) bool { return c.ID == drawn.ID })]
	r.Out = Drawn{ID: drawn.ID, LogProb: drawn.LogProb, Entropy: entropy}
	return ok
}
