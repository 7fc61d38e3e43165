package rl

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/models"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// noisyCopy writes the embedded model with noise on its weights.
func noisyCopy(t *testing.T, size float64) (dir string) {
	t.Helper()
	p, err := policy.Open(runtimetest.Test(t), policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := rand.New(rand.NewPCG(4, 2))
	for i := range p.Weights.Data {
		p.Weights.Data[i] *= float32(1 + size*r.NormFloat64())
	}
	dir = filepath.Join(t.TempDir(), "model")
	if err := p.Model.Save(dir, p.Weights, models.SaveOptions{DType: models.F32, Tokenizer: p.Dir}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReference: the reference is the model of model.reference, or else the initial policy.
func TestReference(t *testing.T) {
	env := runtimetest.Test(t)
	other := noisyCopy(t, 0.05)
	trained, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	c := tiny("", 1)
	logProbs := func(l *runtime.Learner) []float32 {
		t.Helper()
		p, err := l.Forward([]runtime.Sequence{runtime.NewSequence([]int32{3, 4, 11, 12}, []int32{11, 7, 7, 14, 16, 17, 18})}, 0.9, false)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		return slices.Clone(p.LogProb[0])
	}
	scored := func(dir string) []float32 {
		t.Helper()
		p, err := policy.Open(env, policy.Options{Path: dir, DType: "float32"})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		l, err := env.NewLearner(p.Ring, runtime.LearnerOptions{ScoreOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return logProbs(l)
	}
	own, others := scored(data.Arithmetic), scored(other)
	if slices.Equal(own, others) {
		t.Fatal("both models have the same log-probs")
	}
	for dir, want := range map[string][]float32{"": own, other: others} {
		c.Model.Reference = dir
		r, err := newReference(env, c, trained)
		if err != nil {
			t.Fatal(err)
		}
		if got := logProbs(r.learner); !slices.Equal(got, want) {
			t.Errorf("reference %q: log-probs %v, want %v", dir, got, want)
		}
		r.close()
	}
	refused := func(what string) {
		t.Helper()
		r, err := newReference(env, c, trained)
		if r.close(); err == nil {
			t.Errorf("a reference with %s is taken", what)
		} else if !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want one of %s", err, what)
		}
	}
	c.Model.Reference = other
	c.Rollout.MaxNewTokens = 100
	refused("max_position_embeddings is 64")
	c.Rollout.MaxNewTokens = 40
	path := filepath.Join(other, "tokenizer.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.NewReplacer(`"7": 9`, `"7": 10`, `"8": 10`, `"8": 9`).Replace(string(text)))
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
	refused(`token 9 is "8", that of the policy "7"`)
}

// TestFollow: a reference that moves becomes a share of the policy and the rest of itself; with all of the policy it has
// the policy's log-probs. Another model must have the policy's tensors.
func TestFollow(t *testing.T) {
	env := runtimetest.Test(t)
	trained, err := policy.Open(env, policy.Options{Path: noisyCopy(t, 0.05), DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	c := tiny("", 1)
	c.Model.Reference, c.Model.ReferenceUpdate = data.Arithmetic, 0.25
	r, err := newReference(env, c, trained)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	was := slices.Clone(r.moving().Data)
	if err := r.follow(trained, 0.25); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for i, x := range r.moving().Data {
		if want := 0.75*float64(was[i]) + 0.25*float64(trained.Weights.Data[i]); math.Abs(float64(x)-want) > 1e-6*math.Abs(want) {
			t.Fatalf("weight %d of the reference is %v, want %v", i, x, want)
		}
		if x != was[i] {
			moved++
		}
	}
	if moved < len(was)/2 {
		t.Errorf("%d of %d weights have moved", moved, len(was))
	}
	if err := r.follow(trained, 1); err != nil || !slices.Equal(r.moving().Data, trained.Weights.Data) {
		t.Errorf("the reference is not the policy, %v", err)
	}
	c.Objective.Settings, _ = objectives.New("grpo")
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "model.reference_update") {
		t.Errorf("without a reference: %v", err)
	}
}
