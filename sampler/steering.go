package sampler

import (
	"cmp"
	"math"
	"slices"
)

// A Steering changes how likely tokens are drawn, before the filters. It restricts and
// shifts the choice and nothing else: the log-probs of a response stay those of the model.
// The zero value changes nothing.
type Steering struct {
	// Bias is added to the logits of tokens.
	Bias map[int32]float64 `json:"logit_bias"`
	// The penalties are those of OpenAI's API: taken from the logits of tokens that the
	// response has, once, and for each time that it has them.
	Presence  float64 `toml:"presence_penalty" json:"presence_penalty" range:"[-2,2]" help:"taken from the logit of a token that the response has"`
	Frequency float64 `toml:"frequency_penalty" json:"frequency_penalty" range:"[-2,2]" help:"taken from the logit of a token for each time that the response has it"`
	// Repetition multiplies the log-probs of tokens that the prompt or the response has, as
	// in a beam search of transformers: logits never leave the graph. 0 is 1, no penalty.
	Repetition float64 `toml:"repetition_penalty" json:"repetition_penalty" range:"[0,100]" help:"multiplies the log-prob of a token that the prompt or the response has"`
	// MinTokens is how many tokens a response has before an EOS id or a stop string may end it.
	MinTokens int `toml:"min_tokens" json:"min_tokens" range:"[0,16777216]" help:"fewest tokens of a response"`
}

// On reports whether s changes anything.
func (s *Steering) On() bool {
	return len(s.Bias) > 0 || s.Presence != 0 || s.Frequency != 0 || s.repeats() || s.MinTokens > 0
}

func (s *Steering) repeats() bool { return s.Repetition != 0 && s.Repetition != 1 }

// steered returns the function that scores candidates for the next token of a sequence: a
// log-prob, up to a constant.
func (q *sequence) steered() func(Candidate) float32 {
	s, read := &q.call.Steering, map[int32]bool{}
	if s.repeats() {
		for _, id := range q.call.Prompt {
			read[id] = true
		}
	}
	return func(c Candidate) float32 {
		if len(q.ids) < s.MinTokens && slices.Contains(q.call.EOS, c.ID) {
			return float32(math.Inf(-1))
		}
		n, x := q.had[c.ID], float64(c.LogProb)
		shift := s.Bias[c.ID] - s.Frequency*float64(n)
		if n > 0 {
			shift -= s.Presence
		}
		if s.repeats() && (n > 0 || read[c.ID]) {
			x *= s.Repetition
		}
		return float32(x + shift/q.way.Temperature)
	}
}

// Draw draws the token of a row as Sampling.Draw does, by the scores of the candidates if
// the row has some. These need the whole vocabulary.
func (r *Row) Draw(likeliest []Candidate, all bool) (drawn Candidate, ok bool) {
	if r.Score == nil {
		return r.Way.Draw(r.Uniform, likeliest, all)
	}
	if !all {
		return drawn, false
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
	drawn, ok = way.Draw(r.Uniform, list, true)
	at := slices.IndexFunc(likeliest, func(c Candidate) bool { return c.ID == drawn.ID })
	return likeliest[at], ok
}
