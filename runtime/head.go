package runtime

import (
	"fmt"
	"math"
	"slices"

	"onering/models"
	"onering/models/ports"
)

// headSessions compute log-probs, entropies and their gradients from the rows h [n,D] that predict scored tokens.
// They process one slice of the vocabulary after the other, which bounds the memory of the logits.
type headSessions struct {
	target *Binding
	// products are the Programs of the forms that passes have needed.
	products map[models.HeadForm]*headProducts
	slices   []headSlice

	dNormed buffer // dL/dh [n,D], summed over the slices
	// dL/dlogp, dL/dentropy and the entropies, each [n,1]. The last two are used only with EntropyGradient.
	dLogProb, dEntropy, entropy buffer
	// Places of the tokens' logits in a slice, int64 [n,2], and their dL/dlogp [n].
	targetPlaces, targetGrads buffer
	// The sets from which tokens were drawn, as far as they are in a slice; see ports.KeptAll.
	keptAll, keptPlaces, keptOnes buffer
}

// headProducts are the Programs of the head that multiply by the whole head.
type headProducts struct{ forward, backward *Binding } // backward is nil with ScoreOnly

// A headSlice is a range of rows of the head's matrix and of its gradient. The gradient is nil if
// no weights are trained.
type headSlice struct{ rows, grad *Value }

// openHead loads the Programs of the head for the form that most passes need and cuts the head into slices.
func (l *Learner) openHead() error {
	e := l.env
	h := &headSessions{products: map[models.HeadForm]*headProducts{}, dNormed: e.buffer(models.F32),
		dLogProb: e.buffer(models.F32), dEntropy: e.buffer(models.F32),
		entropy: e.buffer(models.F32), targetPlaces: hostBuffer(models.I64), targetGrads: hostBuffer(models.F32),
		keptAll: hostBuffer(models.F32), keptPlaces: hostBuffer(models.I64), keptOnes: hostBuffer(models.F32)}
	l.head = h
	products, err := h.productsOf(l, models.HeadForm{EntropyGradient: l.options.EntropyGradient})
	if err != nil {
		return err
	}
	s := products.forward.s
	return l.sliceHead(s.ports[input][s.index[input][ports.HeadSlice]].DType)
}

// portType returns the element type of a Program's input.
func portType(p models.Program, name string) models.DType {
	i := slices.IndexFunc(p.Inputs, func(q models.Port) bool { return q.Name == name })
	return p.Inputs[i].DType
}

// headForm is the form of the head's Programs for a pass: they return logits or take them (Full), take an entropy
// gradient, read sets of kept tokens, or return sums of squares.
func (p *Pass) headForm(a *activations) models.HeadForm {
	return models.HeadForm{Full: a.keepsLogits, EntropyGradient: p.learner.options.EntropyGradient, Kept: p.restricted, Squares: p.SumSquares != nil}
}

// productsOf returns the head's Programs of a form. It loads them at the first call, and target, which all forms share.
func (s *headSessions) productsOf(l *Learner, form models.HeadForm) (*headProducts, error) {
	if h := s.products[form]; h != nil {
		return h, nil
	}
	forward, target, backward, err := l.arch().Head(form)
	if err != nil {
		return nil, err
	}
	if s.target == nil {
		if s.target, err = loadBinding(l.env, target); err != nil {
			return nil, err
		}
		if err := s.target.Input(ports.HeadSlice, l.ring.arena.value(l.geometry.Head, portType(target, ports.HeadSlice))); err != nil {
			return nil, err
		}
	}
	h := &headProducts{}
	if h.forward, err = loadBinding(l.env, forward); err != nil {
		return nil, err
	}
	if !l.options.ScoreOnly && !form.Squares { // headBackward asks for the form without Squares
		if h.backward, err = loadBinding(l.env, backward); err != nil {
			closeSessions(h.forward)
			return nil, err
		}
	}
	s.products[form] = h
	return h, nil
}

