package sampler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A Steering changes how likely tokens are drawn, before the filters. It concerns the choice and nothing else:
// the log-probs of a response stay those of the model. The zero value changes nothing.
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

// countPrompt begins to count the tokens of a sequence, if a Steering has to know them.
func (q *sequence) countPrompt() {
	q.tokenCounts = nil
	if q.call.Steering.On() {
		q.tokenCounts = map[int32]int{}
		for _, id := range q.call.Prompt {
			q.tokenCounts[id] = 0
		}
	}
}

// readConstraint learns which tokens may follow.
func (q *sequence) readConstraint() (err error) {
	if q.allowed, q.mayEnd, err = q.constraint.Next(); err != nil {
		return fmt.Errorf("sampler: request %d (id %d), sample %d, token %d: %w", q.call.index, q.call.ID, q.sample, len(q.ids), err)
	}
	return nil
}

// isOver reports whether nothing may follow, and no EOS id can say so.
func (q *sequence) isOver() bool {
	return q.mayEnd && q.allowed != nil && len(q.call.EOS) == 0 && !slices.ContainsFunc(q.allowed, func(w uint64) bool { return w != 0 })
}

// forbids reports whether the constraint of a sequence forbids a token.
func (q *sequence) forbids(id int32) bool {
	if ends := slices.Contains(q.call.EOS, id); ends && q.mayEnd || q.allowed == nil {
		return ends && !q.mayEnd
	}
	return int(id/64) >= len(q.allowed) || q.allowed[id/64]>>(id%64)&1 == 0
}

// scoreOrNil returns by what the next token is chosen, nil for its log-prob.
func (q *sequence) scoreOrNil() func(Candidate) float32 {
	if q.tokenCounts == nil && (q.constraint == nil || q.allowed == nil && q.mayEnd) {
		return nil
	}
	return q.steered
}

// steered returns the log-prob, up to a constant, with which the next token is chosen.
func (q *sequence) steered(c Candidate) float32 {
	s := &q.call.Steering
	if q.constraint != nil && q.forbids(c.ID) || len(q.ids) < s.MinTokens && slices.Contains(q.call.EOS, c.ID) {
		return float32(math.Inf(-1))
	}
	if q.tokenCounts == nil {
		return c.LogProb
	}
	n, read := q.tokenCounts[c.ID]
	x := float64(c.LogProb)
	if read {
		x *= cmp.Or(s.Repetition, 1)
	}
	return float32(x + (s.Bias[c.ID]-s.Presence*float64(min(n, 1))-s.Frequency*float64(n))/q.sampling.Temperature)
}

// NeedsAllScores reports whether the row's token depends on the scores of the whole vocabulary. The
// likeliest of tokens that are not forbidden does not.
func (r *Row) NeedsAllScores() bool { return r.Score != nil && !(r.Masked && r.Way.Greedy) }

// Draw sets Out to the row's next token, drawn as Sampling.Draw does, or by Score where the row has one. likeliest
// descends by log-prob; all says that it is the whole vocabulary. False asks for a longer list. Score decides only which
// token is drawn: Out has the log-prob before scoring, and entropy, that of the whole vocabulary. Only without Score, Kept
// makes both those of what the filters keep.
func (r *Row) Draw(likeliest []Candidate, all bool, entropy float32) (ok bool) {
	if r.Score == nil {
		drawn, kept, ok := r.Way.Draw(r.Uniform, likeliest, all)
		r.Out = Drawn{ID: drawn.ID, LogProb: drawn.LogProb, Entropy: entropy}
		if whole := all && len(kept) == len(likeliest); ok && r.Kept && !whole {
			r.Out.restrict(kept)
		}
		return ok
	}
	if !r.NeedsAllScores() { // greedy, and Score only forbids: the first that is allowed is the likeliest
		allowed := slices.IndexFunc(likeliest, func(c Candidate) bool { return !math.IsInf(float64(r.Score(c)), -1) })
		if allowed < 0 && !all {
			return false
		}
		first := likeliest[max(allowed, 0)] // if none is allowed, a forbidden one, which the caller refuses
		r.Out = Drawn{ID: first.ID, LogProb: first.LogProb, Entropy: entropy}
		return true
	}
	if !all {
		return false
	}
	way, total := r.Way, 0.0
	if way.Greedy { // the likeliest by Score
		way = Sampling{TopK: 1, TopP: 1}
	}
	scored := make([]Candidate, 0, len(likeliest))
	for _, c := range likeliest {
		if c.LogProb = r.Score(c); !math.IsInf(float64(c.LogProb), -1) {
			scored = append(scored, c)
			total += math.Exp(float64(c.LogProb))
		}
	}
	if len(scored) == 0 { // nothing may be drawn, which the caller refuses
		scored, total = append(scored, likeliest[0]), 1
	}
	if total == 0 { // all are so unlikely that their exponentials are 0
		best := slices.MaxFunc(scored, func(a, b Candidate) int { return cmp.Compare(a.LogProb, b.LogProb) }).LogProb
		for i := range scored {
			scored[i].LogProb -= best
			total += math.Exp(float64(scored[i].LogProb))
		}
	}
	for i := range scored { // the filters expect probabilities that add up to 1
		scored[i].LogProb -= float32(math.Log(total))
	}
	slices.SortFunc(scored, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.LogProb, a.LogProb), cmp.Compare(a.ID, b.ID))
	})
	drawn, _, ok := way.Draw(r.Uniform, scored, true)
	// Out has the log-prob before scoring.
	drawn = likeliest[slices.IndexFunc(likeliest, func(c Candidate) bool { return c.ID == drawn.ID })]
	r.Out = Drawn{ID: drawn.ID, LogProb: drawn.LogProb, Entropy: entropy}
	return ok
}
