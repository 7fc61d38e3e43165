package graphtest

import (
	"math"
	"slices"

	"onering/models"
)

var ops map[string]func(c *call) []Tensor

// init fills ops, the operators by name: a literal could not have scan, which reads ops.
func init() {
	ops = map[string]func(c *call) []Tensor{
		"Add": arithmetic(func(a, b float64) float64 { return a + b }),
		"Sub": arithmetic(func(a, b float64) float64 { return a - b }),
		"Mul": arithmetic(func(a, b float64) float64 { return a * b }),
		"Div": arithmetic(func(a, b float64) float64 { return a / b }),
		"Max": arithmetic(math.Max),

		"LessOrEqual":    comparison(func(a, b float64) bool { return a <= b }),
		"GreaterOrEqual": comparison(func(a, b float64) bool { return a >= b }),

		"Identity": func(c *call) []Tensor { return []Tensor{*c.operands(1, 1)[0]} },
		"Neg":      function(numeric, func(x float64) float64 { return -x }),
		"Abs":      function(numeric, math.Abs),
		"Sign": function(numeric, func(x float64) float64 {
			switch {
			case x > 0:
				return 1
			case x < 0:
				return -1
			}
			return 0
		}),
		"Exp":        function(floating, math.Exp),
		"Log":        function(floating, math.Log),
		"Sqrt":       function(floating, math.Sqrt),
		"Reciprocal": function(floating, func(x float64) float64 { return 1 / x }),
		"Sigmoid":    function(floating, sigmoid),
		"Scan":       scan,
		"Tanh":       function(floating, math.Tanh),

		"Where": where, "Cast": cast,
		"Gemm": gemm, "MatMul": matMul, "com.microsoft.FusedMatMul": fusedMatMul,
		"Softmax": softmax, "CumSum": cumSum, "TopK": topK, "ArgMax": argMax,
		"ReduceSum":  reduce(sum),
		"ReduceMean": reduce(func(v []float64) float64 { return sum(v) / float64(len(v)) }),
		"ReduceMax":  reduce(slices.Max[[]float64]),
		"ReduceSumSquare": reduce(func(v []float64) (s float64) {
			for _, x := range v {
				s += x * x
			}
			return s
		}),
		"Shape": shape, "Reshape": reshape, "Squeeze": squeeze, "Expand": expand, "Transpose": transpose,
		"Gather": gather, "GatherND": gatherND, "ScatterND": scatterND, "Slice": slice, "Pad": pad, "Concat": concat, "Split": split,

		"RMSNormalization":                  rmsNormalization,
		"Gelu":                              gelu,
		"com.microsoft.QuickGelu":           quickGelu,
		"com.microsoft.RotaryEmbedding":     rotaryEmbedding,
		"com.microsoft.GroupQueryAttention": groupQueryAttention,
		"com.microsoft.LinearAttention":     linearAttention,
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

var (
	floating = []models.DType{models.F32, models.F64, models.F16, models.BF16}
	numeric  = append([]models.DType{models.I64, models.I32, models.U8}, floating...)
)

func zip(a, b Tensor, f func(a, b float64) float64) Tensor {
	a.checkType(numeric...)
	b.checkType(a.Type)
	dims := broadcast(a.Dims, b.Dims)
	out := zeros(a.Type, dims)
	at, bt := a.broadcastPlaces(dims), b.broadcastPlaces(dims)
	for i := range out.Data {
		out.Data[i] = f(a.Data[at[i]], b.Data[bt[i]])
	}
	return out
}

func broadcast(a, b []int) []int {
	out := make([]int, max(len(a), len(b)))
	for i := range out {
		out[i] = 1
		for _, d := range [][]int{a, b} {
			if j := i - len(out) + len(d); j >= 0 && d[j] != 1 {
				out[i] = d[j]
			}
		}
	}
	return out
}

func arithmetic(f func(a, b float64) float64) func(*call) []Tensor {
	return func(c *call) []Tensor {
		in := c.operands(2, 2)
		out := zip(*in[0], *in[1], f)
		if c.Op == "Div" && (out.Type == models.I64 || out.Type == models.I32) {
			out = out.mapped(math.Trunc)
		}
		return []Tensor{out}
	}
}

func comparison(f func(a, b float64) bool) func(*call) []Tensor {
	return func(c *call) []Tensor {
		in := c.operands(2, 2)
		out := zip(*in[0], *in[1], func(a, b float64) float64 {
			if f(a, b) {
				return 1
			}
			return 0
		})
		out.Type = models.Bool
		return []Tensor{out}
	}
}

func function(types []models.DType, f func(float64) float64) func(*call) []Tensor {
	return func(c *call) []Tensor {
		x := c.operands(1, 1)[0]
		x.checkType(types...)
		return []Tensor{x.mapped(f)}
	}
}

func where(c *call) []Tensor {
	in := c.operands(3, 3)
	cond, a, b := *in[0], *in[1], *in[2]
	cond.checkType(models.Bool)
	b.checkType(a.Type)
	dims := broadcast(cond.Dims, broadcast(a.Dims, b.Dims))
	out := zeros(a.Type, dims)
	ct, at, bt := cond.broadcastPlaces(dims), a.broadcastPlaces(dims), b.broadcastPlaces(dims)
	for i := range out.Data {
		if out.Data[i] = b.Data[bt[i]]; cond.Data[ct[i]] != 0 {
			out.Data[i] = a.Data[at[i]]
		}
	}
	return []Tensor{out}
}

// cast truncates to integers; floating-point types stay exact.
func cast(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	to := models.DType(c.int("to", 0))
	if to.Size() == 0 {
		fail("to %v", to)
	}
	out := x.mapped(func(v float64) float64 {
		switch to {
		case models.I64, models.I32, models.U8, models.I8:
			return math.Trunc(v)
		case models.Bool:
			if v != 0 {
				return 1
			}
			return 0
		}
		return v
	})
	out.Type = to
	return []Tensor{out}
}
