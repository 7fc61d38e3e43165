package objectives_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"onering/internal/settings"
	"onering/objectives"
)

// TestDefaults states every key of every objective and its default (D1 to D31): results
// depend on defaults, so none may change by accident.
func TestDefaults(t *testing.T) {
	const shared = "advantage_eps=1e-08 advantage_std=sample advantage_power=0 advantage_shift=0 advantage_tail=own episode_roles=[] step_weight=1 step_discount=1 " +
		"kl_beta=0 kl_form=k3 kl_gradient=own kl_cap=0 kl_reward=0 " +
		"entropy_bonus=0 rae_decay=0.95 kl_target=0 kl_horizon=10000 entropy_target=0 entropy_step=0.005 entropy_least=0 entropy_most=1 " +
		"mask_off_policy=0 top_entropy=0 clip_cov=0 clip_cov_low=1 clip_cov_high=5 kl_cov=0 kl_cov_beta=1 importance_cap=0 importance=none importance_floor=0 reject=none reject_reduce=token reject_low=0 reject_high=1e+300 "
	const parts = shared + "advantage=standardized clip_low=0.2 clip_high=0.2 clip_dual=0 aggregate=sequence-mean constant_length=3000 " +
		"scope=token scope_tokens=1 mean=0 mean_last=unset mean_schedule=linear with_token=no inner=none inner_low=0.4 inner_high=0.4 inner_form=pessimistic " +
		"gradient=through signal=advantage weight=ratio cap=1e+300 floor=0 cap_negative=unset floor_negative=unset " +
		"bound=none measure=ratio band_power=0 ring_low=0.4 ring_high=3 budget_weight=0.8 budget_slack=0.02 " +
		"gate=none gate_width=12.5 gate_positive=1 gate_negative=1.05 k_positive=2 k_negative=3 future=0 future_low=1 future_high=1.2 future_safety=0 " +
		"cap_ess=false pull=false " +
		"drift=0 drift_on=advantage advantage_drift=0 kl_advantage=0 kl_source=learner penalty_aggregate=same list=none list_temperature=1 "
	const clipped = parts + "bound=clip "
	const weighed = parts + "aggregate=token-mean gradient=detached "
	const logClip = shared + "clip=0.4 clip_mode=token clip_form=pessimistic norm=mean "
	for name, want := range map[string]string{
		"policy": parts + "constant_length=1",
		"grpo":   clipped,
		"drgrpo": clipped + "advantage=centered aggregate=constant",
		"dapo":   clipped + "clip_high=0.28 aggregate=token-mean dynamic_sampling=true overlong_length=0 overlong_cache=512",
		"gpg":    shared + "advantage=centered rescale=false",
		"gspo":   shared + "advantage=standardized clip_low=0.0003 clip_high=0.0004 clip_dual=0 token_level=false",
		"gmpo":   logClip + "advantage=standardized",
		"pmpo": logClip + "advantage=centered p_rule=ess p=1 p_min=0.01 p_max=0.99 eps_ess=0.1 bisections=10 tolerance=0 " +
			"ema_decay=0.9 ema_alpha=1 target=paper p_negative=unset",
		"rloo":        clipped + "advantage=rloo scope=sequence mean=product",
		"reinforcepp": clipped + "advantage=reinforce++ aggregate=token-mean",
		"opo":         clipped + "advantage=opo aggregate=token-mean",
		"maxrl":       clipped + "advantage=maxrl aggregate=token-mean",
		"remax":       clipped + "advantage=remax aggregate=token-mean",
		"gdpo":        clipped + "advantage=gdpo",
		"cispo":       weighed + "cap=5",
		"sapo":        parts + "gate=sigmoid gate_positive= gate_negative= tau_positive=1 tau_negative=1.05",
		"luspo":       clipped + "penalty_aggregate=sequence-mean scope=sequence clip_low=0.002 clip_high=0.0025 aggregate= constant_length=",
		"dppo":        weighed + "bound=side measure=tv clip_low= clip_high= tv_low=0.2 tv_high=0.2 cap=20",
		"holder":      shared + "advantage=standardized clip_low=0.2 clip_high=0.2 clip_dual=0 p_rule=linear p=1 p_first=2 p_last=-2 clip_mode=sequence",
		"p3o":         weighed + "cap_ess=true pull=true",
		"m2po":        parts + "aggregate=token-mean bound=mask measure=moment clip_low= clip_high= m2=0.04",
		"dispo":       weighed + "cap= floor= cap_negative= floor_negative= low_positive=0.2 high_positive=10 low_negative=1 high_negative=100",
		"vespo":       weighed + "scope=sequence mean=product inner=limits inner_low=20 inner_high=20 gate=gamma gate_positive= gate_negative= k_positive=2 lambda_positive=3 k_negative=3 lambda_negative=2",
		"opd":         parts + "advantage=centered aggregate=token-mean signal=teacher bound=mask measure=tv clip_low= clip_high= tv_low=0.2 drift=0.001",
	} {
		o, err := objectives.New(name)
		if err != nil {
			t.Fatal(err)
		}
		got, wanted := map[string]string{}, map[string]string{}
		for _, f := range settings.Fields(o) {
			got[f.Key] = fmt.Sprint(f.Value.Interface())
			if f.Value.Kind() == reflect.Pointer && f.Value.IsNil() {
				got[f.Key] = "unset"
			}
		}
		for setting := range strings.FieldsSeq(want) { // the last one counts; a key without a value is none
			key, text, _ := strings.Cut(setting, "=")
			if wanted[key] = text; text == "" {
				delete(wanted, key)
			}
		}
		for key := range wanted {
			if _, has := got[key]; !has {
				t.Errorf("%s has no %s, want %s", name, key, wanted[key])
			}
		}
		for key, text := range got {
			if wanted[key] != text {
				t.Errorf("%s: %s = %s, want %s", name, key, text, wanted[key])
			}
		}
	}
}