// sliceHead cuts the head, in the type that Programs read, and its gradient into slices of HeadRows rows.
func (l *Learner) sliceHead(d models.DType) error {
	g := l.geometry
	head, ok := l.ring.Weights.Layout.Find(g.Head)
	if !ok {
		return fmt.Errorf("runtime: the layout has no tensor %q", g.Head)
	}
	for from := 0; from < g.Vocab; from += l.options.HeadRows {
		rows := min(l.options.HeadRows, g.Vocab-from)
		first := head.Offset + from*g.Hidden
		l.head.slices = append(l.head.slices, headSlice{}) // before its Values, so that close frees those made
		s := &l.head.slices[len(l.head.slices)-1]
		var err error
		if s.rows, err = l.ring.arena.viewIn(d, first, int64(rows), int64(g.Hidden)); err != nil {
			return err
		}
		if !l.trainsWeights() {
			continue
		}
		if s.grad, err = l.gradients.view(first, int64(rows), int64(g.Hidden)); err != nil {
			return err
		}
	}
	return nil
}

func (h *headSessions) close() {
	closeSessions(h.target)
	for _, p := range h.products {
		closeSessions(p.forward, p.backward)
	}
	for _, s := range h.slices {
		closeValues(s.rows, s.grad)
	}
	closeBuffers(&h.dNormed, &h.dLogProb, &h.dEntropy, &h.entropy, &h.targetPlaces, &h.targetGrads, &h.keptAll, &h.keptPlaces, &h.keptOnes)
}

// headForward computes the log-probs and entropies of the scored tokens. It takes one slice of the vocabulary after
// the other: each run reads the log-sum-exp of the logits so far and their mean under the softmax from one buffer,
// and writes them with this slice's to the other. A last Program computes the logits of the tokens themselves. With
// forBackward, a stores the logits of all slices if it has room for them.
func (p *Pass) headForward(a *activations, forBackward bool) error {
	head, b, rows := p.learner.head, p.packed, int64(p.scored)
	if err := b.logSumExp[0].filled(-1e30, rows, 1); err != nil { // of no logits: a finite number in place of -infinity
		return err
	}
	if err := b.meanLogit[0].filled(0, rows, 1); err != nil {
		return err
	}
	if p.SumSquares != nil {
		if err := b.logSquares[0].filled(-1e30, rows, 1); err != nil {
			return err
		}
	}
	products, err := head.productsOf(p.learner, p.headForm(a))
	if err != nil {
		return err
	}
	bind := products.forward.begin()
	bind.in(ports.Normed, a.normedRows.value, nil)
	p.learner.norm.bindTemperature(bind, p.temperature)
	first := int32(0)
	for i, s := range head.slices {
		head.bindKept(bind, p, first, int32(s.rows.shape[0])) // the sets of ids from which tokens were drawn
		first += int32(s.rows.shape[0])
		if a.keepsLogits {
			logits, err := a.logitsOf(i, forBackward).resize(rows, s.rows.shape[0])
			bind.out(ports.Logits, logits, err)
		}
		now, next := i%2, (i+1)%2
		bind.in(ports.HeadSlice, s.rows, nil)
		bind.in(ports.LogSumExp, b.logSumExp[now].value, nil)
		bind.in(ports.MeanLogit, b.meanLogit[now].value, nil)
		z, err := b.logSumExp[next].resize(rows, 1)
		bind.out(ports.LogSumExpOut, z, err)
		u, err := b.meanLogit[next].resize(rows, 1)
		bind.out(ports.MeanLogitOut, u, err)
		if p.SumSquares != nil {
			bind.in(ports.LogSquares, b.logSquares[now].value, nil)
			q, err := b.logSquares[next].resize(rows, 1)
			bind.out(ports.LogSquaresOut, q, err)
		}
		if err := bind.run(); err != nil {
			return err
		}
	}
	bind = head.target.begin()
	bind.in(ports.Normed, a.normedRows.value, nil)
	p.learner.norm.bindTemperature(bind, p.temperature)
	bind.in(ports.Targets, b.targets.value, nil)
	logit, err := b.targetLogit.resize(rows, 1)
	bind.out(ports.TargetLogit, logit, err)
	if err := bind.run(); err != nil {
		return err
	}
	return p.setLogProbs()
}

// lastSums returns the index of the running sums that hold the results of the last slice.
func (h *headSessions) lastSums() int { return len(h.slices) % 2 }

