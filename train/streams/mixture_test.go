package streams

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/objectives"
	_ "onering/objectives/all"
	"onering/runtime"
	"onering/sampler"
	"onering/train/learn"
)

// mixed returns the third step of streams beside three rollouts, of which the second is an episode and the third is right.
func mixed(t *testing.T, list ...Stream) (*Mixture, objectives.Batch, []*Opened) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	row := func(n int) (x []float64) {
		for range n {
			x = append(x, -2*random.Float64()-0.01)
		}
		return x
	}
	var opened []*Opened
	for _, s := range list {
		s.Shape = "constant"
		x := &Opened{Stream: s}
		if s.Loss == "kl" {
			x.kl, _ = objectives.New("opd")
		}
		for i := 0; s.Data != "" && i < 5; i++ {
			x.examples = append(x.examples, runtime.NewSequence([]int32{1, 2}, []int32{int32(i), 7}))
		}
		opened = append(opened, x)
	}
	var b objectives.Batch
	var rollouts []Rollout
	step := learn.Batch{Number: 3, Live: make([]bool, 3)}
	for i, n := range []int{5, 4, 3} {
		x := Rollout{Response: sampler.Response{IDs: make([]int32, n)}, Right: i == 2}
		if i == 1 {
			x.Observed = []sampler.Observed{{At: 2, IDs: []int32{9, 9, 9}}, {At: 4, IDs: []int32{8}}}
			x.Kept = [][]int32{{0, 5}, nil, {0}, {0, 1}}
		}
		for _, s := range list {
			if s.Teacher != "" {
				x.Teachers = append(x.Teachers, row(n))
			}
		}
		all, places := x.Tokens()
		q := runtime.Sequence{Tokens: append([]int32{1, 2, 3}, all...), Kept: x.Kept}
		for _, at := range places {
			q.Scored = append(q.Scored, runtime.Span{From: 3 + at, To: 4 + at})
		}
		step.Sequences, rollouts = append(step.Sequences, q), append(rollouts, x)
		b.Trajectories = append(b.Trajectories, objectives.Trajectory{Advantage: float64(i) - 0.7, LogProb: row(n), OldLogProb: row(n), Entropy: row(n)})
	}
	return Mix(opened, step, b, rollouts, 7, 10), b, opened
}

// TestStreams: the derivatives of the mixed loss are those of its value by central differences,
// where nothing in it is taken for a constant; each stream counts its own tokens; the objective
// sees the policy's tokens alone; and a demonstration adds nothing to what is noted of rollouts.
func TestStreams(t *testing.T) {
	m, b, _ := mixed(t,
		Stream{Name: "demonstrations", Tokens: "demonstrations", Data: "x", BatchSize: 2, Loss: "ce", Weight: 0.3, Mix: true},
		Stream{Name: "environment", Tokens: "environment", Loss: "ce", Weight: 0.1},
		Stream{Name: "right", Tokens: "right", Loss: "ce", Weight: 0.2},
		Stream{Name: "forward", Tokens: "policy", Teacher: "x", Loss: "ce", Weight: 0.7})
	grpo, err := objectives.New("grpo")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	var s learn.Scores
	for i, q := range m.batch.Sequences {
		if err := q.Check(); err != nil {
			t.Fatalf("sequence %d: %v", i, err)
		}
		row := make([]float64, q.Count())
		for k := range row {
			row[k] = -2*random.Float64() - 0.01
		}
		s.LogProb, s.Entropy = append(s.LogProb, row), append(s.Entropy, slices.Clone(row))
	}
	if len(s.LogProb) != 5 || len(s.LogProb[1]) != 8 || slices.Contains(m.batch.Live, false) {
		t.Fatalf("%d sequences, %d tokens of the episode, live %v", len(s.LogProb), len(s.LogProb[1]), m.batch.Live)
	}
	value := func() learn.Loss {
		own := m.scores(s)
		for i := range b.Trajectories {
			b.Trajectories[i].LogProb = own.LogProb[i]
		}
		x := learn.Loss{Value: objectives.Loss(grpo, b, b), LogProb: b.Zeros()}
		objectives.Weights(grpo, b, x.LogProb)
		return m.loss(x, b, s)
	}
	got := value()
	for i, row := range s.LogProb {
		for k := range row {
			const h = 1e-6
			was := row[k]
			row[k] = was + h
			up := value().Value
			row[k] = was - h
			down := value().Value
			row[k] = was
			if want := (up - down) / (2 * h); math.Abs(got.LogProb[i][k]-want) > 1e-7 {
				t.Errorf("sequence %d, token %d: %v, want %v", i, k, got.LogProb[i][k], want)
			}
		}
	}
	value()
	figures := map[string]float64{}
	for _, x := range m.Record {
		figures[x.Name] = x.Value
	}
	for name, want := range map[string]float64{
		"stream/rl/tokens": 12, "stream/demonstrations/tokens": 4, "stream/environment/tokens": 4, "stream/right/tokens": 3,
		"stream/forward/tokens": 12, "stream/rl/weight": 0.7, "stream/demonstrations/weight": 0.3,
	} {
		if math.Abs(figures[name]-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", name, figures[name], want)
		}
	}
	sum := 0.7*figures["stream/rl/loss"] + 0.3*figures["stream/demonstrations/loss"] + 0.1*figures["stream/environment/loss"] +
		0.2*figures["stream/right/loss"] + 0.7*figures["stream/forward/loss"]
	if math.Abs(sum-got.Value) > 1e-12 || figures["stream/forward/loss"] <= 0 {
		t.Errorf("the losses add up to %v, not %v: %v", sum, got.Value, figures)
	}
	if own := m.ofPolicy(got.LogProb); len(own) != 3 || len(own[1]) != 4 || own[1][2] != got.LogProb[1][5] {
		t.Errorf("%v of %v", own, got.LogProb)
	}
}

