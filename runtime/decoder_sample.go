package runtime

import (
	"fmt"
	"slices"

	"onering/internal/settings"
	"onering/models"
	"onering/models/moves"
	"onering/models/ports"
	"onering/runtime/internal/buffers"
	"onering/sampler"
)

// A tokenChooser runs the Sample Programs, which choose the next token of each row.
type tokenChooser struct {
	sampling sampler.Sampling   // zero before SetSampling
	bySlot   []sampler.Sampling // of slots that have one of their own; else zero

	sessions           map[sampleKind]*Binding
	hidden             buffer // [B,D], the normed states of rows that begin
	part               buffer // [B,D], those of the rows that sample in one way
	inverseTemperature buffer
	uniforms           buffer
	outputs            sampledBuffers
	filters            filters
}

// sampledBuffers are the outputs of a Program, [B] each or [B] after [B] in together.
type sampledBuffers struct{ next, logp, entropy, short, together buffer }

// sampled is what a run writes: the tokens are ids or, in together, singles.
type sampled struct {
	ids                           []int64
	singles, logp, entropy, short []float32
}

// take binds the outputs, which are one if the Program is that of moves.Together. short is
// whether there is that output.
func (o *sampledBuffers) take(b *binder, rows int64, short bool) (r sampled) {
	if _, together := b.b.s.index[output][moves.Results]; !together {
		r.ids = take[int64](b, ports.NextTokens, &o.next, rows)
		r.logp = take[float32](b, ports.LogProb, &o.logp, rows)
		r.entropy = take[float32](b, ports.Entropy, &o.entropy, rows)
		if short {
			r.short = take[float32](b, ports.Short, &o.short, rows)
		}
		return r
	}
	vectors := int64(3)
	if short {
		vectors++
	}
	if all := take[float32](b, moves.Results, &o.together, vectors*rows); all != nil {
		r.singles, r.logp, r.entropy, r.short = all[:rows], all[rows:2*rows], all[2*rows:3*rows], all[3*rows:]
	}
	return r
}

// filters are the additional inputs and outputs of Programs that restrict the
// choice.
type filters struct {
	topP, renormalize, k buffer
	minP                 buffer
}

func newTokenChooser(e *Env) tokenChooser {
	float := hostBuffer(models.F32)
	return tokenChooser{
		sessions: make(map[sampleKind]*Binding), hidden: e.buffer(models.F32), part: e.buffer(models.F32),
		inverseTemperature: float, uniforms: float,
		outputs: sampledBuffers{next: hostBuffer(models.I64), logp: float, entropy: float, short: float, together: float},
		filters: filters{topP: float, renormalize: float, minP: float, k: hostBuffer(models.I64)},
	}
}

// A sampleKind is what Sample Programs differ in.
type sampleKind struct {
	choice models.Choice
	form   models.Form
}

// firstK is how many of the largest probabilities top-p looks at first. If they
// are too few for a row, the step is sampled again with eight times as many.
const firstK = 512

// SetSampling sets how the following calls sample; see sampler.Decoder.
func (s *tokenChooser) SetSampling(x sampler.Sampling) error {
	if err := settings.Check(&x); err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	s.sampling, s.bySlot = x, nil
	return nil
}

// SetSlotSampling sets how the following calls sample one slot, until the next
// SetSampling; see sampler.MixedDecoder.
func (d *Decoder) SetSlotSampling(slot int, x sampler.Sampling) error {
	if err := settings.Check(&x); err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	if d.bySlot == nil {
		d.bySlot = make([]sampler.Sampling, d.Slots())
	}
	d.bySlot[slot] = x
	return nil
}

// choiceOf returns the choice of the Program that samples so.
func choiceOf(x sampler.Sampling) models.Choice {
	largest := x.TopK > 0 || x.TopP < 1
	switch {
	case x.Greedy:
		return models.Greedy
	case largest && x.MinP > 0:
		return models.FilterMinP
	case largest:
		return models.Filter
	case x.MinP > 0:
		return models.DrawMinP
	}
	return models.Draw
}

// session returns the session for a choice and a number of rows, with the weights
// bound.
func (s *tokenChooser) session(d *Decoder, choice models.Choice, n int) (*Binding, error) {
	kind := sampleKind{choice, d.form(n)}
	if b := s.sessions[kind]; b != nil {
		return b, nil
	}
	p, err := d.ring.Arch.Sample(kind.choice, kind.form)
	if err != nil {
		return nil, err
	}
	if d.env.memory.Cuts() && d.geometry.Vocab <= 1<<24 { // float32 holds the ids
		names := []string{ports.NextTokens, ports.LogProb, ports.Entropy}
		if len(p.Outputs) > len(names) {
			names = append(names, ports.Short)
		}
		if p, err = moves.Together(p, names...); err != nil {
			return nil, err
		}
	}
	session, err := d.env.Load(p)
	if err != nil {
		return nil, err
	}
	b, err := session.NewBinding()
	if err == nil {
		err = d.ring.bind(b, "")
	}
	if err != nil {
		session.Close()
		return nil, err
	}
	s.sessions[kind] = b
	return b, nil
}

// states are the normed states [B,D] of rows to sample and, where they are on the device
// already, the uniforms [B]; else nil.
type states struct{ hidden, uniforms *buffer }

