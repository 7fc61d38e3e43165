package objectives_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/objectives"
)

// TestDefaults states every key of every objective and its default (D1 to D31): results
// depend on defaults, so none may change by accident.
func TestDefaults(t *testing.T) {
	shared := func(advantage string) string {
		return "advantage=" + advantage + " advantage_eps=1e-08 advantage_std=sample entropy_bonus=0 kl_beta=0 kl_reward=0 " +
			"mask_off_policy=0 top_entropy=0 clip_cov=0 clip_cov_low=1 clip_cov_high=5 kl_cov=0 kl_cov_beta=1 importance_cap=0 "
	}
	sum := func(aggregate string) string { return "aggregate=" + aggregate + " constant_length=3000 " }
	ratio := func(high, aggregate string) string {
		return "clip_low=0.2 clip_high=" + high + " " + sum(aggregate)
	}
	const logClip = "clip=0.4 clip_mode=token clip_form=pessimistic norm=mean "
	for name, want := range map[string]string{
		"grpo":   shared("standardized") + ratio("0.2", "sequence-mean"),
		"drgrpo": shared("centered") + ratio("0.2", "constant"),
		"dapo":   shared("standardized") + ratio("0.28", "token-mean") + "dynamic_sampling=true overlong_length=0 overlong_cache=512",
		"gpg":    shared("centered") + "rescale=false",
		"gspo":   shared("standardized") + "clip_low=0.0003 clip_high=0.0004 token_level=false",
		"gmpo":   shared("standardized") + logClip,
		"pmpo": shared("centered") + logClip + "p_rule=ess p=1 p_min=0.01 p_max=0.99 eps_ess=0.1 bisections=10 tolerance=0 " +
			"ema_decay=0.9 ema_alpha=1 target=paper p_negative=unset",
		"rloo":        shared("rloo") + "clip_low=0.2 clip_high=0.2",
		"reinforcepp": shared("reinforce++") + ratio("0.2", "token-mean"),
		"opo":         shared("opo") + ratio("0.2", "token-mean"),
		"maxrl":       shared("maxrl") + ratio("0.2", "token-mean"),
		"remax":       shared("remax") + ratio("0.2", "token-mean"),
		"gdpo":        shared("gdpo") + ratio("0.2", "sequence-mean"),
		"cispo":       shared("standardized") + sum("token-mean") + "cap=5 floor=0",
		"sapo":        shared("standardized") + sum("sequence-mean") + "tau_positive=1 tau_negative=1.05",
		"luspo":       shared("standardized") + "clip_low=0.002 clip_high=0.0025",
		"dppo":        shared("standardized") + sum("token-mean") + "tv_low=0.2 tv_high=0.2 cap=20 drift=0",
		"holder":      shared("standardized") + "clip_low=0.2 clip_high=0.2 p_rule=linear p=1 p_first=2 p_last=-2 clip_mode=sequence",
		"p3o":         shared("standardized") + sum("token-mean") + "pull=true",
		"m2po":        shared("standardized") + sum("token-mean") + "m2=0.04",
		"dispo":       shared("standardized") + sum("token-mean") + "low_positive=0.2 high_positive=10 low_negative=1 high_negative=100",
		"vespo":       shared("standardized") + sum("token-mean") + "k_positive=2 lambda_positive=3 k_negative=3 lambda_negative=2",
	} {
		o, err := objectives.New(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for key, v := range fieldsOf(o) {
			text := fmt.Sprint(v.Interface())
			if v.Kind() == reflect.Pointer && v.IsNil() {
				text = "unset"
			}
			got = append(got, key+"="+text)
		}
		slices.Sort(got)
		if wanted := slices.Sorted(slices.Values(strings.Fields(want))); !slices.Equal(got, wanted) {
			t.Errorf("%s:\n%v, want\n%v", name, got, wanted)
		}
	}
}
