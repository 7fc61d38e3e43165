package objectivetest_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

// plain is a correct objective: the clipped log-ratio, averaged over tokens and
// responses. Each broken objective below differs from it in one way.
type plain struct {
	C float64 `toml:"c"`
}

func (o *plain) Loss(b, _ objectives.Batch) float64 {
	loss := 0.0
	for _, t := range b.Trajectories {
		for j := range t.LogProb {
			z, _ := o.clip(t, j)
			loss -= t.Advantage * z / o.count(b, t)
		}
	}
	return loss
}

func (o *plain) Weights(b objectives.Batch, w [][]float64) {
	for i, t := range b.Trajectories {
		for j := range t.LogProb {
			w[i][j] = 0
			if _, cut := o.clip(t, j); !cut {
				w[i][j] = -t.Advantage / o.count(b, t)
			}
		}
	}
}

func (o *plain) clip(t objectives.Trajectory, j int) (z float64, cut bool) {
	d := t.LogProb[j] - t.OldLogProb[j]
	if t.Advantage >= 0 {
		return min(d, o.C), d > o.C
	}
	return max(d, -o.C), d < -o.C
}

func (o *plain) count(b objectives.Batch, t objectives.Trajectory) float64 {
	return float64(len(b.Trajectories) * len(t.LogProb))
}

// base is plain with methods that a broken objective can replace.
type base struct {
	plain
	loss    func(o *base, b, at objectives.Batch) float64
	weights func(o *base, b objectives.Batch, w [][]float64)
	kept    [][]float64
	calls   int
}

func (o *base) Loss(b, at objectives.Batch) float64 {
	if o.loss != nil {
		return o.loss(o, b, at)
	}
	return o.plain.Loss(b, at)
}

func (o *base) Weights(b objectives.Batch, w [][]float64) {
	if o.weights != nil {
		o.weights(o, b, w)
		return
	}
	o.plain.Weights(b, w)
}

// An each is plain, after which change changes every weight.
func each(f func(t objectives.Trajectory, j int, w float64) float64) func(*base, objectives.Batch, [][]float64) {
	return func(o *base, b objectives.Batch, w [][]float64) {
		o.plain.Weights(b, w)
		for i, t := range b.Trajectories {
			for j := range w[i] {
				w[i][j] = f(t, j, w[i][j])
			}
		}
	}
}

// These are the broken objectives that need methods of their own.
type (
	badAdvantages  struct{ base }
	orderedRewards struct{ base }
	sharedRewards  struct {
		base
		buffer []float64
	}
	changedRewards struct{ base }
	wholeRound     struct {
		base
		exempt map[string]string
	}
	longTokens  struct{ base }
	badDefaults struct{ base }
	hidden      struct {
		base
		Threshold float64
	}
	twice struct {
		base
		Other float64 `toml:"c"`
	}
	named struct {
		base
		Name string `toml:"name"`
	}
	observing   struct{ base }
	forgetful   struct{ remembering }
	remembering struct {
		base
		mean float64
	}
	impatient struct{ remembering }
	talkative struct {
		base
		told []objectives.Diagnostics
	}
	hasty    struct{ base }
	entropic struct {
		base
		factor float64
		asks   bool
		weighs bool
	}
	uncallable struct{ base }
	picky      struct{ base }
	moody      struct{ base }
	moodyHost  struct{ base }
)

func (badAdvantages) Advantages(group []objectives.Trajectory) []float64 {
	return objectives.Rewards(group) // Responses with equal rewards get an advantage that is not zero.
}
func (orderedRewards) Advantages(group []objectives.Trajectory) []float64 {
	a := objectives.Centered(objectives.Rewards(group))
	if len(a) > 0 && a[len(a)-1] != 0 {
		a[len(a)-1] *= 2
	}
	return a
}
func (o *sharedRewards) Advantages(group []objectives.Trajectory) []float64 {
	o.buffer = append(o.buffer[:0], objectives.Centered(objectives.Rewards(group))...)
	return o.buffer
}
func (changedRewards) Advantages(group []objectives.Trajectory) []float64 {
	a := objectives.Centered(objectives.Rewards(group))
	for i := range group {
		group[i].Reward = a[i]
	}
	return a
}

