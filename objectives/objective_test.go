package objectives_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"onering/objectives"
)

var errInvalid = errors.New("p = 7: must be at most 6")

// builtIn are the objectives but the one that asks a program.
var builtIn = slices.DeleteFunc(objectives.Names(), func(name string) bool { return name == "command" || name == "http" })

func TestNames(t *testing.T) {
	want := strings.Fields("apmpo art atr cfpo cispo command cppo ctpo dapo dcpo dispo dppo dppo_kl drgrpo dro drpo fipo fspo gdpo gmpo gpg grpo gspo holder http ipo luspo m2po maxrl minpro nfpo opd opo p3o pmpo pnpo policy real rec rec_ring reinforcepp remax rloo rollout_is sapo topr tpo trl_grpo turn verl_grpo vespo")
	if got := objectives.Names(); !slices.Equal(got, want) {
		t.Errorf("Names() = %q, want %q", got, want)
	}
	_, err := objectives.New("grp")
	if want := `objectives: unknown objective "grp" (have ` + strings.Join(want, ", ") + `; forgotten import?)`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestRegisterPanics(t *testing.T) {
	make := func() objectives.Objective { return &stub{} }
	for _, c := range []struct {
		name, want string
		new        func() objectives.Objective
	}{
		{"", "takes a name", make},
		{"nothing", "takes a name and a constructor", nil},
	} {
		func() {
			defer func() {
				if v, ok := recover().(string); !ok || !strings.Contains(v, c.want) {
					t.Errorf("Register(%q) panics with %q, want %q", c.name, v, c.want)
				}
			}()
			objectives.Register(c.name, c.new)
		}()
	}
}

// TestGreedy: the greedy response is shaped as the other responses are, and a group
// counts as flat only if the greedy reward equals the others.
func TestGreedy(t *testing.T) {
	o := makeObjective(t, "dapo", keys{"advantage": "remax", "overlong_length": 10, "overlong_cache": 10})
	group := make([]objectives.Trajectory, 2)
	greedy := &objectives.Trajectory{Reward: 1, LogProb: make([]float64, 5)} // half of the punishment
	for i := range group {
		group[i] = objectives.Trajectory{Reward: 1, LogProb: make([]float64, 10*i), Greedy: greedy}
	}
	objectives.SetAdvantages(o, group)
	if group[0].Advantage != 0.5 || group[1].Advantage != -0.5 || greedy.Reward != 1 {
		t.Errorf("advantages %v and %v, and a greedy reward of %v, want 0.5, -0.5 and 1", group[0].Advantage, group[1].Advantage, greedy.Reward)
	}
	for reward, degenerate := range map[float64]bool{0: false, 1: true} {
		greedy.Reward = reward
		one := []objectives.Trajectory{{Reward: 1, LogProb: make([]float64, 5), Greedy: greedy}}
		objectives.SetAdvantages(o, one)
		if one[0].Degenerate != degenerate || objectives.Keep(o, one) == degenerate {
			t.Errorf("greedy reward %v: degenerate %v, kept %v", reward, one[0].Degenerate, objectives.Keep(o, one))
		}
	}
}

// TestKLReward: half of the log-ratio to the reference is subtracted from each reward in
// the advantages, and Reward stays unchanged.
func TestKLReward(t *testing.T) {
	o := makeObjective(t, "drgrpo", keys{"kl_reward": 0.5})
	if !objectives.NeedsOf(o).Reference {
		t.Error("it needs no reference")
	}
	group := []objectives.Trajectory{
		{Reward: 1, LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -2}, RefLogProb: []float64{-1.5, -2.5}}, // The response's log-prob is 1 above the reference's.
		{Reward: 1, LogProb: []float64{-3}, OldLogProb: []float64{-3}, RefLogProb: []float64{-3}},
	}
	objectives.SetAdvantages(o, group)
	for i, want := range []float64{-0.25, 0.25} {
		if x := group[i]; x.Advantage != want || x.Reward != 1 || x.Degenerate {
			t.Errorf("response %d: %+v, want the advantage %v", i, x, want)
		}
	}
}