// setLogProbs fills LogProb and Entropy, and SumSquares if it is not nil, from the results of the head: with z the
// log-sum-exp, u the mean logit and q the log-sum-exp of twice the logits, they are logit-z, z-u and exp(q-2z).
func (p *Pass) setLogProbs() error {
	last := p.learner.head.lastSums()
	var results [4][]float32
	for i, b := range []*buffer{&p.packed.logSumExp[last], &p.packed.meanLogit[last], &p.packed.targetLogit, &p.packed.logSquares[last]} {
		if i == 3 && p.SumSquares == nil {
			break
		}
		var err error
		if results[i], err = pulled[float32](b); err != nil {
			return err
		}
	}
	z, u, logit, q := results[0], results[1], results[2], results[3]
	i := 0 // of the scored token among those of all sequences
	for s := range p.LogProb {
		for t := range p.LogProb[s] {
			// Without the bounds, rounding can give an almost certain token a log-prob
			// above 0 and an entropy below 0.
			p.LogProb[s][t] = min(logit[i]-z[i], 0)
			p.Entropy[s][t] = max(z[i]-u[i], 0)
			if q != nil {
				p.SumSquares[s][t] = float32(math.Exp(min(float64(q[i])-2*float64(z[i]), 0)))
			}
			i++
		}
	}
	return nil
}

// headBackward returns the gradient of the rows that predict scored tokens, before the final norm, and adds to the
// head's gradient. It takes slice by slice, whose parts of the rows' gradient add up in place. setLossGradients comes
// first.
func (p *Pass) headBackward() (*Value, error) {
	l, a, head := p.learner, p.activations, p.learner.head
	dh, err := head.dNormed.resize(int64(p.scored), int64(l.geometry.Hidden))
	if err != nil {
		return nil, err
	}
	if err := dh.memory.Zero(dh.data, dh.bytes); err != nil {
		return nil, err
	}
	form := p.headForm(a)
	form.Squares = false // these change only what forward returns
	products, err := head.productsOf(l, form)
	if err != nil {
		return nil, err
	}
	bind := products.backward.begin()
	bind.in(ports.Normed, a.normedRows.value, nil)
	l.norm.bindTemperature(bind, p.temperature)
	bind.in(ports.LogSumExp, p.packed.logSumExp[head.lastSums()].value, nil)
	bind.in(ports.LogProbGrad, head.dLogProb.value, nil)
	if l.options.EntropyGradient {
		entropies, v, err := sized[float32](&head.entropy, int64(p.scored), 1)
		bind.in(ports.EntropyGrad, head.dEntropy.value, nil)
		bind.in(ports.Entropy, v, err)
		if bind.failed != nil {
			return nil, bind.failed
		}
		i := 0
		for _, s := range p.Entropy {
			i += copy(entropies[i:], s)
		}
		if err := head.entropy.push(); err != nil {
			return nil, err
		}
	}
	bind.in(ports.NormedGrad, dh, nil)
	bind.out(ports.NormedGradOut, dh, nil) // in place: each slice of the vocabulary adds its part
	first := int64(0)                      // id of the slice's first token
	for i, s := range head.slices {
		head.bindTargets(bind, elements[int64](&p.packed.targets), first, s.rows.shape[0])
		head.bindKept(bind, p, int32(first), int32(s.rows.shape[0]))
		first += s.rows.shape[0]
		bind.in(ports.HeadSlice, s.rows, nil)
		if a.keepsLogits {
			bind.in(ports.Logits, a.logits[i].value, nil)
		}
		if s.grad != nil {
			bind.in(ports.HeadSliceGrad, s.grad, nil)
			bind.out(ports.HeadSliceGradOut, s.grad, nil)
		}
		if err := bind.run(); err != nil {
			return nil, err
		}
	}
	return l.norm.runBackward(a.scoredRows.value, dh, p.temperature)
}

