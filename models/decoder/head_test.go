package decoder_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
)

// logSoftmax is the oracle: log-probs of logits in float64.
func logSoftmax(logits []float64) []float64 {
	top, total := math.Inf(-1), 0.0
	for _, v := range logits {
		top = math.Max(top, v)
	}
	for _, v := range logits {
		total += math.Exp(v - top)
	}
	out := make([]float64, len(logits))
	for i, v := range logits {
		out[i] = v - top - math.Log(total)
	}
	return out
}

func entropyOf(logp []float64) (h float64) {
	for _, l := range logp {
		if l > math.Inf(-1) {
			h -= math.Exp(l) * l
		}
	}
	return h
}

// TestHead runs the head over slices of the vocabulary, of different sizes, and
// compares log-probs, entropies and their gradient with a plain log-softmax.
func TestHead(t *testing.T) {
	for _, b := range builds {
		for _, form := range []models.HeadForm{{}, {Full: true}, {Kept: true}, {Full: true, Kept: true}, {Squares: true}, {Kept: true, Squares: true}} {
			testHead(t, b, form)
			form.EntropyGradient = true
			testHead(t, b, form)
		}
	}
}

// keptSets are the tokens over which the rows of TestHead are distributions with
// HeadForm.Kept; nil is the whole vocabulary.
var keptSets = [][]int{{3, 4, 9, 22}, nil, {22}, {1, 7, 8}, {0, 6, 9}}

// keptInputs are the inputs that a slice of the vocabulary has with HeadForm.Kept.
func keptInputs(in map[string]graphtest.Tensor, from, to int) {
	every, places := graphtest.Zeros(len(keptSets), 1), []int{0, 0}
	ones := []float64{0}
	for i, set := range keptSets {
		if set == nil {
			every.Data[i] = 1
		}
		for _, id := range set {
			if id >= from && id < to {
				places, ones = append(places, i, id-from), append(ones, 1)
			}
		}
	}
	in["every"], in["set"], in["ones"] = every, graphtest.Ints(places, len(ones), 2), graphtest.Floats(ones, len(ones))
}

// targets returns the places of the logits of the tokens y in a slice of the vocabulary,
// and dL/dlogp of the tokens in the slice.
func targets(y []int, w graphtest.Tensor, from, to int) (at, dlogit graphtest.Tensor) {
	at, dlogit = graphtest.Ints(make([]int, 2*len(y)), len(y), 2), graphtest.Zeros(len(y))
	for i, id := range y {
		at.Data[2*i] = float64(i)
		if id >= from && id < to {
			at.Data[2*i+1], dlogit.Data[i] = float64(id-from), w.Data[i]
		}
	}
	return at, dlogit
}

