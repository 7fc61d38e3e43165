package runtime

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/models/ports"
	"onering/sampler"
)

// A tokenChooser runs the Sample Programs, which choose the next token of each row or
// return the likeliest ones, among which Go code draws.
type tokenChooser struct {
	sessions                        map[sampleKind]*Binding
	hidden                          buffer // [B,D], the normed states of rows that begin
	group                           buffer // [B,D], states of the rows that sample in the same way
	inverseTemperature, uniforms, k buffer
	ids, logp, entropy              buffer // outputs; see sampled

	firstCandidates int                 // how many candidates of a row the next run returns at first
	runs            int                 // number of runs for candidates
	list            []sampler.Candidate // candidates of one row
}

// leastCandidates is how many candidates of a row a run returns at first, which is enough
// for most rows of language models. If they are too few for a row, the rows are run again
// with eight times as many, and so are the next candidateRuns.
const (
	leastCandidates = 72
	candidateRuns   = 64
)

func newTokenChooser(e *Env) tokenChooser {
	float, ints := hostBuffer(models.F32), hostBuffer(models.I64)
	return tokenChooser{
		sessions: make(map[sampleKind]*Binding), hidden: e.buffer(models.F32), group: e.buffer(models.F32),
		inverseTemperature: float, uniforms: float, k: ints,
		ids: ints, logp: float, entropy: float, firstCandidates: leastCandidates,
	}
}

// sampled is the output of a run: for each row k tokens with their log-probs, and an entropy.
type sampled struct {
	ids           []int64
	logp, entropy []float32
}

// idsOf names the output that has the tokens.
func idsOf(choice models.Choice) string {
	if choice == models.Candidates {
		return ports.Candidates
	}
	return ports.NextTokens
}

// bindOutputs binds the outputs, of k tokens a row, and returns their elements, which the run writes.
func (s *tokenChooser) bindOutputs(b *Binding, choice models.Choice, rows, k int64) (r sampled) {
	shape := []int64{rows, k}
	if choice != models.Candidates {
		shape = shape[:1] // one token a row
	}
	r.ids = takeOutput[int64](b, idsOf(choice), &s.ids, shape...)
	r.logp = takeOutput[float32](b, ports.LogProb, &s.logp, shape...)
	r.entropy = takeOutput[float32](b, ports.Entropy, &s.entropy, rows)
	return r
}

// token returns token number i with its log-prob.
func (r *sampled) token(i int) sampler.Candidate {
	return sampler.Candidate{ID: int32(r.ids[i]), LogProb: r.logp[i]}
}

// A way is the common setting of rows that are sampled together.
type way struct {
	choice          models.Choice
	temperature     float64
	wholeVocabulary bool // whether a token depends on scores of the whole vocabulary
}

// wayOf returns the way of a row: with scores or filters the model returns the likeliest tokens (Candidates), and
// Row.Draw chooses among them.
func wayOf(r *sampler.Row) way {
	w := way{models.Draw, r.Way.Temperature, r.NeedsAllScores()}
	switch {
	case r.Score != nil || r.Way.Filtered():
		w.choice = models.Candidates
	case r.Way.Greedy:
		w.choice = models.Greedy
	}
	return w
}

// A sampleKind has what distinguishes Sample Programs.
type sampleKind struct {
	choice models.Choice
	form   models.Form
}

// session returns the session for a choice and a number of rows, with the weights bound.
func (s *tokenChooser) session(d *Decoder, choice models.Choice, n int) (*Binding, error) {
	kind := sampleKind{choice, d.formFor(n)}
	if b := s.sessions[kind]; b != nil {
		return b, nil
	}
	p, err := d.ring.Arch.Sample(kind.choice, kind.form)
	b, err := d.load(p, err)
	if err != nil {
		return nil, err
	}
	s.sessions[kind] = b
	return b, nil
}

// sample chooses a token for each of the rows, which are the first of the normed states hidden [B,D], into its Out,
// and then finds the likeliest tokens for rows that ask for them.
func (s *tokenChooser) sample(d *Decoder, hidden *buffer, rows []*sampler.Row) error {
	err := s.grouped(d, hidden, rows, func(r *sampler.Row) (way, bool) { return wayOf(r), true }, s.sampleRows)
	if err != nil || !slices.ContainsFunc(rows, func(r *sampler.Row) bool { return r.Top > 0 }) {
		return err
	}
	likeliest := func(r *sampler.Row) (way, bool) {
		return way{choice: models.Candidates, temperature: r.Way.Temperature}, r.Top > 0
	}
	return s.grouped(d, hidden, rows, likeliest, s.likeliest)
}

// grouped calls sampleGroup once for all rows with the same way, which is how and at which temperature they choose, with
// their states. wayFor returns a row's way, and whether to include the row. If all have one way it copies no states.
func (s *tokenChooser) grouped(d *Decoder, hidden *buffer, rows []*sampler.Row, wayFor func(*sampler.Row) (way, bool),
	sampleGroup func(*Decoder, *buffer, way, []*sampler.Row) error) error {
	first, _ := wayFor(rows[0])
	if !slices.ContainsFunc(rows, func(r *sampler.Row) bool { w, included := wayFor(r); return !included || w != first }) {
		return sampleGroup(d, hidden, first, rows)
	}
	width := d.geometry.Hidden
	groups := make(map[way][]int)
	var ways []way // in the order of the ways' first rows
	for i, r := range rows {
		w, included := wayFor(r)
		if !included {
			continue
		}
		if groups[w] == nil {
			ways = append(ways, w)
		}
		groups[w] = append(groups[w], i)
	}
	for _, w := range ways {
		group := groups[w]
		if d.invariant && len(group) == 1 && !d.stepRowsApart() {
			group = append(group, group[0]) // the same row twice: ONNX Runtime has another kernel, with other bits, for one
		}
		if _, err := s.group.resize(int64(d.computedRows(len(group))), int64(width)); err != nil {
			return err
		}
		some, runs := make([]*sampler.Row, len(group)), make([]Runs, len(group))
		for i, row := range group {
			some[i], runs[i] = rows[row], Runs{To: i * width, From: row * width, Width: width, Count: 1}
		}
		if err := s.group.copyRuns(hidden, runs...); err != nil {
			return err
		}
		if err := sampleGroup(d, &s.group, w, some); err != nil {
			return err
		}
	}
	return nil
}