// bindTargets binds for each scored token of ids y where its logit is among those of the n tokens from first on, and
// its dL/dlogp; a token of another slice has place 0 and a gradient of 0.
func (h *headSessions) bindTargets(b *Binding, y []int64, first, n int64) {
	rows := int64(len(y))
	at, d := fill[int64](b, ports.TargetPlaces, &h.targetPlaces, rows, 2), fill[float32](b, ports.TargetGrad, &h.targetGrads, rows)
	if b.failed != nil {
		return
	}
	w := elements[float32](&h.dLogProb)
	for r, id := range y {
		at[2*r], at[2*r+1], d[r] = int64(r), 0, 0
		if i := id - first; i >= 0 && i < n {
			at[2*r+1], d[r] = i, w[r]
		}
	}
}

// bindKept binds the sets from which tokens were drawn (Sequence.Kept), if the Program takes them: places (row,
// id-first) of the ids among the n tokens from first on, with a one for each, and a one for each row without a set.
// The first place is (0, 0) with a one of 0, since there has to be one.
func (h *headSessions) bindKept(b *Binding, p *Pass, first, n int32) {
	every := fillIf[float32](b, ports.KeptAll, &h.keptAll, int64(p.scored), 1)
	if every == nil {
		return
	}
	places, row := []int64{0, 0}, 0
	for _, s := range p.sequences {
		for t := range s.Count() {
			var set []int32
			if s.Kept != nil {
				set = s.Kept[t]
			}
			every[row] = float32(1 - min(len(set), 1)) // 1 if the set is empty: it stands for all tokens
			from, _ := slices.BinarySearch(set, first)
			for _, id := range set[from:] {
				if id >= first+n {
					break
				}
				places = append(places, int64(row), int64(id-first))
			}
			row++
		}
	}
	count := int64(len(places) / 2)
	copy(fill[int64](b, ports.KeptPlaces, &h.keptPlaces, count, 2), places)
	for i, ones := 0, fill[float32](b, ports.KeptOnes, &h.keptOnes, count); i < len(ones); i++ {
		ones[i] = float32(min(i, 1)) // 0 for the first place
	}
}

// normSessions run the final norm on the rows [n,D] that predict scored tokens.
// The norm also divides by the sampling temperature.
type normSessions struct {
	forward, backward  *Binding // backward is nil with ScoreOnly
	inverseTemperature buffer
	dx                 buffer // the gradient of the norm's input
}

// openNorm loads the Programs of the final norm, before the head. They also multiply its output, and so the logits, by
// 1/temperature; where the head caps the logits it does that itself, after the cap.
func (l *Learner) openNorm() error {
	forward, backward, err := l.arch().Norm()
	if err != nil {
		return err
	}
	l.norm = &normSessions{inverseTemperature: hostBuffer(models.F32), dx: l.env.buffer(models.F32)} // a run copies the one number
	if l.norm.forward, err = loadBinding(l.env, forward); err != nil {
		return err
	}
	const noLayer = "" // the prefix of names
	if err := l.bindWeights(l.norm.forward, noLayer); err != nil || l.options.ScoreOnly {
		return err
	}
	if l.norm.backward, err = loadBinding(l.env, backward); err != nil {
		return err
	}
	return l.bindWeights(l.norm.backward, noLayer)
}

// runForward makes h the norm of x.
func (s *normSessions) runForward(x *Value, h *buffer, temperature float64) error {
	b := s.forward.begin()
	b.in(ports.Stream, x, nil)
	s.bindTemperature(b, temperature)
	v, err := h.resize(x.shape...)
	b.out(ports.Normed, v, err)
	return b.run()
}

// runBackward returns dL/dx, given dL/dh.
func (s *normSessions) runBackward(x, dh *Value, temperature float64) (*Value, error) {
	b := s.backward.begin()
	b.in(ports.Stream, x, nil)
	s.bindTemperature(b, temperature)
	b.in(ports.NormedGrad, dh, nil)
	dx, err := s.dx.resize(x.shape...)
	b.out(ports.StreamGradOut, dx, err)
	return dx, b.run()
}

// bindTemperature binds 1/temperature for a Program of the norm or of the head that takes it.
func (s *normSessions) bindTemperature(b *Binding, temperature float64) {
	if inverse := fillIf[float32](b, ports.InverseTemperature, &s.inverseTemperature); inverse != nil {
		inverse[0] = float32(1 / temperature)
	}
}

func (s *normSessions) close() {
	closeSessions(s.forward, s.backward)
	closeBuffers(&s.inverseTemperature, &s.dx)
}
