package decoder

import (
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// Sample builds the graph that chooses a token for each row, or says which are the likeliest.
//
// Inputs: hidden [B,D]; the head [V,D]; inv_temperature []. Outputs: next int64 [B], logp and entropy [B], both of
// softmax(logits*inv_temperature) over the whole vocabulary. Draw takes uniforms float32 [B]: next is the first id
// whose cumulative probability exceeds it. Candidates takes k int64 [1] and has, in place of next, candidates int64
// [B,k], the likeliest ids, in descending order; logp [B,k] is theirs.
func (a Architecture) Sample(choice models.Choice, form models.Form) (models.Program, error) {
	name := [...]string{models.Draw: "sample.draw", models.Greedy: "sample.greedy", models.Candidates: "sample.candidates"}[choice]
	p, err := graph.Build(name, func(g *graph.Graph) {
		a.setProvider(g)
		hidden := g.Float(ports.Hidden, "B", a.Hidden)
		head := a.sampledHead(g)
		var logits, scaled *graph.Node
		if a.onHost() { // as training, which scales the states by the temperature before it rounds them
			inverse := g.Float(ports.InverseTemperature)
			if a.Block.LogitCap == 0 {
				hidden = graph.Mul(hidden, inverse)
			}
			logits, _ = a.cappedLogits(a.logits(form, hidden, head), inverse)
			scaled = logits
		} else {
			logits = a.logits(form, hidden, head)
			if c := a.Block.LogitCap; c != 0 {
				logits = graph.Mul(graph.Tanh(logits), g.Scalar(c)) // hidden has the factor 1/c; see finalNorm
			}
			scaled = graph.Mul(logits, g.Float(ports.InverseTemperature))
		}
		top := sampleParts{a}.largest(scaled)
		z := graph.Sub(scaled, top)
		e := graph.Exp(z)
		total := sampleParts{a}.sum(e)
		logTotal := sampleParts{a}.log(total)
		var next *graph.Node // [B,1]; nil for Candidates
		switch choice {
		case models.Candidates:
			likeliest, ids := graph.TopK(z, g.Input(ports.TopK, models.I64, graph.Dims(1)), "k")
			g.Output(ports.Candidates, ids)
			g.Output(ports.LogProb, graph.Sub(likeliest, logTotal))
		case models.Greedy:
			next = graph.Reshape(graph.ArgMax(logits), -1, 1)
		case models.Draw:
			next = sampleParts{a}.draw(e, g.Float(ports.Uniforms, "B"))
		}
		if next != nil {
			g.Output(ports.NextTokens, graph.Reshape(next, -1))
			g.Output(ports.LogProb, graph.Sub(graph.GatherRows(z, next), graph.Reshape(logTotal, -1)))
		}
		mean := graph.Div(sampleParts{a}.sum(graph.Mul(e, z)), total) // of z under the probabilities e/total
		g.Output(ports.Entropy, graph.Reshape(graph.Sub(logTotal, mean), -1))
	})
	if form != models.Direct {
		p.Options = wideOptions
	}
	return p, err
}

// sampleParts builds the parts of Sample, and parts that the head shares with it.
type sampleParts struct{ Architecture }

// log returns the logarithm of a number of each row. On a CPU the last bit of a float32
// logarithm depends on how many rows there are.
func (a sampleParts) log(x *graph.Node) *graph.Node {
	return graph.Cast(graph.Log(graph.Cast(x, models.F64)), models.F32)
}

// blocks returns the numbers of rows x [B,V] in blocks [B,V/width,width], of which the last may
// have zeros at its end.
func (a sampleParts) blocks(x *graph.Node) *graph.Node {
	width := blockWidth(a.Vocab)
	n := (a.Vocab + width - 1) / width
	return graph.Reshape(a.padLast(x, n*width), -1, n, width)
}

// sum returns the sum [B,1] of each row of x [B,V]. On a CPU a single float32 sum over a large
// vocabulary loses the many small numbers beside the large ones, so it sums blocks first.
func (a sampleParts) sum(x *graph.Node) *graph.Node {
	if a.forGPU() || a.onHost() || blockWidth(a.Vocab) == a.Vocab {
		return graph.ReduceSum(x, -1)
	}
	return graph.Reshape(graph.ReduceSum(graph.ReduceSum(a.blocks(x), -1), -2), -1, 1)
}

// draw inverts the cumulative distribution of unnormalized probabilities e [B,V] at uniforms [B]: next [B,1] is the
// first id whose cumulative sum exceeds u times the total. Sums over blocks and then inside one block are taken in
// float64: a running float32 sum over a large vocabulary is too inexact.
func (a sampleParts) draw(e, uniforms *graph.Node) *graph.Node {
	g := e.Graph()
	u := graph.Reshape(graph.Cast(uniforms, models.F64), -1, 1)
	width := blockWidth(a.Vocab)
	if width == a.Vocab {
		running := graph.CumSum(graph.Cast(e, models.F64), -1, false)
		token, _ := a.firstAbove(running, graph.Mul(u, a.total(running)))
		return token
	}
	cells := a.blocks(e)
	sums := graph.Cast(graph.Reshape(graph.ReduceSum(cells, -1), -1, cells.Shape()[1].N), models.F64)
	running := graph.CumSum(sums, -1, false)
	block, rest := a.firstAbove(running, graph.Mul(u, a.total(running))) // rest: the target within this block
	inside := graph.Cast(graph.GatherRows(cells, block), models.F64)
	token, _ := a.firstAbove(graph.CumSum(inside, -1, false), rest)
	return graph.Add(graph.Mul(block, g.Ints(int64(width))), token)
}

// firstAbove returns the index [B,1] of the first running sum [B,n] that exceeds a target, and
// the rest: the target minus the running sum before that index. If the target reaches the
// total by rounding, the first index whose sum is the total is taken, since later ones
// have probability 0. The rest is never negative, since the two numbers were compared.
func (a sampleParts) firstAbove(running, target *graph.Node) (index, rest *graph.Node) {
	total := a.total(running)
	bounds := graph.Where(graph.GreaterOrEqual(running, total), running.Graph().Double(math.MaxFloat64), running)
	passed := graph.Cast(graph.GreaterOrEqual(target, bounds), models.F64)
	index = graph.Cast(graph.ReduceSum(passed, -1), models.I64)
	return index, graph.Sub(target, a.before(running, passed, index))
}

// blockWidth is the largest divisor of vocab in [128, 1024], or 512 where
// there is none (the rest is padded); small vocabularies are one block.
func blockWidth(vocab int) int {
	if vocab <= 1024 {
		return vocab
	}
	for w := 1024; w >= 128; w-- {
		if vocab%w == 0 {
			return w
		}
	}
	return 512
}