func TestSetAdvantages(t *testing.T) {
	group := []objectives.Trajectory{{Reward: 1}, {Reward: 0}, {Reward: 0.5}}
	objectives.SetAdvantages(&stub{}, group)
	for i, want := range []float64{0.5, -0.5, 0} {
		if group[i].Advantage != want || group[i].Degenerate {
			t.Errorf("response %d: %+v, want advantage %v", i, group[i], want)
		}
	}
	group = []objectives.Trajectory{{Reward: 0.1}, {Reward: 0.1}, {Reward: 0.1}}
	objectives.SetAdvantages(&stub{}, group)
	for i, x := range group {
		if x.Advantage != 0 || !x.Degenerate {
			t.Errorf("equal rewards, response %d: %+v", i, x)
		}
	}
	// Shaping comes before the advantages and leaves Reward unchanged.
	dapo := makeObjective(t, "dapo", keys{"advantage": "centered", "overlong_length": 10, "overlong_cache": 4})
	group = []objectives.Trajectory{{Reward: 1, LogProb: make([]float64, 8)}, {Reward: 1, LogProb: make([]float64, 2)}}
	objectives.SetAdvantages(dapo, group)
	if group[0].Advantage != -0.25 || group[1].Advantage != 0.25 || group[0].Reward != 1 || group[0].Degenerate {
		t.Errorf("shaped: %+v", group)
	}
	objectives.SetAdvantages(dapo, nil) // A missing group must not panic.
}

func TestKeepWithoutKeeper(t *testing.T) {
	if !objectives.Keep(makeObjective(t, "grpo", nil), []objectives.Trajectory{{Reward: 1}, {Reward: 1}}) {
		t.Error("an objective that does not choose refuses a group")
	}
	if objectives.Keep(makeObjective(t, "dapo", nil), []objectives.Trajectory{{Reward: 1}, {Reward: 1}}) {
		t.Error("dapo is not asked")
	}
}