// TestStreamConstants: phi weighs the gradient of a token by p (1 - p), and a KL stream has the
// derivatives of opd times its weight.
func TestStreamConstants(t *testing.T) {
	m, b, opened := mixed(t,
		Stream{Name: "demonstrations", Tokens: "demonstrations", Data: "x", BatchSize: 1, Loss: "ce", Weight: 0.5, Phi: true},
		Stream{Name: "policy", Tokens: "policy", Teacher: "x", Loss: "kl", Weight: 0.25})
	s := learn.Scores{LogProb: [][]float64{{-1, -1, -1, -0.5, -3}, {-1, -2, -1.5, -0.1}, {-0.2, -1, -2}, {-0.5, -2}}}
	s.Entropy = s.LogProb
	for i := range b.Trajectories {
		b.Trajectories[i].LogProb = s.LogProb[i]
	}
	got := m.loss(learn.Loss{LogProb: b.Zeros()}, b, s)
	for k, logp := range s.LogProb[3] {
		p := math.Exp(logp)
		if want := -0.5 / 2 * p * (1 - p); math.Abs(got.LogProb[3][k]-want) > 1e-15 {
			t.Errorf("phi: %v, want %v", got.LogProb[3][k], want)
		}
	}
	for i := range b.Trajectories {
		b.Trajectories[i].RefLogProb = m.parts[1].taught[i]
	}
	want := b.Zeros()
	objectives.Weights(opened[1].kl, b, want)
	for i, row := range want {
		for k, w := range row {
			if w *= 0.25; w == 0 || math.Abs(got.LogProb[i][k]-w) > 1e-15 {
				t.Errorf("kl: rollout %d, token %d: %v, want %v", i, k, got.LogProb[i][k], w)
			}
		}
	}
}

// TestStreamBatches: the steps of a stream take each demonstration once in a pass, in another
// order in each, and what a step takes follows from its number.
func TestStreamBatches(t *testing.T) {
	_, _, opened := mixed(t, Stream{Name: "d", Tokens: "demonstrations", Data: "x", BatchSize: 3})
	s := opened[0]
	var firsts []int32
	for n := range 10 {
		for _, q := range s.batch(n, 7) {
			firsts = append(firsts, q.Tokens[2])
		}
	}
	orders := map[string]bool{}
	for pass := range slices.Chunk(firsts, 5) {
		orders[fmt.Sprint(pass)] = true
		pass = slices.Clone(pass)
		if slices.Sort(pass); !slices.Equal(pass, []int32{0, 1, 2, 3, 4}) {
			t.Errorf("a pass takes %v", pass)
		}
	}
	if len(orders) < 3 {
		t.Errorf("the passes have the orders %v", orders)
	}
}

// TestStreamSettings: what a stream leaves open follows from what it has, a run file is written
// as it is read, and impossible streams are refused.
func TestStreamSettings(t *testing.T) {
	var list List
	if err := list.UnmarshalTOML([]map[string]any{{"data": "a.jsonl", "weight": 0.5}, {"teacher": "m", "weight": int64(1)}}); err != nil {
		t.Fatal(err)
	}
	text, err := list.MarshalTOML()
	want := `[{name = "demonstrations", tokens = "demonstrations", data = "a.jsonl", batch_size = 8, loss = "ce", weight = 0.5, schedule = "constant"}, ` +
		`{name = "policy", tokens = "policy", teacher = "m", loss = "kl", weight = 1.0, schedule = "constant"}]`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	for want, table := range map[string]map[string]any{
		`its tokens = ""`:             {"weight": 1.0},
		"its weight = 0":              {"tokens": "right"},
		`unknown key "wait"`:          {"wait": 1.0},
		"its tokens are":              {"tokens": "environment", "weight": 1.0},
		"batch_size is for":           {"tokens": "right", "batch_size": int64(2), "weight": 1.0},
		"a file of data belong":       {"tokens": "demonstrations", "weight": 1.0},
		"a teacher belong":            {"tokens": "policy", "weight": 1.0},
		`its loss "kl" needs`:         {"tokens": "right", "loss": "kl", "weight": 1.0},
		"its phi is for":              {"teacher": "m", "phi": true, "weight": 1.0},
		"needs a name":                {"name": "rl", "teacher": "m", "weight": 1.0},
		"stream.list = 1.5: is more ": {"tokens": "right", "mix": true, "weight": 1.5},
	} {
		var list List
		err := list.UnmarshalTOML([]map[string]any{table})
		if err == nil {
			err = errors.Join(list.Check(false)...)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", table, err)
		}
	}
}
