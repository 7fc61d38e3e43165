package decoder

import (
	"cmp"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// Norm builds norm.forward, h = RMSNorm(x) * inv_temperature for x [R,D], and
// norm.backward, which takes dh and the running gradient of the weight. The
// temperature scales h and so the logits: log-probs are those of the policy
// that samples. With a LogitCap the head takes inv_temperature, after the cap.
func (a Architecture) Norm() (forward, backward models.Program, err error) {
	name := a.Geometry().Norm
	build := func(g *graph.Graph) (x, w, h *graph.Node) {
		x, w = g.Float(ports.Stream, "R", a.Hidden), parameter(g, name, models.F32, a.Hidden)
		h = a.finalNorm(x, w)
		if a.Block.LogitCap == 0 {
			h = graph.Mul(h, g.Float(ports.InverseTemperature))
		}
		return x, w, h
	}
	forward, err = graph.Build("norm.forward", func(g *graph.Graph) {
		_, _, h := build(g)
		g.Output(ports.Normed, h)
	})
	backward, failed := graph.Build("norm.backward", func(g *graph.Graph) {
		a.setProvider(g)
		x, w, h := build(g)
		dh := g.Float(ports.NormedGrad, "R", a.Hidden)
		if a.Adapter != nil { // the norm's weight is not trained
			g.Output(ports.StreamGradOut, graph.Gradient([]*graph.Node{h}, []*graph.Node{dh}, []*graph.Node{x})[0])
			return
		}
		sum := runningGradient(g, w)
		d := graph.Gradient([]*graph.Node{h}, []*graph.Node{dh}, []*graph.Node{x, w})
		g.Output(ports.StreamGradOut, d[0])
		addGradient(g, w, sum, d[1])
	})
	return forward, backward, cmp.Or(err, failed)
}

// finalNorm is the norm before the head. The LogitScale, and 1/c of a LogitCap c, scale it in
// place of the logits.
func (a Architecture) finalNorm(x, w *graph.Node) *graph.Node {
	h, k := graph.RMSNorm(x, a.plusOne(w), a.RMSEps), cmp.Or(a.Block.LogitScale, 1)/cmp.Or(a.Block.LogitCap, 1)
	if k != 1 {
		h = graph.Mul(h, x.Graph().Scalar(k))
	}
	return h
}

// cappedLogits is the logits that a LogitCap makes of the products x of the head with states, and
// their slope; x and nil without one.
func (a Architecture) cappedLogits(x, inverseTemperature *graph.Node) (logits *graph.Node, slope func() *graph.Node) {
	c := a.Block.LogitCap
	if c == 0 {
		return x, nil
	}
	g := x.Graph()
	size := graph.Mul(inverseTemperature, g.Scalar(c))
	logits = graph.Mul(graph.Tanh(x), size)
	return logits, func() *graph.Node { // size (1 - tanh^2), by the logits, which may be stashed
		t := graph.Max(graph.Div(logits, size), g.Scalar(-1)) // logits that are not kept are lower
		return graph.Mul(graph.Sub(g.Scalar(1), graph.Mul(t, t)), size)
	}
}

// temperature declares 1/temperature for the head, which takes it only with a LogitCap.
func (a Architecture) temperature(g *graph.Graph) *graph.Node {
	if a.Block.LogitCap == 0 {
		return nil
	}
	return g.Float(ports.InverseTemperature)
}

// Head builds the log-softmax over the vocabulary in slices of v rows of the
// head E, so that no [R,V] logits are ever held and each row of dE is written
// once a pass.
//
// head.forward takes h [R,D], E [v,D] and the running log-sum-exp z and mean
// logit u [R] of the slices before (z = -1e30, u = 0 for the first); it
// returns both with this slice. At the end logp = target - z and the entropy
// is z - u.
//
// head.target takes h, the whole E [V,D] and the tokens y [R] and returns
// their logits [R].
//
// head.backward takes h, E [v,D], z [R], w = dL/dlogp [R], the running dh and
// dE, and adds the slice's share: dlogits = w (onehot(y) - p). Which of the tokens y
// are in the slice, and where, it takes from the caller. The difference is taken before
// the products, since of a token that is almost certain little is left of it: sums of
// w h and of -w p h apart would leave their rounding. With
// form.Full forward returns the slice's logits [R,v] as well, and backward takes
// them in place of computing them again. With
// form.EntropyGradient it takes also v = dL/dentropy and the entropy [R]:
// dlogits = w onehot(y) - p (w + v (logit - z + entropy)). In float16 the caller
// multiplies w and v by a scale of the loss: all gradients are then that much
// larger; the gradients' norm and the optimizer's update divide by it. Where there
// is an adapter, nothing has a dE.
//
// With form.Kept a row is a distribution over a set of tokens: all other logits become
// -1e30, so that their probabilities and gradients are 0. With form.Squares forward also
// takes and returns the log-sum-exp q of twice the logits: e^(q - 2z) is the sum of the
// squared probabilities.
func (a Architecture) Head(form models.HeadForm) (forward, target, backward models.Program, err error) {
	d, full, name := a.Hidden, form.Full, "head"
	if form.Kept {
		name = "head.kept" // programs of other names are not replaced by a device's operators
	}
	if form.Squares {
		name += ".squares"
	}
	forward, err = graph.Build(name+".forward", func(g *graph.Graph) {
		a.setProvider(g)
		h, e := g.Float(ports.Normed, "R", d), g.Input(ports.HeadSlice, a.headType(), graph.Dims("v", d))
		z0, u0 := g.Float(ports.LogSumExp, "R", 1), g.Float(ports.MeanLogit, "R", 1)
		logits, _ := a.cappedLogits(a.logits(models.Direct, h, e), a.temperature(g))
		if form.Kept {
			logits = keptLogits(g, logits)
		}
		m := sampleParts{a}.largest(logits)
		p := graph.Exp(graph.Sub(logits, m))
		sum := graph.ReduceSum(p, -1)
		u := graph.Div(graph.ReduceSum(graph.Mul(p, logits), -1), sum)
		z := graph.Add(m, graph.Log(sum))
		// Two log-sum-exps join as log(e^z0 + e^z), two means by their shares.
		both := logAddExp(z0, z)
		mean := graph.Add(graph.Mul(u0, graph.Exp(graph.Sub(z0, both))), graph.Mul(u, graph.Exp(graph.Sub(z, both))))
		g.Output(ports.LogSumExpOut, both)
		g.Output(ports.MeanLogitOut, mean)
		if full {
			g.Use(ports.Logits, models.Use{Role: models.Kept})
			g.Output(ports.Logits, logits)
		}
		if form.Squares {
			q := graph.Add(graph.Add(m, m), graph.Log(graph.ReduceSum(graph.Mul(p, p), -1)))
			g.Output(ports.LogSquaresOut, logAddExp(g.Float(ports.LogSquares, "R", 1), q))
		}
	})
	target, wrong := graph.Build("head.target", func(g *graph.Graph) {
		h, e := g.Float(ports.Normed, "R", d), g.Input(ports.HeadSlice, a.headType(), graph.Dims(a.Vocab, d))
		y := g.Input(ports.Targets, models.I64, graph.Dims("R"))
		product := graph.ReduceSum(graph.Mul(toFloat32(graph.Cast(h, a.headType())), toFloat32(graph.Gather(e, y))), -1)
		logit, _ := a.cappedLogits(product, a.temperature(g))
		g.Output(ports.TargetLogit, logit)
	})
	name = "head"
	if form.Kept && !full { // a full one reads logits of which those that are not kept are -1e30 already
		name = "head.kept"
	}
	backward, failed := graph.Build(name+".backward", func(g *graph.Graph) { a.headBackward(g, form) })
	return forward, target, backward, cmp.Or(err, wrong, failed)
}

// logAddExp is log(e^a + e^b).
func logAddExp(a, b *graph.Node) *graph.Node {
	return graph.Add(graph.Max(a, b), graph.Log(graph.Add(a.Graph().Scalar(1), graph.Exp(graph.Neg(graph.Abs(graph.Sub(a, b)))))))
}

// keptLogits is logits [R,v] with -1e30 in place of those that are not kept.
func keptLogits(g *graph.Graph, logits *graph.Node) *graph.Node {
	at, ones := g.Input(ports.KeptPlaces, models.I64, graph.Dims("K", 2)), g.Float(ports.KeptOnes, "K")
	set := graph.AddElements(graph.ExpandLike(g.Float(ports.KeptAll, "R", 1), logits), at, ones)
	return graph.Where(graph.GreaterOrEqual(set, g.Scalar(1)), logits, g.Scalar(-1e30))
}

// headBackward declares head.backward of Head: it adds the gradients of the final hidden states h [R,D] and, without an
// adapter, of a slice e [v,D] of the output matrix to the running ones, from those of the R rows' log-probs and
// entropies. dlogits is p weight, to which targetGrad, w of a target in the slice, is added at the targets' places.
func (a Architecture) headBackward(g *graph.Graph, form models.HeadForm) {
	a.setProvider(g)
	d := a.Hidden
	h, e := g.Float(ports.Normed, "R", d), g.Input(ports.HeadSlice, a.headType(), graph.Dims("v", d))
	z, w := g.Float(ports.LogSumExp, "R", 1), g.Float(ports.LogProbGrad, "R", 1)
	dh := g.Float(ports.NormedGrad, "R", d)
	var de *graph.Node // the running gradient of E, if there is one
	if a.Adapter == nil {
		de = g.Float(ports.HeadSliceGrad, "v", d)
	}
	logits, slope := a.cappedLogits(a.logits(models.Direct, h, e), a.temperature(g))
	if form.Full {
		g.Use(ports.Logits, models.Use{Role: models.Kept})
		logits.Stash(g.Float(ports.Logits, "R", "v")) // those of forward take their place
	} else if form.Kept {
		logits = keptLogits(g, logits)
	}
	logp := graph.Sub(logits, z)
	weight := graph.Neg(w)
	if form.EntropyGradient {
		v, entropy := g.Float(ports.EntropyGrad, "R", 1), g.Float(ports.Entropy, "R", 1)
		weight = graph.Sub(weight, graph.Mul(v, graph.Add(logp, entropy)))
	}
	at, targetGrad := g.Input(ports.TargetPlaces, models.I64, graph.Dims("R", 2)), g.Float(ports.TargetGrad, "R")
	dlogits := graph.AddElements(graph.Mul(graph.Exp(logp), weight), at, targetGrad)
	if slope != nil {
		dlogits = graph.Mul(dlogits, slope())
	}
	if a.compute() == models.BF16 { // bfloat16 has float32's range, and the gradient needs no more digits
		short := a.toComputeType(dlogits)
		g.OutputOnto(ports.NormedGradOut, graph.AddTo(dh, graph.Gemm(short, a.toComputeType(e), nil, false, false)), ports.NormedGrad)
		if de != nil {
			g.OutputOnto(ports.HeadSliceGradOut, graph.AddTo(de, graph.Gemm(short, a.toComputeType(h), nil, true, false)), ports.HeadSliceGrad)
		}
		return
	}
	g.OutputOnto(ports.NormedGradOut, graph.Gemm(dlogits, e, dh, false, false), ports.NormedGrad)
	if de != nil {
		g.OutputOnto(ports.HeadSliceGradOut, graph.Outer(dlogits, h, de), ports.HeadSliceGrad)
	}
}
