package streams

import (
	"context"
	"errors"
	"math"
	"slices"

	"onering/objectives"
	"onering/runtime"
	"onering/sampler"
	"onering/train/learn"
)

// A Mixture is the streams of one optimizer step beside the rollouts of its batch, which come first.
type Mixture struct {
	Record []objectives.Stat // figures of the newest loss

	batch learn.Batch // with all sequences
	own   [][]int     // by rollout, the places of the policy's tokens among the scored ones
	parts []part
	share float64 // of the objective's loss
}

// A part is a stream in one step.
type part struct {
	*Opened
	weight float64
	places [][]int     // by sequence, which of the scored tokens are the stream's
	taught [][]float64 // by rollout, the teacher's log-probs
	tokens int
}

// A Rollout is what a Mixture has to know of a rollout in its batch, beside its trajectory.
type Rollout struct {
	sampler.Response             // its ids, Observed and Kept
	Right            bool        // it is a right response
	Teachers         [][]float64 // the log-probs of the streams' teachers, of those that have one
}

// Mix adds the streams to a step: batch has the sequences of the rollouts, and b their trajectories. It appends the
// demonstrations of streams with data behind them, drawn by the seed and the step, and has what an environment said
// in the rollouts scored if a stream learns it. The run has about total steps, on which the streams' schedules depend.
func Mix(list []*Opened, batch learn.Batch, b objectives.Batch, rollouts []Rollout, seed int64, total float64) *Mixture {
	m, n := &Mixture{batch: batch, share: 1}, batch.Number-1 // share is the objective's weight; n steps were taken before
	environment := slices.ContainsFunc(list, func(o *Opened) bool { return o.Tokens == "environment" })
	for i, x := range rollouts {
		// m.own[i] lists which scored tokens of rollout i the policy wrote: all of them so far, and none if it is masked.
		m.own = append(m.own, upTo(len(b.Trajectories[i].OldLogProb)))
		if environment && len(m.own[i]) > 0 && len(x.Observed) > 0 {
			m.scoreEnvironment(i, x) // it has all tokens of the response scored, and corrects m.own[i]
		}
	}
	teachers := 0 // streams with a teacher so far, which is the index in a Rollout's Teachers
	for _, o := range list {
		p := part{Opened: o, weight: o.Rate(o.Weight, n, total)}
		if o.Mix { // its weight is taken from the objective's
			m.share -= p.weight
		}
		for i, own := range m.own {
			var places []int // which scored tokens of rollout i the stream learns: none if it learns demonstrations
			switch {
			case o.Tokens == "policy", o.Tokens == "right" && rollouts[i].Right:
				places = own
			case o.Tokens == "environment": // the scored tokens that are not the policy's
				places = slices.DeleteFunc(upTo(m.batch.Sequences[i].Count()), func(at int) bool { _, found := slices.BinarySearch(own, at); return found })
			}
			// Live says whether a sequence may have derivatives other than zero, as one with tokens to learn may.
			p.places, m.batch.Live[i] = append(p.places, places), m.batch.Live[i] || len(places) > 0
			if o.Teacher != "" {
				p.taught = append(p.taught, rollouts[i].Teachers[teachers][:len(own)]) // log-probs of the policy's tokens
			}
		}
		if o.Teacher != "" {
			teachers++
		}
		if o.Data != "" {
			p.places = append(p.places, make([][]int, len(m.batch.Sequences)-len(p.places))...) // nil for other streams' demonstrations
			for _, x := range o.batch(n, seed) {
				m.batch.Sequences, m.batch.Live = append(m.batch.Sequences, x), append(m.batch.Live, true)
				p.places = append(p.places, upTo(x.Count())) // all tokens that are scored
			}
		}
		for _, places := range p.places {
			p.tokens += len(places)
		}
		m.parts = append(m.parts, p)
	}
	return m
}

// upTo lists the numbers from 0 to n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// scoreEnvironment has the tokens that the environment wrote in rollout i scored, too, which moves the policy's places.
func (m *Mixture) scoreEnvironment(i int, x Rollout) {
	all, places := x.Tokens()
	q := &m.batch.Sequences[i]
	q.Scored, m.own[i] = []runtime.Span{{From: len(q.Tokens) - len(all), To: len(q.Tokens)}}, places
	if x.Kept != nil {
		q.Kept = make([][]int32, len(all))
		for t, at := range places {
			q.Kept[at] = x.Kept[t]
		}
	}
}

// ofPolicy returns from figures by sequence and scored token those of the tokens that the policy wrote, by rollout. A row
// that is nil, as it is not computed yet or left out, stays nil, and demonstrations have none.
func (m *Mixture) ofPolicy(rows [][]float64) (list [][]float64) {
	if rows == nil {
		return nil
	}
	for i, own := range m.own {
		var row []float64
		if rows[i] != nil {
			row = make([]float64, len(own))
			for t, at := range own {
				row[t] = rows[i][at]
			}
		}
		list = append(list, row)
	}
	return list
}

// widened is the inverse of ofPolicy, times the objective's share; other tokens have 0.
func (m *Mixture) widened(own [][]float64) (rows [][]float64) {
	for i, q := range m.batch.Sequences {
		rows = append(rows, make([]float64, q.Count()))
		if i < len(m.own) {
			for t, at := range m.own[i] {
				rows[i][at] = m.share * own[i][t]
			}
		}
	}
	return rows
}