// wholeRound compares rewards with the mean of the round, not of the group.
func (o wholeRound) RoundAdvantages(groups [][]objectives.Trajectory) [][]float64 {
	centered := objectives.Centered(objectives.Rewards(slices.Concat(groups...)))
	all := make([][]float64, len(groups))
	for g, group := range groups {
		all[g], centered = centered[:len(group):len(group)], centered[len(group):]
	}
	return all
}
func (o wholeRound) Exemptions() map[string]string { return o.exempt }

func (longTokens) TokenAdvantages(group []objectives.Trajectory) [][]float64 {
	rows := make([][]float64, len(group))
	for i, t := range group {
		rows[i] = make([]float64, len(t.LogProb)+1)
	}
	return rows
}
func (badDefaults) Validate() error                 { return errors.New("c = 0.4: must be 7") }
func (*observing) Observe(objectives.Batch)         {}
func (o *remembering) Observe(b objectives.Batch)   { o.mean = 0.5*o.mean + float64(b.Tokens()) }
func (o *remembering) MarshalText() ([]byte, error) { return fmt.Append(nil, o.mean), nil }
func (o *remembering) UnmarshalText(text []byte) error {
	_, err := fmt.Sscan(string(text), &o.mean)
	return err
}
func (o *remembering) Weights(b objectives.Batch, w [][]float64) {
	o.base.Weights(b, w)
	scaleAll(w, 1+o.mean)
}
func (o *remembering) Loss(b, at objectives.Batch) float64 {
	return o.base.Loss(b, at) * (1 + o.mean)
}
func (o *forgetful) UnmarshalText([]byte) error { return nil }
func (o *impatient) Loss(b, at objectives.Batch) float64 {
	defer o.Observe(b)
	return o.base.Loss(b, at)
}
func (o *impatient) Weights(b objectives.Batch, w [][]float64) { o.base.Weights(b, w) }
func (o *talkative) Diagnose(objectives.Batch) []objectives.Diagnostics {
	return o.told
}
func (o *hasty) WeighsApart() bool     { return true }
func (o *entropic) NeedsEntropy() bool { return o.asks }
func (o *entropic) Loss(b, at objectives.Batch) float64 {
	loss := o.base.Loss(b, at)
	for _, t := range b.Trajectories {
		for _, h := range t.Entropy {
			loss -= 0.1 * h
		}
	}
	return loss
}
func (o *entropic) EntropyWeights(_ objectives.Batch, v [][]float64) {
	for i := range v {
		for j := range v[i] {
			v[i][j] = -0.1 * o.factor
		}
	}
}
func (o *entropic) WeighsEntropy() bool { return o.weighs }
func (o *uncallable) EntropyWeights(objectives.Batch, [][]float64) bool {
	return true
}
func (o *picky) Keep(group []objectives.Trajectory) bool { o.calls++; return o.calls%2 == 0 }
func (o *moody) Shape(t objectives.Trajectory) float64   { o.calls++; return t.Reward + float64(o.calls) }
func (o *moodyHost) Shape(t objectives.Trajectory) float64 {
	return math.NaN()
}

func scaleAll(w [][]float64, by float64) {
	for i := range w {
		for j := range w[i] {
			w[i][j] *= by
		}
	}
}

func good() base { return base{plain: plain{C: 0.4}} }

// with returns a constructor of base with its methods replaced.
func with(loss func(*base, objectives.Batch, objectives.Batch) float64, weights func(*base, objectives.Batch, [][]float64)) func() objectives.Objective {
	return func() objectives.Objective {
		o := good()
		o.loss, o.weights = loss, weights
		return &o
	}
}

