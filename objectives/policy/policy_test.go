package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
	"onering/objectives/policy"
)

// TestConformance runs the suite on every row that is an objective.
func TestConformance(t *testing.T) {
	for _, name := range objectives.Names() {
		t.Run(name, func(t *testing.T) { objectivetest.Run(t, name) })
	}
}

// TestPartsConform runs the suite on parts that no row has.
func TestPartsConform(t *testing.T) {
	for _, point := range []string{
		"bound=clip kl_beta=0.1 kl_form=k2", "bound=clip kl_beta=0.1 kl_form=k3 kl_gradient=unbiased", "bound=clip clip_dual=1.5",
		"bound=clip kl_beta=0.1 kl_target=0.02", "bound=clip entropy_bonus=0.01 entropy_target=0.5", "bound=clip kl_advantage=0.1 aggregate=token-mean",
		"bound=clip advantage_drift=0.1", "bound=clip aggregate=group-mean", "aggregate=token-sum bound=back",
		"scope=prefix mean=2 bound=clip", "scope=before mean=-1", "scope=next scope_tokens=3 mean=min", "scope=turn mean=ess", "scope=prefix mean=ess inner=token",
		"scope=sequence with_token=1 bound=clip", "scope=prefix with_token=times inner=limits", "scope=sequence mean=1 mean_last=-1",
		"scope=sequence gradient=own bound=clip", "scope=none gradient=own", "bound=clip future=8 clip_dual=3", "scope=sequence mean=product gate=sigmoid",
		"bound=clip importance=sequence-mask importance_cap=3", "bound=clip reject=k3 reject_high=0.02 reject_reduce=max",
		"gradient=detached cap_ess=true aggregate=token-mean", "bound=clip advantage=rae", "gradient=detached drift=0.1 drift_on=all",
		"bound=clip kl_reward=0.1 advantage=centered", "bound=clip kl_reward=0.1 advantage=round-std", "signal=teacher bound=mask measure=tv", "gradient=detached cap_negative=0",
		"cap=0 cap_negative=2", "gradient=detached weight=one cap=0", "gate=sigmoid clip_dual=2", "gradient=detached cap=0.5",
		"bound=clip cap=1.1 floor_negative=0.95",
	} {
		t.Run(point, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective { o := policy.New(point); return &o })
		})
	}
}

// TestRefused: combinations that mean nothing are refused, with what to set.
func TestRefused(t *testing.T) {
	for point, key := range map[string]string{
		"gate=sigmoid bound=clip": "gate", "bound=clip measure=tv": "measure", "clip_dual=0.5": "clip_dual", "floor=2 cap=1": "floor",
		"kl_form=k1": "kl_form", "kl_gradient=unbiased kl_cap=10": "kl_gradient", "mean=times": "mean", "with_token=ess": "with_token",
		"mean=min mean_last=1": "mean", "list=target kl_advantage=1": "list", "list=margin scope=turn": "list", "weight=one": "weight", "gate=gamma": "gate", "scope=none": "scope",
		"future=8 future_low=2": "future_low", "reject=k1 reject_low=2 reject_high=1": "reject_low", "floor_negative=2 cap_negative=1": "cap_negative", "importance=token-mask importance_cap=1 importance_floor=2": "importance_floor",
		"entropy_least=2": "entropy_least", "advantage_std=none": "advantage_std",
		"reject=k3": "reject", "list=target importance_cap=2": "list", "weight=one gradient=detached scope=turn": "scope",
		"cap=0": "cap", "cap=0.5": "cap", "cap_negative=0.5": "cap_negative", "floor=2": "floor", "floor_negative=2": "floor_negative", "future=8 future_low=0 future_high=0": "future_high",
		"gate=sigmoid clip_dual=1.2": "clip_dual", "cap_negative=-1": "cap_negative", "bound=clip weight=one gradient=detached": "bound", "scope=word": "scope",
	} {
		o := policy.New(point)
		var bad *objectives.SettingError
		if err := objectives.Check(&o); err == nil || !asSetting(err, key, &bad) {
			t.Errorf("%s: error %v, want one about %s", point, err, key)
		}
	}
}

// asSetting looks for an error about a key among those that err joins.
func asSetting(err error, key string, into **objectives.SettingError) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if asSetting(e, key, into) {
				return true
			}
		}
	}
	bad, ok := err.(*objectives.SettingError)
	*into = bad
	return ok && bad.Key == key
}

// TestLive: with the pull, a response without advantage is trained on, too.
func TestLive(t *testing.T) {
	for _, pull := range []string{"true", "false"} {
		o := policy.New("pull=" + pull)
		if objectives.NeedsOf(&o).Live(objectives.Trajectory{}) != (pull == "true") {
			t.Errorf("pull %v: Live is wrong of a response without advantage", pull)
		}
	}
}

// TestMask: a mask drops the term of the advantage and leaves p3o's pull, with the KL penalty
// and without.
func TestMask(t *testing.T) {
	for _, beta := range []float64{0, 0.1} {
		o := policy.New("aggregate=token-mean gradient=detached cap_ess=true pull=true")
		o.TopEntropy, o.KLBeta = 0.5, beta
		b := objectives.Batch{Trajectories: []objectives.Trajectory{{
			LogProb: []float64{-1, -2}, OldLogProb: []float64{-1.5, -1.2}, RefLogProb: []float64{-1.1, -1.9},
			Entropy: []float64{0.1, 2}, Advantage: 1,
		}}}
		weights := func() []float64 {
			w := b.Zeros()
			objectives.Weights(&o, b, w)
			return w[0]
		}
		with := weights()
		b.Trajectories[0].Advantage = 0
		without := weights()
		if with[0] != without[0] || with[0] == 0 || with[1] == without[1] {
			t.Errorf("kl_beta %v: the weights are %v, and %v without advantage; the first token is masked", beta, with, without)
		}
	}
}