func testHead(t *testing.T, kind build, form models.HeadForm) {
	const R = 5
	c := kind.of(small())
	f, tg, b, err := c.Head(form)
	forward, target, backward := graphtest.Loaded(t, f, err), graphtest.Loaded(t, tg, err), graphtest.Loaded(t, b, err)
	r := rand.New(rand.NewPCG(5, 6))
	h, head := graphtest.Normal(r, R, c.Hidden), graphtest.Normal(r, c.Vocab, c.Hidden)
	w, v := graphtest.Normal(r, R, 1), graphtest.Normal(r, R, 1)
	if !form.EntropyGradient {
		clear(v.Data)
	}
	y := []int{3, 0, 22, 7, 9}

	// Direct: loss = sum w logp(y) + v entropy.
	var squares []float64
	oracle := func() (logp, entropy []float64, loss float64) {
		squares = nil
		for i := range R {
			logits := make([]float64, c.Vocab)
			for j := range logits {
				for k, x := range h.Row(i) {
					logits[j] += x * head.Row(j)[k]
				}
				if form.Kept && keptSets[i] != nil && !slices.Contains(keptSets[i], j) {
					logits[j] = math.Inf(-1)
				}
			}
			l := logSoftmax(logits)
			logp, entropy = append(logp, l[y[i]]), append(entropy, entropyOf(l))
			squares = append(squares, 0)
			for _, x := range l {
				squares[i] += math.Exp(2 * x)
			}
			loss += w.Data[i]*logp[i] + v.Data[i]*entropy[i]
		}
		return logp, entropy, loss
	}
	wantLogp, wantEntropy, _ := oracle()

	parts := [][2]int{{0, 7}, {7, 8}, {8, 23}}
	slice := func(from, to int) graphtest.Tensor {
		return graphtest.Floats(head.Data[from*c.Hidden:to*c.Hidden], to-from, c.Hidden)
	}
	var kept []graphtest.Tensor
	z, u, q := graphtest.Zeros(R, 1), graphtest.Zeros(R, 1), graphtest.Zeros(R, 1)
	for i := range z.Data {
		z.Data[i], q.Data[i] = -1e30, -1e30
	}
	for _, s := range parts {
		in := map[string]graphtest.Tensor{"h": h, "E": slice(s[0], s[1]), "z": z, "u": u}
		if form.Kept {
			keptInputs(in, s[0], s[1])
		}
		if form.Squares {
			in["q"] = q
		}
		out := run(t, forward, in)
		z, u, q = out["z_out"], out["u_out"], out["q_out"]
		kept = append(kept, out["logits"])
	}
	logit := run(t, target, map[string]graphtest.Tensor{"h": h, "E": head, "y": graphtest.Ints(y)})["logit"]
	entropy := graphtest.Zeros(R, 1)
	for i := range R {
		entropy.Data[i] = z.Data[i] - u.Data[i]
		if got := logit.Data[i] - z.Data[i]; math.Abs(got-wantLogp[i]) > 1e-12 {
			t.Errorf("logp[%d] = %v, want %v", i, got, wantLogp[i])
		}
		if math.Abs(entropy.Data[i]-wantEntropy[i]) > 1e-12 {
			t.Errorf("entropy[%d] = %v, want %v", i, entropy.Data[i], wantEntropy[i])
		}
		if form.Squares {
			if got := math.Exp(q.Data[i] - 2*z.Data[i]); math.Abs(got-squares[i]) > 1e-12 {
				t.Errorf("sum of squares[%d] = %v, want %v", i, got, squares[i])
			}
		}
	}

	dh, dhead := graphtest.Zeros(R, c.Hidden), graphtest.Zeros(c.Vocab, c.Hidden)
	for i, s := range parts {
		in := map[string]graphtest.Tensor{"h": h, "E": slice(s[0], s[1]), "z": z, "w": w, "dh": dh,
			"dE": graphtest.Floats(dhead.Data[s[0]*c.Hidden:s[1]*c.Hidden], s[1]-s[0], c.Hidden)}
		in["at"], in["dlogit"] = targets(y, w, s[0], s[1])
		if form.EntropyGradient {
			in["v"], in["entropy"] = v, entropy
		}
		if form.Full {
			in["logits"] = kept[i]
		} else if form.Kept {
			keptInputs(in, s[0], s[1])
		}
		out := run(t, backward, in)
		dh = out["dh_out"]
		copy(dhead.Data[s[0]*c.Hidden:], out["dE_out"].Data)
	}
	loss := func() float64 { _, _, l := oracle(); return l }
	check := func(name string, d, x graphtest.Tensor) {
		for i := range x.Data {
			want := graphtest.Derivative(loss, &x.Data[i])
			if !(math.Abs(d.Data[i]-want) <= 1e-8*(1+math.Abs(want))) {
				t.Errorf("%+v: %s[%d] = %v, want %v", form, name, i, d.Data[i], want)
			}
		}
	}
	check("dh", dh, h)
	check("dE", dhead, head)
}

// TestHeadExtremes: logits far apart and far from 0 give finite values in float32, whichever slice holds the largest.
func TestHeadExtremes(t *testing.T) {
	for _, b := range builds {
		testHeadExtremes(t, b)
	}
}

func testHeadExtremes(t *testing.T, kind build) {
	c := kind.of(small())
	c.Hidden = 1
	f, _, _, err := c.Head(models.HeadForm{})
	forward := graphtest.Loaded(t, f, err)
	forward.Single = true
	for _, logits := range [][]float64{
		{1000, -1000, 0, 1}, {-1000, 0, 1000, 999}, {-80, -90, -100, -110}, {0, 0, 0, 0}, {1e-3, 0, 5e4, -5e4},
	} {
		z, u := graphtest.Floats([]float64{-1e30}, 1, 1), graphtest.Zeros(1, 1)
		for _, half := range [][]float64{logits[:2], logits[2:]} {
			out := run(t, forward, map[string]graphtest.Tensor{"h": graphtest.Floats([]float64{1}, 1, 1),
				"E": graphtest.Floats(half, 2, 1), "z": z, "u": u})
			z, u = out["z_out"], out["u_out"]
		}
		logp := logSoftmax(logits)
		wantZ, wantH := logits[0]-logp[0], entropyOf(logp)
		if gap := math.Abs(z.Data[0] - wantZ); !(gap <= 1e-6*math.Max(1, math.Abs(wantZ))) {
			t.Errorf("%v: log-sum-exp %v, want %v", logits, z.Data[0], wantZ)
		}
		if gap := math.Abs(z.Data[0] - u.Data[0] - wantH); !(gap <= 1e-6*math.Max(1, math.Abs(wantZ))) {
			t.Errorf("%v: entropy %v, want %v", logits, z.Data[0]-u.Data[0], wantH)
		}
	}
}
