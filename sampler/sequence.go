package sampler

import (
	"fmt"
	"slices"
)

// A sequence is the response growing in a slot. Its slices are kept from one
// response to the next, so that the loop allocates only where one ends.
type sequence struct {
	busy     bool // in a call of Sample
	req      int
	sample   int
	limit    int       // the most tokens it may have
	prompt   uint64    // the prompt id
	uniforms []float32 // given with the request, or nil
	text     TextDecoder
	tail     []byte // of its text; see stops.find
	ids      []int32
	logp     []float32
	entropy  []float32
}

// begin makes the sequence that of a sample of the request req, whose number is
// index, in a slot of maxTokens tokens.
func (q *sequence) begin(o *Options, req *Request, index, sample, maxTokens int) {
	q.req, q.sample, q.prompt = index, sample, req.ID
	q.limit = min(o.MaxNewTokens, maxTokens-len(req.Prompt))
	q.ids, q.logp, q.entropy, q.tail = q.ids[:0], q.logp[:0], q.entropy[:0], q.tail[:0]
	q.uniforms, q.text = nil, nil
	if req.Uniforms != nil {
		q.uniforms = req.Uniforms[sample]
	}
	if len(o.Stops) > 0 {
		q.text = o.Text()
	}
}

// uniform returns the number that decides the next token.
func (q *sequence) uniform(o *Options) (float32, error) {
	t := len(q.ids)
	switch {
	case o.Greedy:
		return 0, nil
	case q.uniforms == nil:
		return Uniform(o.Seed, q.prompt, q.sample, t), nil
	case t < len(q.uniforms):
		return q.uniforms[t], nil
	}
	return 0, fmt.Errorf("sampler: request %d (id %d), sample %d: the %d uniforms given are used up and the response has not ended", q.req, q.prompt, q.sample, t)
}

// add appends a token of the decoder. If that ends the sequence, finish says why, and
// stop is the stop string that ended it, if one did.
func (q *sequence) add(o *Options, s *stops, id int32, logp, entropy float32) (finish Finish, stop string, err error) {
	// x-x is NaN for NaN and for the infinities.
	if logp-logp != 0 || entropy-entropy != 0 {
		return "", "", fmt.Errorf("sampler: request %d (id %d), sample %d, token %d: the decoder gave id %d with log-prob %v and entropy %v: the model's weights hold NaN or an infinity, or numbers too large to compute with", q.req, q.prompt, q.sample, len(q.ids), id, logp, entropy)
	}
	q.ids = append(q.ids, id)
	q.logp = append(q.logp, logp)
	q.entropy = append(q.entropy, entropy)
	switch {
	case slices.Contains(o.EOS, id):
		return Stop, "", nil
	case q.text != nil:
		var found int
		if found, q.tail = s.find(q.tail, q.text.Add(id)); found >= 0 {
			return Stop, o.Stops[found], nil
		}
	}
	if len(q.ids) == q.limit {
		return Length, "", nil
	}
	return "", "", nil
}

// response returns the sequence as the response that it ended as.
func (q *sequence) response(why Finish, stop string) Response {
	return Response{
		Request: q.req, Sample: q.sample,
		IDs: slices.Clone(q.ids), LogProb: slices.Clone(q.logp), Entropy: slices.Clone(q.entropy),
		Finish: why, Stop: stop,
	}
}