func TestCheck(t *testing.T) {
	good := objectives.Trajectory{LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -2}}
	o := makeObjective(t, "grpo", nil)
	if _, err := objectives.Evaluate(o, [][]objectives.Trajectory{{good, {}}}, 0, 1); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(*objectives.Trajectory)
		want   string
	}{
		{func(x *objectives.Trajectory) { x.OldLogProb = nil }, "0 old log-probs for 2 response tokens"},
		{func(x *objectives.Trajectory) { x.RefLogProb = []float64{-1} }, "1 reference log-probs for 2"},
		{func(x *objectives.Trajectory) { x.LogProb = []float64{-1, math.NaN()} }, "token 1: log-probs hold NaN"},
		{func(x *objectives.Trajectory) { x.Entropy = []float64{math.Inf(1), 0} }, "token 0: entropies hold +Inf"},
		{func(x *objectives.Trajectory) { x.Advantage = math.Inf(-1) }, "advantage -Inf must be finite"},
		{func(x *objectives.Trajectory) { x.Reward = math.NaN() }, "reward NaN"},
	} {
		bad := good
		c.change(&bad)
		_, err := objectives.Evaluate(o, [][]objectives.Trajectory{{good, bad}}, 0, 1)
		if err == nil || !strings.HasPrefix(err.Error(), "objectives: group 0, response 1: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// TestValidate: every key that can be wrong is refused by name.
func TestValidate(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		objective string
		set       keys
		want      string
	}{
		{"grpo", keys{"advantage": "central"}, `advantage = "central": must be one of centered, standardized, rloo, opo, maxrl, round-std, rae, gdpo, remax, reinforce++, reinforce++-baseline, pass-k, hierarchical, otb, gigpo`},
		{"grpo", keys{"top_entropy": 1.5}, `top_entropy = 1.5: must be in [0, 1]`},
		{"gmpo", keys{"mask_off_policy": -1.0}, `mask_off_policy = -1`},
		{"pmpo", keys{"clip_cov": 2.0}, `clip_cov = 2: must be in [0, 1]`},
		{"gpg", keys{"kl_cov": -0.1}, `kl_cov = -0.1`},
		{"gpg", keys{"kl_cov_beta": -0.1}, `kl_cov_beta = -0.1`},
		{"gspo", keys{"importance_cap": inf}, `importance_cap = +Inf`},
		{"grpo", keys{"clip_cov_low": math.NaN()}, `clip_cov_low = NaN`},
		{"grpo", keys{"clip_cov_high": math.NaN()}, `clip_cov_high = NaN`},
		{"cispo", keys{"cap": -1.0}, `cap = -1`},
		{"cispo", keys{"floor": 6.0}, `floor = 6: must be in [0, 5]`},
		{"cispo", keys{"aggregate": "sum"}, `aggregate = "sum"`},
		{"sapo", keys{"tau_positive": 0.0}, `tau_positive = 0`},
		{"sapo", keys{"tau_negative": -1.0}, `tau_negative = -1`},
		{"dppo", keys{"tv_low": 1.5}, `tv_low = 1.5: must be in [0, 1]`},
		{"dppo", keys{"tv_high": -0.5}, `tv_high = -0.5`},
		{"dppo", keys{"cap": -0.5}, `cap = -0.5`},
		{"dppo", keys{"drift": -0.5}, `drift = -0.5`},
		{"holder", keys{"p_rule": "ess"}, `p_rule = "ess": must be one of linear, square, cube, sin, fixed`},
		{"holder", keys{"p": inf}, `p = +Inf: must be a finite number`},
		{"holder", keys{"p_first": math.NaN()}, `p_first = NaN`},
		{"holder", keys{"p_last": -inf}, `p_last = -Inf`},
		{"holder", keys{"clip_mode": "outer"}, `clip_mode = "outer"`},
		{"m2po", keys{"m2": -1.0}, `m2 = -1`},
		{"dispo", keys{"low_positive": 1.5}, `low_positive = 1.5`},
		{"dispo", keys{"high_positive": -1.0}, `high_positive = -1`},
		{"dispo", keys{"low_negative": -0.5}, `low_negative = -0.5`},
		{"dispo", keys{"high_negative": -1.0}, `high_negative = -1`},
		{"vespo", keys{"k_positive": -1.0}, `k_positive = -1`},
		{"vespo", keys{"k_negative": 1e3}, `k_negative = 1000`},
		{"vespo", keys{"lambda_positive": 0.0}, `lambda_positive = 0`},
		{"vespo", keys{"lambda_negative": 0.0}, `lambda_negative = 0`},
		{"rloo", keys{"clip_low": 2.0}, `clip_low = 2`},
		{"luspo", keys{"clip_high": -2.0}, `clip_high = -2`},
		{"grpo", keys{"advantage_eps": -1.0}, `advantage_eps = -1: must be in [0, 1]`},
		{"grpo", keys{"advantage_std": "n"}, `advantage_std = "n": must be one of sample, population`},
		{"grpo", keys{"kl_reward": 0.1}, `kl_reward = 0.1: must be 0 with advantage = "standardized"; it goes with centered, `},
		{"remax", keys{"kl_reward": 0.1}, `kl_reward = 0.1: must be 0 with advantage = "remax"`},
		{"gpg", keys{"kl_beta": -0.1}, `kl_beta = -0.1: must be a finite number, at least 0`},
		{"gpg", keys{"entropy_bonus": inf}, `entropy_bonus = +Inf: must be a finite number`},
		{"grpo", keys{"clip_low": 1.5}, `clip_low = 1.5: must be in [0, 1]`},
		{"drgrpo", keys{"clip_high": math.NaN()}, `clip_high = NaN: must be a finite number, at least 0`},
		{"grpo", keys{"aggregate": "mean"}, `aggregate = "mean"`},
		{"drgrpo", keys{"constant_length": 0.0}, `constant_length = 0: must be a finite number, at least 1`},
		{"dapo", keys{"overlong_length": -1}, `overlong_length = -1: must be at least 0`},
		{"dapo", keys{"overlong_length": 100}, `overlong_cache = 512: must be in [1, overlong_length = 100]`},
		{"dapo", keys{"overlong_length": 100, "overlong_cache": 0}, `overlong_cache = 0`},
		{"gspo", keys{"clip_low": -0.1}, `clip_low = -0.1`},
		{"gspo", keys{"clip_high": -0.1}, `clip_high = -0.1`},
		{"gspo", keys{"advantage": ""}, `advantage = ""`},
		{"gmpo", keys{"clip": -1.0}, `clip = -1`},
		{"gmpo", keys{"clip_mode": "seq"}, `clip_mode = "seq": must be one of token, sequence, none`},
		{"gmpo", keys{"clip_form": "paper"}, `clip_form = "paper"`},
		{"gmpo", keys{"norm": "max"}, `norm = "max": must be one of mean, sum, count-times`},
		{"gmpo", keys{"kl_beta": -1.0}, `kl_beta = -1`},
		{"pmpo", keys{"kl_beta": -1.0}, `kl_beta = -1`},
		{"pmpo", keys{"clip": inf}, `clip = +Inf`},
		{"pmpo", keys{"norm": ""}, `norm = ""`},
		{"pmpo", keys{"p_rule": "auto"}, `p_rule = "auto": must be one of ess, fixed, direct, length, entropy, cosine, linear`},
		{"pmpo", keys{"p": math.Inf(-1)}, `p = -Inf`},
		{"pmpo", keys{"p_max": inf}, `p_max = +Inf`},
		{"pmpo", keys{"p_min": -inf}, `p_min = -Inf`},
		{"pmpo", keys{"p_min": 2.0}, `p_min = 2: must be at most p_max = 0.99`},
		{"pmpo", keys{"eps_ess": -0.1}, `eps_ess = -0.1`},
		{"pmpo", keys{"bisections": 0}, `bisections = 0: must be at least 1`},
		{"pmpo", keys{"tolerance": math.NaN()}, `tolerance = NaN`},
		{"pmpo", keys{"ema_decay": 1.1}, `ema_decay = 1.1: must be in [0, 1]`},
		{"pmpo", keys{"ema_alpha": math.NaN()}, `ema_alpha = NaN`},
		{"pmpo", keys{"target": "reachable"}, `target = "reachable": must be one of paper, attainable`},
		{"pmpo", keys{"p_negative": inf}, `p_negative = +Inf`},
		{"pmpo", keys{"norm": "sum", "p_rule": "fixed", "p": 0.0}, `p = 0: must not be 0 with norm = "sum"`},
		{"pmpo", keys{"norm": "sum", "p_min": -1.0}, `p_min = -1: must be above 0, or p_max = 0.99 below it, with norm = "sum"`},
		{"pmpo", keys{"advantage": "otb"}, `advantage = "otb": must be another rule: it gives each token an advantage`},
		{"gmpo", keys{"advantage": "gigpo"}, `advantage = "gigpo": must be another rule`},
		{"gspo", keys{"advantage": "otb"}, `advantage = "otb": must be another rule`},
		{"holder", keys{"advantage": "otb"}, `advantage = "otb": must be another rule`},
		{"real", keys{"advantage": "otb"}, `advantage = "otb": must be another rule`},
		{"pmpo", keys{"norm": "sum", "p_negative": 0.0}, `p_negative = 0: must not be 0 with norm = "sum"`},
	} {
		o, err := objectives.New(c.objective)
		if err != nil {
			t.Fatal(err)
		}
		assign(t, o, c.set)
		err = objectives.Check(o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: error %v, want %s", c.objective, c.set, err, c.want)
		}
		key, _, _ := strings.Cut(c.want, " ")
		var setting *objectives.SettingError
		if !errors.As(err, &setting) || setting.Key != key {
			t.Errorf("%s %v: %v does not name the key %s as a SettingError", c.objective, c.set, err, key)
		}
	}
}