// TestTeacherMask: a mask drops what a teacher says of a token.
func TestTeacherMask(t *testing.T) {
	o := policy.New("signal=teacher drift=0.1")
	o.TopEntropy = 0.5
	b := objectives.Batch{Trajectories: []objectives.Trajectory{{LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -2}, RefLogProb: []float64{-2, -1}, Entropy: []float64{0.1, 2}}}}
	w := b.Zeros()
	objectives.Weights(&o, b, w)
	if w[0][0] != 0 || w[0][1] >= 0 {
		t.Errorf("the weights are %v; the first token is masked", w)
	}
}

// TestReverseKL: on policy, the mean of a token's weight times its score over the
// tokens that the policy draws is the derivative of KL(policy, teacher) by its logits.
func TestReverseKL(t *testing.T) {
	o, err := objectives.New("opd")
	if err != nil {
		t.Fatal(err)
	}
	logits, teacher := []float64{0.3, -1, 0.8, 2}, []float64{1, 0.2, -0.4, 0.1}
	logSoftmax := func(x []float64) []float64 {
		sum := 0.0
		for _, v := range x {
			sum += math.Exp(v)
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = v - math.Log(sum)
		}
		return out
	}
	kl := func(x []float64) (sum float64) {
		q := logSoftmax(teacher)
		for i, logp := range logSoftmax(x) {
			sum += math.Exp(logp) * (logp - q[i])
		}
		return sum
	}
	p, q := logSoftmax(logits), logSoftmax(teacher)
	got := make([]float64, len(logits))
	for drawn := range logits {
		w := [][]float64{{0}}
		objectives.Weights(o, objectives.Batch{Trajectories: []objectives.Trajectory{{
			LogProb: p[drawn : drawn+1], OldLogProb: p[drawn : drawn+1], RefLogProb: q[drawn : drawn+1],
		}}}, w)
		for i := range logits { // dLogProb[drawn]/dlogit[i] = [i = drawn] - p[i]
			score := -math.Exp(p[i])
			if i == drawn {
				score++
			}
			got[i] += math.Exp(p[drawn]) * w[0][0] * score
		}
	}
	const h = 1e-5
	for i := range logits {
		up, down := append([]float64{}, logits...), append([]float64{}, logits...)
		up[i] += h
		down[i] -= h
		if want := (kl(up) - kl(down)) / (2 * h); math.Abs(got[i]-want) > 1e-8 {
			t.Errorf("logit %d: %v, want %v", i, got[i], want)
		}
	}
}

// TestControllers follows coefficients that adapt over the steps of the vectors, through checkpoints.
func TestControllers(t *testing.T) {
	data, err := os.ReadFile("../testdata/field/controllers.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		KL []struct {
			Beta      float64   `json:"kl_beta"`
			Target    float64   `json:"kl_target"`
			Horizon   float64   `json:"kl_horizon"`
			Responses int       `json:"responses"`
			KL        []float64 `json:"kl"`
			After     []float64 `json:"after"`
		} `json:"kl"`
		Entropy []struct {
			First, Least, Most, Step, Target float64
			Entropy, After                   []float64
		} `json:"entropy"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	follow := func(o policy.Policy, key string, responses int, steps, after []float64, set func(x *objectives.Trajectory, v float64)) {
		for i, v := range steps {
			x := objectives.Trajectory{LogProb: []float64{-1}, OldLogProb: []float64{-1}, RefLogProb: []float64{-1}, Entropy: []float64{0}}
			set(&x, v)
			o.Observe(objectives.Batch{Trajectories: slices.Repeat([]objectives.Trajectory{x}, responses)})
			text, err := o.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			var state map[string]float64
			if err := json.Unmarshal(text, &state); err != nil || math.Abs(state[key]-after[i]) > 1e-12*(1+after[i]) {
				t.Errorf("step %d: the state is %s, %v, want %s %v", i, text, err, key, after[i])
			}
			if err := o.UnmarshalText(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range golden.KL {
		o := policy.New(fmt.Sprintf("bound=clip kl_beta=%v kl_target=%v kl_horizon=%v", c.Beta, c.Target, c.Horizon))
		follow(o, "kl_beta", c.Responses, c.KL, c.After, func(x *objectives.Trajectory, kl float64) {
			lo, hi := 0.0, 50.0
			for range 200 { // the distance at which k3 is kl
				if m := (lo + hi) / 2; math.Expm1(m)-m < kl {
					lo = m
				} else {
					hi = m
				}
			}
			x.RefLogProb[0] = x.LogProb[0] + lo
		})
	}
	for _, c := range golden.Entropy {
		o := policy.New(fmt.Sprintf("bound=clip entropy_bonus=%v entropy_least=%v entropy_most=%v entropy_step=%v entropy_target=%v", c.First, c.Least, c.Most, c.Step, c.Target))
		follow(o, "entropy_bonus", 2, c.Entropy, c.After, func(x *objectives.Trajectory, h float64) { x.Entropy[0] = h })
	}
}
