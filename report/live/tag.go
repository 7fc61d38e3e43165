package live

import "strings"

// groups say what TensorBoard shows together: the tags that begin with the same part. The
// first entry whose kind and prefix a metric has decides.
var groups = []struct{ kind, prefix, group string }{
	{"round", "seconds/", "time"},
	{"round", "reward", "reward"},
	{"round", "right_share", "reward"},
	{"round", "frac_reward_zero_std", "reward"},
	{"round", "groups_kept", "reward"},
	{"round", "no_answer_share", "reward"},
	{"round", "response_length/", "length"},
	{"round", "truncated_share", "length"},
	{"round", "entropy", "policy"},
	{"round", "logp_gap", "gap"},
	{"round", "tokens", "system"},
	{"round", "prompt_tokens", "system"},
	{"round", "slot_occupancy", "system"},
	{"step", "seconds/", "time"},
	{"step", "entropy", "policy"},
	{"step", "loss", "loss"},
	{"step", "grad_norm", "loss"},
	{"step", "learning_rate", "loss"},
	{"step", "train_tokens", "system"},
	{"step", "micro_batches", "system"},
	{"step", "ess", "p"},
	{"step", "target_ess", "p"},
	{"step", "clip", "policy"},
	{"step", "ratio/", "policy"},
	{"step", "log_ratio/", "policy"},
	{"step", "delta/", "policy"},
	{"eval", "", "eval"},
}

// tagOf returns the tag of a metric: GROUP/NAME. A metric that no entry names keeps its
// name if that has a group already, such as p/mean, and else is named by its kind.
func tagOf(kind, name string) string {
	group := ""
	for _, g := range groups {
		if g.kind == kind && strings.HasPrefix(name, g.prefix) {
			group, name = g.group, strings.TrimPrefix(name, "seconds/")
			break
		}
	}
	switch {
	case group == "" && strings.Contains(name, "/") || strings.HasPrefix(name, group+"/"):
		return name
	case group == "":
		return kind + "/" + name
	}
	return group + "/" + name
}