func TestBrokenObjectivesFail(t *testing.T) {
	if race {
		t.Skip("some of these objectives have data races, which the suite must find without the race detector")
	}
	one := &base{plain: plain{C: 0.4}}
	for _, c := range []struct {
		name string
		new  func() objectives.Objective
		want string // the rules that the objective breaks, the intended rule first
	}{
		{"nothing wrong", with(nil, nil), ""},
		{"state that is carried", func() objectives.Objective { return &remembering{base: good()} }, ""},
		{"wrong sign of the weights", with(nil, each(func(_ objectives.Trajectory, _ int, w float64) float64 { return -w })), "derivative direction"},
		{"wrong sign throughout", with(
			func(o *base, b, at objectives.Batch) float64 { return -o.plain.Loss(b, at) },
			each(func(_ objectives.Trajectory, _ int, w float64) float64 { return -w })), "direction"},
		{"a factor too many", with(nil, each(func(t objectives.Trajectory, _ int, w float64) float64 { return w / float64(len(t.LogProb)) })), "derivative"},
		{"a relative error of 1e-5", with(nil, each(func(_ objectives.Trajectory, _ int, w float64) float64 { return w * (1 + 1e-5) })), "derivative"},
		{"no clip gate", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			(&plain{C: math.Inf(1)}).Weights(b, w)
		}), "derivative"},
		{"the clip on the wrong side", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			o.plain.Weights(b, w)
			for i, t := range b.Trajectories {
				for j := range w[i] {
					if math.Abs(t.LogProb[j]-t.OldLogProb[j]) > o.C {
						w[i][j] = 0
					}
				}
			}
		}), "derivative"},
		{"detached quantities from b", with(func(o *base, b, at objectives.Batch) float64 {
			// Loss has a factor of each response that Weights treats as constant.
			loss := 0.0
			for i := range b.Trajectories {
				single := b
				single.Trajectories = b.Trajectories[i : i+1]
				factor := 1.0
				for j, x := range b.Trajectories[i].LogProb {
					factor += 0.1 * math.Tanh(x-b.Trajectories[i].OldLogProb[j])
				}
				loss += factor * o.plain.Loss(single, single)
			}
			return loss
		}, nil), "derivative"},
		{"a loss with a jump at every token", with(func(o *base, b, at objectives.Batch) float64 {
			loss := o.plain.Loss(b, at)
			for i, t := range b.Trajectories {
				for j := range t.LogProb {
					if t.LogProb[j] > at.Trajectories[i].LogProb[j] {
						loss++
					}
				}
			}
			return loss
		}, nil), "derivative"},
		{"weights added to what is there", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			extra := make([][]float64, len(w))
			for i := range w {
				extra[i] = make([]float64, len(w[i]))
			}
			o.plain.Weights(b, extra)
			for i := range w {
				for j := range w[i] {
					w[i][j] += extra[i][j]
				}
			}
		}), "overwrite"},
		{"weights by the mean log-ratio of the batch", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			o.plain.Weights(b, w)
			sum := 0.0
			for _, t := range b.Trajectories {
				for j := range t.LogProb {
					sum += t.LogProb[j] - t.OldLogProb[j]
				}
			}
			scaleAll(w, 1/(1+sum*sum))
		}), "alone"},
		{"weights by the mean log-ratio of responses with advantage, said to be apart", func() objectives.Objective {
			o := good()
			o.weights = func(o *base, b objectives.Batch, w [][]float64) {
				o.plain.Weights(b, w)
				sum := 0.0
				for _, t := range b.Trajectories {
					for j := range t.LogProb {
						if t.Advantage != 0 {
							sum += t.LogProb[j] - t.OldLogProb[j]
						}
					}
				}
				scaleAll(w, 1/(1+sum*sum))
			}
			return &hasty{o}
		}, "apart"},
		{"rows of zero advantage left out", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			for i := range b.Trajectories {
				if b.Trajectories[i].Advantage != 0 {
					single := objectives.Batch{Trajectories: b.Trajectories[i : i+1]}
					o.plain.Weights(single, w[i:i+1])
					scaleAll(w[i:i+1], 1/float64(len(b.Trajectories)))
				}
			}
		}), "overwrite"},
		{"log-probs changed", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			o.plain.Weights(b, w)
			for _, t := range b.Trajectories {
				for j := range t.LogProb {
					t.LogProb[j] -= 1e-9
				}
			}
		}), "arguments"},
		{"advantages changed", with(func(o *base, b, at objectives.Batch) float64 {
			loss := o.plain.Loss(b, at)
			for i := range at.Trajectories {
				at.Trajectories[i].Advantage += 1e-9
			}
			return loss
		}, nil), "arguments"},
		{"slices retained", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			o.plain.Weights(b, w)
			if o.kept != nil && len(o.kept[0]) > 0 && o.kept[0][0] < -100 {
				w[0][0] += 0.125
			}
			if len(b.Trajectories) > 0 {
				o.kept = [][]float64{b.Trajectories[0].LogProb}
			}
		}), "retention"},
		{"writes to an earlier w", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			o.plain.Weights(b, w)
			for _, row := range o.kept {
				clear(row)
			}
			o.kept = w
		}), "retention"},
		{"random numbers", with(nil, each(func(_ objectives.Trajectory, _ int, w float64) float64 {
			return w * (1 + 1e-9*rand.Float64())
		})), "determinism"},
		{"a random loss", with(func(o *base, b, at objectives.Batch) float64 {
			return o.plain.Loss(b, at) * (1 + 1e-15*float64(rand.IntN(9)))
		}, nil), "determinism"},
		{"history without Observe", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			o.plain.Weights(b, w)
			o.calls++
			scaleAll(w, 1+1e-9*float64(o.calls))
		}), "determinism"},
		{"a weight without advantage", with(
			func(o *base, b, at objectives.Batch) float64 {
				loss := o.plain.Loss(b, at)
				for _, t := range b.Trajectories {
					for j := range t.LogProb {
						loss -= 1e-3 * t.LogProb[j]
					}
				}
				return loss
			},
			each(func(_ objectives.Trajectory, _ int, w float64) float64 { return w - 1e-3 })), "equal-rewards"},
		{"advantages without a baseline", func() objectives.Objective { return &badAdvantages{good()} }, "equal-rewards advantages"},
		{"advantages by place", func() objectives.Objective { return &orderedRewards{good()} }, "advantages"},
		{"advantages in a shared buffer", func() objectives.Objective { return &sharedRewards{base: good()} }, "retention"},
		{"advantages over the round", func() objectives.Objective { return &wholeRound{base: good()} }, "equal-rewards"},
		{"advantages over the round, declared", func() objectives.Objective {
			return &wholeRound{good(), map[string]string{"equal-rewards": "rewards are compared over the round"}}
		}, ""},
		{"an exemption without need", func() objectives.Objective {
			return &wholeRound{good(), map[string]string{"equal-rewards": "rewards are compared over the round", "order": "it is hard"}}
		}, "order"},
		{"an exemption without a reason", func() objectives.Objective {
			return &wholeRound{good(), map[string]string{"equal-rewards": ""}}
		}, "equal-rewards"},
		{"an exemption from no rule", func() objectives.Objective {
			return &wholeRound{good(), map[string]string{"equal-rewards": "over the round", "equal": "over the round"}}
		}, "equal"},
		{"token advantages of another length", func() objectives.Objective { return &longTokens{good()} }, "advantages"},
		{"rewards changed", func() objectives.Objective { return &changedRewards{good()} }, "arguments"},
		{"NaN for an empty response", with(func(o *base, b, at objectives.Batch) float64 {
			loss := 0.0
			for i, t := range b.Trajectories {
				single := b
				single.Trajectories = b.Trajectories[i : i+1]
				loss += o.plain.Loss(single, at) * float64(len(t.LogProb)) / float64(len(t.LogProb)*len(b.Trajectories))
			}
			return loss
		}, nil), "empty"},
		{"a panic on an empty response", with(nil, func(o *base, b objectives.Batch, w [][]float64) {
			for _, t := range b.Trajectories {
				_ = t.LogProb[0]
			}
			o.plain.Weights(b, w)
		}), "empty"},
		{"a sample variance of tokens", with(nil, each(func(t objectives.Trajectory, _ int, w float64) float64 {
			return w + 0/float64(len(t.LogProb)-1)
		})), "one-token"},
		{"an overflow", with(
			func(o *base, b, at objectives.Batch) float64 {
				return o.plain.Loss(b, at) + overflow(b)
			}, nil), "extreme"},
		{"weights by place", with(
			func(o *base, b, at objectives.Batch) float64 {
				if len(b.Trajectories) == 0 {
					return 0
				}
				single := b
				single.Trajectories = b.Trajectories[:1]
				return o.plain.Loss(b, at) + o.plain.Loss(single, at)
			},
			func(o *base, b objectives.Batch, w [][]float64) {
				o.plain.Weights(b, w)
				if len(w) > 0 {
					scaleAll(w[:1], 1+float64(len(w)))
				}
			}), "order"},
		{"a shared buffer", func() objectives.Objective {
			o := good()
			buffer := make([]float64, 64)
			o.weights = func(o *base, b objectives.Batch, w [][]float64) {
				for i := range b.Trajectories {
					single := objectives.Batch{Trajectories: b.Trajectories[i : i+1]}
					row := buffer[:len(w[i])]
					o.plain.Weights(single, [][]float64{row})
					runtime.Gosched()
					copy(w[i], row)
				}
				scaleAll(w, 1/float64(len(w)))
			}
			return &o
		}, "concurrency"},
		{"one value for all", func() objectives.Objective { return one }, "defaults"},
		{"a constructor that returns no pointer", func() objectives.Objective { return value{} }, "defaults"},
		{"defaults that Validate rejects", func() objectives.Objective { return &badDefaults{good()} }, "defaults"},
		{"a field without a name", func() objectives.Objective { return &hidden{base: good()} }, "defaults"},
		{"one name for two fields", func() objectives.Objective { return &twice{base: good()} }, "defaults"},
		{"the name of the objective's own key", func() objectives.Objective { return &named{base: good()} }, "defaults"},
		{"Observe without MarshalText", func() objectives.Objective { return &observing{good()} }, "state"},
		{"state that is not read back", func() objectives.Objective { return &forgetful{remembering{base: good()}} }, "state"},
		{"state that changes before Observe", func() objectives.Objective { return &impatient{remembering{base: good()}} }, "state"},
		{"too few diagnostics", func() objectives.Objective { return &talkative{base: good()} }, "diagnose one-token extreme empty"},
		{"NaN in the diagnostics", func() objectives.Objective { return &nanTalk{good()} }, "diagnose one-token extreme empty"},
		{"another's advantage in the diagnostics", func() objectives.Objective { return &wrongTalk{good()} }, "diagnose one-token extreme empty"},
		{"a correct entropy term", func() objectives.Objective { return &entropic{good(), 1, true, true} }, ""},
		{"a wrong entropy weight", func() objectives.Objective { return &entropic{good(), -1, true, true} }, "entropy"},
		{"entropy weights without entropy", func() objectives.Objective { return &entropic{good(), 1, false, true} }, "entropy"},
		{"an entropy term that is denied", func() objectives.Objective { return &entropic{good(), 1, true, false} }, "entropy"},
		{"entropy weights that the host cannot call", func() objectives.Objective { return &uncallable{good()} }, "entropy"},
		{"a Keep that depends on the past", func() objectives.Objective { return &picky{good()} }, "groups"},
		{"a Shape that depends on the past", func() objectives.Objective { return &moody{good()} }, "groups"},
		{"a Shape that is NaN", func() objectives.Objective { return &moodyHost{good()} }, "groups"},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken := brokenRules(objectivetest.Check(c.new))
			want := strings.Fields(c.want)
			if len(want) == 0 && len(broken) > 0 || len(want) > 0 && !slices.Contains(broken, want[0]) {
				t.Fatalf("rules broken: %q, want %q", broken, want)
			}
			t.Logf("%q", broken)
		})
	}
}

type value struct{}

func (value) Loss(b, at objectives.Batch) float64       { return (&plain{C: 0.4}).Loss(b, at) }
func (value) Weights(b objectives.Batch, w [][]float64) { (&plain{C: 0.4}).Weights(b, w) }

type nanTalk struct{ base }

func (o *nanTalk) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		all[i] = objectives.Diagnostics{Advantage: t.Advantage, Ratio: new(math.NaN())}
	}
	return all
}

type wrongTalk struct{ base }

func (o *wrongTalk) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i := range b.Trajectories {
		all[i].Advantage = b.Trajectories[len(all)-1-i].Advantage + 1
	}
	return all
}

// overflow is 0 unless the square of a ratio is beyond float64.
func overflow(b objectives.Batch) float64 {
	for _, t := range b.Trajectories {
		for j := range t.LogProb {
			if r := math.Exp(2 * (t.LogProb[j] - t.OldLogProb[j])); math.IsInf(r, 1) {
				return r - r
			}
		}
	}
	return 0
}

// brokenRules lists the rules of joined Failures.
func brokenRules(err error) (names []string) {
	if err == nil {
		return nil
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var f *objectivetest.Failure
		if errors.As(err, &f) {
			names = append(names, f.Rule)
		}
	}
	return names
}