// scores returns the scores of the policy's tokens alone.
func (m *Mixture) scores(s learn.Scores) learn.Scores {
	return learn.Scores{LogProb: m.ofPolicy(s.LogProb), Entropy: m.ofPolicy(s.Entropy)}
}

// Step takes the step with its streams. objective is the loss without them, which sees the scores of the policy's
// tokens alone and puts them into b. The report, too, is about these tokens alone, with the derivatives of the whole
// loss. An error about demonstrations of a stream names no sequence.
func (m *Mixture) Step(ctx context.Context, stepper *learn.Stepper, b objectives.Batch, objective learn.Weigh) (learn.Report, error) {
	if len(m.parts) == 0 {
		return stepper.Step(ctx, m.batch, objective)
	}
	r, err := stepper.Step(ctx, m.batch, func(s learn.Scores) (learn.Loss, error) {
		x, err := objective(m.scores(s))
		if err != nil || x.Check() != nil { // the Stepper checks x again and reports it
			return x, err
		}
		return m.loss(x, b, s), nil
	})
	if e, ok := errors.AsType[*learn.NonfiniteError](err); ok {
		all := len(e.Sequences)
		e.Sequences = slices.DeleteFunc(e.Sequences, func(k int) bool { return k >= len(m.own) }) // demonstrations
		if len(e.Sequences) < all {
			e.What = "in a demonstration of a stream " + e.What
		}
	}
	r.Scores, r.Loss.LogProb = m.scores(r.Scores), m.ofPolicy(r.Loss.LogProb)
	return r, err
}

// loss returns the loss of the step with its streams, where x is the objective's alone, and sets m.Record to the figures
// of each; s has the scores of all sequences, and b those of the policy's tokens.
func (m *Mixture) loss(x learn.Loss, b objectives.Batch, s learn.Scores) learn.Loss {
	out := x
	out.Value, out.LogProb = m.share*x.Value, m.widened(x.LogProb)
	if x.Entropy != nil {
		out.Entropy = m.widened(x.Entropy)
	}
	m.Record = nil
	record := func(name string, loss, weight float64, tokens int) {
		name = "stream/" + name
		m.Record = append(m.Record, objectives.Stat{Name: name + "/loss", Value: loss}, objectives.Stat{Name: name + "/weight", Value: weight},
			objectives.Stat{Name: name + "/tokens", Value: float64(tokens)})
	}
	record("rl", x.Value, m.share, b.Tokens())
	for _, p := range m.parts {
		lossOf := p.crossEntropy
		if p.Teacher != "" {
			lossOf = p.pull
		}
		loss := lossOf(b, s.LogProb, out.LogProb) // adds its derivatives to the last
		out.Value += p.weight * loss
		record(p.Name, loss, p.weight, p.tokens)
	}
	return out
}

// crossEntropy returns the mean of -log p over the stream's tokens, and adds its derivatives, times the
// stream's weight, to w. With phi a token counts p (1 - p), which is taken as a constant. It needs no batch.
func (p part) crossEntropy(_ objectives.Batch, logp, w [][]float64) (loss float64) {
	for i, places := range p.places {
		if logp[i] == nil { // it is not computed yet
			continue
		}
		for _, at := range places {
			c, x := 1/float64(p.tokens), logp[i][at]
			if p.Phi {
				c *= math.Exp(x) * -math.Expm1(x) // p (1 - p)
			}
			loss -= c * x
			w[i][at] -= p.weight * c
		}
	}
	return loss
}

// pull returns the divergence of the policy pi from the teacher T on the policy's own tokens, and adds its derivatives,
// times the stream's weight, to w. With the loss kl it is that of the objective opd. With ce it is the cross-entropy less
// the teacher's entropy, KL(T, pi), from tokens that the old policy mu sampled: the mean of
// T/mu log(T/pi) + pi/mu - T/mu, which is never negative, and whose derivative is pi/mu - T/mu.
func (p part) pull(b objectives.Batch, _, w [][]float64) (loss float64) {
	derivatives := b.Zeros()
	b.Trajectories = slices.Clone(b.Trajectories) // in which the teacher takes the place of the reference
	for i := range b.Trajectories {
		x := &b.Trajectories[i]
		x.RefLogProb = p.taught[i]
		for t := 0; p.kl == nil && t < len(x.OldLogProb); t++ {
			teacher, ratio := math.Exp(x.RefLogProb[t]-x.OldLogProb[t]), math.Exp(x.LogProb[t]-x.OldLogProb[t])
			loss += (teacher*(x.RefLogProb[t]-x.LogProb[t]) + ratio - teacher) / float64(p.tokens)
			derivatives[i][t] = (ratio - teacher) / float64(p.tokens)
		}
	}
	if p.kl != nil {
		loss = objectives.Loss(p.kl, b, b)
		objectives.Weights(p.kl, b, derivatives)
	}
	for i, row := range derivatives {
		for t, x := range row {
			w[i][p.places[i][t]] += p.weight * x
		}
	}
	return loss
}