// prepare begins a binding of the Program for rows of one way, which are the first rows of hidden, and binds these
// and the temperature. n is how many rows it computes.
func (s *tokenChooser) prepare(d *Decoder, hidden *buffer, w way, rows []*sampler.Row) (b *Binding, n int64, err error) {
	if w.temperature == 0 {
		return b, 0, fmt.Errorf("runtime: the sampling of slot %d has a temperature of 0", rows[0].Slot)
	}
	binding, err := s.session(d, w.choice, len(rows))
	if err != nil {
		return b, 0, err
	}
	n = int64(d.computedRows(len(rows)))
	b = binding.begin()
	v, err := hidden.resize(n, int64(d.geometry.Hidden))
	b.in(ports.Hidden, v, err)
	inverse := fill[float32](b, ports.InverseTemperature, &s.inverseTemperature)
	if b.failed == nil {
		inverse[0] = 1 / float32(w.temperature)
	}
	return b, n, b.failed
}

// sampleRows chooses a token for each of the rows, the first of hidden, in the same way.
func (s *tokenChooser) sampleRows(d *Decoder, hidden *buffer, w way, rows []*sampler.Row) error {
	b, n, err := s.prepare(d, hidden, w, rows)
	switch {
	case err != nil:
		return err
	case w.choice == models.Candidates:
		return s.sampleCandidates(b, d.geometry.Vocab, n, rows)
	case w.choice == models.Draw:
		us := fill[float32](b, ports.Uniforms, &s.uniforms, n)
		for i := range min(len(us), len(rows)) {
			us[i] = rows[i].Uniform
		}
	}
	out := s.bindOutputs(b, w.choice, n, 1)
	if err := b.run(); err != nil {
		return err
	}
	for i, r := range rows {
		x := out.token(i)
		r.Out = sampler.Drawn{ID: x.ID, LogProb: x.LogProb, Entropy: out.entropy[i]}
	}
	return nil
}

// likeliest gives each of the rows, the first of hidden, as many likeliest tokens as it
// asks for (Top), in its Out. It does not change the token that was chosen.
func (s *tokenChooser) likeliest(d *Decoder, hidden *buffer, w way, rows []*sampler.Row) error {
	most := 0
	for _, r := range rows {
		most = max(most, r.Top)
	}
	most = min(most, d.geometry.Vocab)
	b, n, err := s.prepare(d, hidden, w, rows)
	if err != nil {
		return err
	}
	asked := fill[int64](b, ports.TopK, &s.k, 1)
	out := s.bindOutputs(b, w.choice, n, int64(most))
	if b.failed != nil {
		return b.failed
	}
	asked[0] = int64(most)
	if err := b.run(); err != nil {
		return err
	}
	for i, r := range rows {
		r.Out.Likeliest = make([]sampler.Candidate, min(r.Top, most))
		for j := range r.Out.Likeliest {
			r.Out.Likeliest[j] = out.token(i*most + j)
		}
	}
	return nil
}

// sampleCandidates draws a token for each row from its likeliest ones. It runs the Program again with eight times as
// many until they are enough for all rows, and the next call begins with as many, now and then with fewer. Rows whose
// tokens depend on the whole vocabulary take all of it at once.
func (s *tokenChooser) sampleCandidates(b *Binding, vocab int, n int64, rows []*sampler.Row) error {
	if s.runs++; s.runs%candidateRuns == 0 {
		s.firstCandidates = max(leastCandidates, s.firstCandidates/8)
	}
	asked := fill[int64](b, ports.TopK, &s.k, 1)
	first := &s.firstCandidates
	if rows[0].NeedsAllScores() { // as all rows of its way
		first = &vocab // all of it at once; firstCandidates stays as it is
	}
	for k := min(*first, vocab); ; k = min(8*k, vocab) {
		out := s.bindOutputs(b, models.Candidates, n, int64(k))
		if b.failed != nil {
			return b.failed
		}
		asked[0] = int64(k)
		if err := b.run(); err != nil {
			return err
		}
		if s.draw(&out, k, k == vocab, rows) {
			*first = max(*first, k)
			return nil
		}
	}
}

// draw draws a token for each row from its k candidates, which are the whole vocabulary if all is set. It reports
// false if a row needs more; those before it have their tokens then, and get the same ones again.
func (s *tokenChooser) draw(out *sampled, k int, all bool, rows []*sampler.Row) bool {
	for i, r := range rows {
		s.list = slices.Grow(s.list[:0], k)[:k]
		for j := range s.list {
			s.list[j] = out.token(i*k + j)
		}
		if !r.Draw(s.list, all, out.entropy[i]) {
			return false
		}
	}
	return true
}

func (s *tokenChooser) close() {
	for _, b := range s.sessions {
		closeSessions(b)
	}
	s.sessions = nil
	closeBuffers(&s.hidden, &s.group, &s.inverseTemperature, &s.uniforms, &s.k, &s.ids, &s.logp, &s.entropy)
}
