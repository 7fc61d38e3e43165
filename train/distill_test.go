package train_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"onering/models"
	"onering/runtime/runtimetest"
	"onering/train"
)

// TestDistill: a policy with noise on its weights learns from the model without it,
// whatever the rewards: the loss, which estimates the reverse KL, falls.
func TestDistill(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	env := runtimetest.Test(t)
	p, err := train.OpenPolicy(train.Arithmetic)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(4, 2))
	for i := range p.Weights.Data {
		p.Weights.Data[i] *= float32(1 + 0.3*r.NormFloat64())
	}
	c := embedded(t, "opd", 1, 3)
	c.Model.Path = filepath.Join(t.TempDir(), "noisy")
	err = p.Model.Save(c.Model.Path, p.Weights, models.SaveOptions{DType: models.F32, Tokenizer: p.Dir})
	p.Close()
	if err != nil {
		t.Fatal(err)
	}
	c.Model.Reference = train.Arithmetic
	c.Eval.Suites = nil
	_, rounds := learn(t, env, c)
	first := rounds[0].Float("loss")
	last := rounds[len(rounds)-1].Float("loss")
	t.Logf("loss %v in the first round, %v in the last", first, last)
	if !(last < first/2) || !(last > 0) {
		t.Errorf("loss %v in the first round, %v in the last", first, last)
	}
}