// sample chooses a token for each of the slots, which are the first rows of from.
func (s *tokenChooser) sample(d *Decoder, from states, slots []int, uniforms []float32, next []int32, logp, entropy []float32) error {
	ways := s.ways(slots)
	if len(ways) == 1 {
		return s.sampleRows(d, from, ways[0].Sampling, len(slots), uniforms, next, logp, entropy)
	}
	width := d.geometry.Hidden
	for _, way := range ways {
		rows := way.rows
		if d.invariant && len(rows) == 1 {
			rows = append(rows, rows[0]) // a single row has another kernel; see SetInvariant
		}
		n := len(rows)
		us, ids, logps, entropies := make([]float32, n), make([]int32, n), make([]float32, n), make([]float32, n)
		if _, err := s.part.of(int64(d.rows(n)), int64(width)); err != nil {
			return err
		}
		runs := make([]buffers.Runs, n)
		for i, row := range rows {
			us[i] = uniforms[row]
			runs[i] = buffers.Runs{To: i * width, From: row * width, Width: width, Count: 1}
		}
		if err := s.part.copyRuns(from.hidden, runs...); err != nil {
			return err
		}
		if err := s.sampleRows(d, states{hidden: &s.part}, way.Sampling, n, us, ids, logps, entropies); err != nil {
			return err
		}
		for i, row := range rows {
			next[row], logp[row], entropy[row] = ids[i], logps[i], entropies[i]
		}
	}
	return nil
}

// A way is the rows that sample alike.
type way struct {
	sampler.Sampling
	rows []int
}

// ways groups the slots by how they sample.
func (s *tokenChooser) ways(slots []int) []way {
	if s.bySlot == nil {
		return []way{{Sampling: s.sampling}}
	}
	var ways []way
	for row, slot := range slots {
		x := s.bySlot[slot]
		if x == (sampler.Sampling{}) {
			x = s.sampling
		}
		x.MaxNewTokens = s.sampling.MaxNewTokens // which is the caller's
		i := slices.IndexFunc(ways, func(w way) bool { return w.Sampling == x })
		if i < 0 {
			i, ways = len(ways), append(ways, way{Sampling: x})
		}
		ways[i].rows = append(ways[i].rows, row)
	}
	return ways
}

// sampleRows chooses a token for each of the first n rows of from, in the same way.
func (s *tokenChooser) sampleRows(d *Decoder, from states, x sampler.Sampling, n int, uniforms []float32, next []int32, logp, entropy []float32) error {
	if x.Temperature == 0 {
		return fmt.Errorf("runtime: call SetSampling before sampling")
	}
	choice := choiceOf(x)
	binding, err := s.session(d, choice, n)
	if err != nil {
		return err
	}
	rows := int64(d.rows(n))
	b := binder{b: binding}
	v, err := from.hidden.of(rows, int64(d.geometry.Hidden))
	b.in(ports.Hidden, v, err)
	inverse := fill[float32](&b, ports.InverseTemperature, &s.inverseTemperature)
	switch {
	case choice == models.Greedy:
	case from.uniforms != nil:
		v, err := from.uniforms.of(rows)
		b.in(ports.Uniforms, v, err)
	default:
		copy(fill[float32](&b, ports.Uniforms, &s.uniforms, rows), uniforms)
	}
	filters := choice == models.Filter || choice == models.FilterMinP
	out := s.outputs.take(&b, rows, filters)
	copy(fillIf[float32](&b, ports.MinP, &s.filters.minP), []float32{float32(x.MinP)})
	if b.err != nil {
		return b.err
	}
	inverse[0] = 1 / float32(x.Temperature)
	if filters {
		err = s.filter(&b, x, d.geometry.Vocab, out.short[:n])
	} else {
		err = b.run()
	}
	if err != nil {
		return err
	}
	for i := range n {
		if out.ids != nil {
			next[i] = int32(out.ids[i])
		} else {
			next[i] = int32(out.singles[i])
		}
	}
	copy(logp, out.logp[:n])
	copy(entropy, out.entropy[:n])
	return nil
}

// filter runs the Program with as many of the largest probabilities as top-k and
// top-p need. The run sets short, which is not 0 for rows whose k largest are too few.
func (s *tokenChooser) filter(b *binder, x sampler.Sampling, vocab int, short []float32) error {
	f := &s.filters
	topP := fill[float32](b, ports.TopP, &f.topP)
	renormalize := fill[float32](b, ports.Renormalize, &f.renormalize)
	k := fill[int64](b, ports.TopK, &f.k, 1)
	if b.err != nil {
		return b.err
	}
	topP[0], renormalize[0], k[0] = float32(x.TopP), 0, int64(min(firstK, vocab))
	if topK := x.TopK; topK > 0 {
		renormalize[0], k[0] = 1, int64(min(topK, vocab))
	}
	for {
		if err := b.run(); err != nil {
			return err
		}
		enough := true
		for _, x := range short {
			enough = enough && x == 0
		}
		if enough || x.TopK > 0 || int(k[0]) == vocab {
			return nil
		}
		k[0] = min(8*k[0], int64(vocab))
	}
}

func (s *tokenChooser) close() {
	for _, b := range s.sessions {
		closeSessions(b)
	}
	s.sessions = nil
	f, o := &s.filters, &s.outputs
	closeBuffers(&s.hidden, &s.part, &s.inverseTemperature, &s.uniforms, &f.topP, &f.renormalize, &f.k, &f.minP)
	closeBuffers(&o.next, &o.logp, &o.entropy, &o.short, &o.together)
}
