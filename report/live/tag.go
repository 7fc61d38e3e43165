package live

import (
	"slices"
	"strings"
)

// groups say what TensorBoard shows together: the tags that begin with the same part. The
// entry whose kind and one of whose prefixes a metric has decides.
var groups = []struct{ kind, group, prefixes string }{
	{"round", "time", "seconds/"},
	{"round", "reward", "reward right_share frac_reward_zero_std groups_kept no_answer_share"},
	{"round", "length", "response_length/ truncated_share"},
	{"round", "policy", "entropy"},
	{"round", "gap", "logp_gap"},
	{"round", "system", "tokens prompt_tokens slot_occupancy"},
	{"step", "time", "seconds/"},
	{"step", "policy", "entropy clip ratio/ log_ratio/ delta/ kl"},
	{"step", "loss", "loss grad_norm learning_rate"},
	{"step", "system", "train_tokens micro_batches"},
	{"step", "p", "ess target_ess"},
}

// tagOf returns the tag of a metric: GROUP/NAME. A metric that no entry names keeps its
// name if that has a group already, such as p/mean, and else is named by its kind.
func tagOf(kind, name string) string {
	group := ""
	if kind == "eval" {
		group = kind
	}
	for _, g := range groups {
		if g.kind == kind && slices.ContainsFunc(strings.Fields(g.prefixes), func(p string) bool { return strings.HasPrefix(name, p) }) {
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
