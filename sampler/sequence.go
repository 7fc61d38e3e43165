package sampler

import (
	"fmt"
	"slices"
)

// A sequence is the response growing in a slot. Its slices are reused for the next
// response, so that the loop allocates only when a response ends.
type sequence struct {
	call           *Call // nil if the slot is free
	sample         int
	sampling       Sampling
	maxTokens      int        // largest number of tokens after the prompt
	turnEnd        int        // number of sampled tokens at which the turn ends; 0 is not a bound
	unfed          []int32    // tokens that the decoder does not have yet; a sampled token follows the last one
	observations   []Observed // observed tokens, see Response
	observedTokens int        // number of tokens in observations
	awaiting       bool       // it waits for an observation
	endedTurn      Response   // while it waits, the turn that ended
	text           TextDecoder
	stops          stops         // stop strings of the turn
	tail           []byte        // end of its text; see stops.find
	tokenCounts    map[int32]int // for steered: how often the response has each token that it or the prompt has
	constraint     Constraint    // of the turn, nil for none
	allowed        []uint64      // ids that may follow, nil for all
	mayEnd         bool          // the turn may end
	ids            []int32
	logp           []float32
	entropy        []float32
	kept           [][]int32
}

// begin makes the sequence the next sample of a call, in a slot of maxTokens tokens.
func (q *sequence) begin(c *Call, maxTokens int) {
	q.call, q.sample, q.sampling = c, c.started, c.samplingOf(c.started)
	c.started++
	q.maxTokens = min(q.sampling.MaxNewTokens, maxTokens-len(c.Prompt))
	q.ids, q.logp, q.entropy, q.kept = q.ids[:0], q.logp[:0], q.entropy[:0], nil
	q.unfed, q.observations, q.observedTokens, q.awaiting = q.unfed[:0], nil, 0, false
	q.countPrompt()
	q.beginTurn(c.TurnTokens)
}

// row is the sequence's in a call of the decoder.
func (q *sequence) row(slot, prefix int, u float32) Row {
	return Row{Slot: slot, Prefix: prefix, Uniform: u, Way: q.sampling, Top: q.call.Top, Kept: q.call.Kept, Score: q.scoreOrNil(), Masked: q.tokenCounts == nil}
}

// beginTurn begins a turn of at most so many tokens, if that is not 0. A stop string must lie inside one turn.
func (q *sequence) beginTurn(most int) {
	q.tail, q.turnEnd = q.tail[:0], 0
	if most > 0 {
		q.turnEnd = len(q.ids) + most
	}
	q.text = nil
	if len(q.call.Stops) > 0 {
		q.text, q.stops = q.call.Text(), newStops(q.call.Stops)
	}
	q.constraint = nil
	if q.call.Constraint != nil {
		q.constraint = q.call.Constraint()
		q.allowed, q.mayEnd, _ = q.constraint.Next() // an error comes again behind the first token
	}
}

// uniform returns the number that decides the next token.
func (q *sequence) uniform() (float32, error) {
	t, c := len(q.ids), q.call
	switch {
	case q.sampling.Greedy:
		return 0, nil
	case c.Uniforms == nil:
		return Uniform(c.Seed, c.ID, c.First+q.sample, t), nil
	case t < len(c.Uniforms[q.sample]):
		return c.Uniforms[q.sample][t], nil
	}
	return 0, fmt.Errorf("sampler: request %d (id %d), sample %d: the %d uniforms given are used up and the response has not ended", c.index, c.ID, q.sample, t)
}

// addToken appends a token that the decoder sampled. If it ends the turn, finish says why, and stop is the stop string,
// if one ended it. Otherwise the turn's constraint says which tokens may follow.
func (q *sequence) addToken(x Drawn) (finish Finish, stop string, err error) {
	c := q.call
	// x-x is NaN for NaN and for the infinities.
	if x.LogProb-x.LogProb != 0 || x.Entropy-x.Entropy != 0 {
		return "", "", fmt.Errorf("sampler: request %d (id %d), sample %d, token %d: the decoder gave id %d with "+
			"log-prob %v and entropy %v: the model's weights hold NaN or an infinity, or numbers too large to compute with",
			c.index, c.ID, q.sample, len(q.ids), x.ID, x.LogProb, x.Entropy)
	}
	q.ids = append(q.ids, x.ID)
	q.unfed = append(q.unfed[:0], x.ID)
	q.logp = append(q.logp, x.LogProb)
	q.entropy = append(q.entropy, x.Entropy)
	if q.kept != nil || len(x.Kept) > 0 { // nil for tokens before the first that has any
		q.kept = append(append(q.kept, make([][]int32, len(q.ids)-1-len(q.kept))...), x.Kept)
	}
	if q.tokenCounts != nil {
		q.tokenCounts[x.ID]++
	}
	switch {
	case slices.Contains(c.EOS, x.ID):
		return Stop, "", nil
	case q.text != nil:
		var found int
		text := q.text.Add(x.ID)
		if found, q.tail = q.stops.find(q.tail, text, q.text.Pending()); found >= 0 && len(q.ids) >= c.MinTokens {
			return Stop, c.Stops[found], nil
		}
	}
	if q.isFull() || len(q.ids) == q.turnEnd {
		return Length, "", nil
	}
	if q.constraint != nil {
		q.constraint.Add(x.ID)
		if err = q.readConstraint(); err == nil && q.isOver() {
			return Stop, "", nil
		}
	}
	return "", "", err
}

// response returns the ended sequence as a Response.
func (q *sequence) response(why Finish, stop string) Response {
	return Response{
		Request: q.call.index, Sample: q.sample,
		IDs: slices.Clone(q.ids), LogProb: slices.Clone(q.logp), Entropy: slices.Clone(q.entropy), Kept: slices.Clone(q.kept),
		Finish: why, Stop: stop, Observed: slices.Clip(q.observations),
	}
}

// isFull says whether the sequence has no room for another token.
func (q *sequence) isFull() bool { return len(q.ids)+q.observedTokens == q.maxTokens }

// tokens returns the sequence's prompt and all that follows it.
func (q *sequence) tokens() []int32 {
	all, _ := Response{IDs: q.ids, Observed: q.observations}.Tokens()
	return slices.Concat(q.call.Prompt, all)
}

// addObservation continues after a turn, if there is room for the observation and one more token.
func (q *sequence) addObservation(o Observation) bool {
	if len(q.ids)+q.observedTokens+len(o.IDs) >= q.maxTokens {
		return false
	}
	q.observations = append(q.observations, Observed{len(q.ids), o.IDs})
	q.observedTokens += len(o.IDs)
	q.unfed = append(q.unfed, o.IDs...)
	q.beginTurn(o.TurnTokens)
	return true
}
