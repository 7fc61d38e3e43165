package policy

import (
	"fmt"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/objectives"
)

// A row gives a name to a point of the parts.
type row struct {
	name, family string
	point        string // the settings that differ from those of "policy"
	loss         string // the formula that results
	source       string // where it is from, and what is ours
}

// The families of the table.
const (
	paper    = "the paper's family" // in packages of their own, which must equal their points
	clipped  = "PPO's clip with another advantage"
	weights  = "detached weights"
	regions  = "regions and gates"
	scoped   = "ratios of prefixes, turns and whole responses"
	lists    = "losses over a group"
	presets  = "defaults of other trainers"
	anything = "any point"
)

// rows are the names. N is the number of responses of a step, n the tokens of one, T those of all, r = e^d, pi and mu
// the probabilities now and when sampled, S the ratio of a response, A the advantage; sg passes no gradient.
var rows = []row{
	{"policy", anything, "constant_length=1", "-1/N sum_i 1/n_i sum_t r A", "every part is a setting"},

	{"grpo", paper, "bound=clip", "-1/N sum_i 1/n_i sum_t min(r A, clip(r, 0.8, 1.2) A)", "arXiv:2402.03300"},
	{"drgrpo", paper, "advantage=centered aggregate=constant constant_length=3000 bound=clip", "-1/(N L) sum min(r A, clip(r, 0.8, 1.2) A)", "arXiv:2503.20783"},
	{"dapo", paper, "aggregate=token-mean bound=clip clip_high=0.28", "-1/T sum min(r A, clip(r, 0.8, 1.28) A), dynamic sampling, overlong punishment", "arXiv:2503.14476"},
	{"gpg", paper, "advantage=centered aggregate=token-mean gradient=detached weight=one", "-alpha/T sum A logp", "arXiv:2504.02546"},
	{"gspo", paper, "scope=sequence bound=clip clip_low=0.0003 clip_high=0.0004", "-1/N sum_i min(S A, clip(S, 1 - 3e-4, 1 + 4e-4) A), S = exp(mean d)", "arXiv:2507.18071"},
	{"gmpo", paper, "scope=sequence inner=token", "-1/N sum_i A exp(mean z), z = d clipped at 0.4", "arXiv:2507.20673"},
	{"pmpo", paper, "advantage=centered scope=sequence mean=ess inner=token", "-1/N sum_i A (1/n sum_t e^(p z))^(1/p), p chosen per response", "arXiv:2601.22521"},
	{"holder", paper, "scope=sequence mean=2 mean_last=-2 bound=clip", "-1/N sum_i min(S A, clip(S, 0.8, 1.2) A), S = (1/n sum_t e^(p d))^(1/p), p from 2 to -2 over the run", "arXiv:2605.12058"},

	{"reinforcepp", clipped, "advantage=reinforce++ aggregate=token-mean bound=clip", "-1/T sum min(r A, clip(r, 0.8, 1.2) A)", "arXiv:2501.03262, REINFORCE++. The paper takes KL from the reward of each token, verl discounts; here neither"},
	{"opo", clipped, "advantage=opo aggregate=token-mean bound=clip", "the same", "arXiv:2505.23585. Meant for one step a round, where the clip does not act"},
	{"maxrl", clipped, "advantage=maxrl aggregate=token-mean bound=clip", "the same", "arXiv:2602.02710, the advantage as in prime-rl's max_rl; the clip is ours. For rewards that are not negative"},
	{"remax", clipped, "advantage=remax aggregate=token-mean bound=clip", "the same", "arXiv:2310.10505. The greedy response is sampled beside the group and not trained on"},
	{"gdpo", clipped, "advantage=gdpo bound=clip", "grpo's", "arXiv:2601.05242, the advantage as in TRL 1.16: each part of the reward standardized by itself"},

	{"cispo", weights, "aggregate=token-mean gradient=detached cap=5", "-1/T sum sg[min(r, 5)] A logp", "arXiv:2506.13585, MiniMax-M1. The cap is TRL 1.16's; the paper and verl clip r on both sides: floor = 1 - low, cap = 1 + high"},
	{"dispo", weights, "aggregate=token-mean gradient=detached cap=11 floor=0.8 cap_negative=101 floor_negative=0", "-1/T sum sg[clip(r, 0.8, 11)] A logp for A >= 0, sg[clip(r, 0, 101)] for A < 0", "arXiv:2602.00983, its abstract and objective as a list of papers quotes it; bounds of a fork of slime (orangeaico/slime)"},
	{"topr", weights, "aggregate=token-mean gradient=detached cap=1 floor=1 cap_negative=1 floor_negative=0", "-1/T sum A logp for A > 0, sg[min(r, 1)] A logp for A < 0", "Trinity-RFT's topr"},
	{"dro", weights, "aggregate=token-mean gradient=detached weight=one drift=0.05 drift_on=all", "1/T sum (-A logp + drift d^2)", "verl's and Tinker's dro, drift = beta/2 (D61); the default of 0.05 is ours"},
	{"dppo", weights, "aggregate=token-mean gradient=detached bound=side measure=tv cap=20", "-1/T sum sg[M min(r, 20)] A logp, M = pi - mu within 0.2 on the side of A", "arXiv:2602.04879 with the binary total variation: verl's dppo_tv and the authors' code (sail-sg/Stable-RL)"},
	{"dppo_kl", weights, "aggregate=token-mean gradient=detached bound=side measure=kl clip_low=0.05 clip_high=0.05 cap=20", "the same with the binary KL within 0.05, or pi moved back", "verl's dppo_kl (D62)"},
	{"rec", weights, "aggregate=token-mean gradient=detached bound=side", "-1/T sum sg[M r] A logp, M = r within [0.8, 1.2] on the side of A", "Trinity-RFT's rec, one-side"},
	{"rec_ring", weights, "aggregate=token-mean gradient=detached bound=ring", "the same, M on both sides, or r <= 0.4 for A >= 0, or r >= 3 for A <= 0", "Trinity-RFT's rec, ring"},
	{"rollout_is", weights, "aggregate=token-mean gradient=detached bound=mask", "the same, M on both sides", "SkyRL's rollout_is, which leaves the edges out; Trinity-RFT's rec, two-side"},
	{"vespo", weights, "aggregate=token-mean scope=sequence mean=product inner=limits inner_low=20 inner_high=20 gradient=detached gate=gamma gate_positive=3 gate_negative=2", "-1/T sum_i sg[phi] A sum_t logp, phi = exp(lambda + k log S - lambda S), S = exp(sum d)", "arXiv:2602.10693, checked against TRL 1.16; with importance_cap the truncated weights multiply phi, where TRL puts them into S"},

	{"sapo", regions, "gate=sigmoid", "-1/N sum_i 1/n_i sum_t A 4/tau sigmoid(tau (r - 1))", "arXiv:2511.20347, checked against TRL 1.16; verl limits d to [-20, 20]"},
	{"m2po", regions, "aggregate=token-mean bound=mask measure=moment clip_high=0.04", "-1/T sum M r A; of the tokens with A d > 0, M leaves out the largest d^2 until the mean of the others is at most 0.04", "arXiv:2510.01161, its Algorithm 1 as third parties have it; the authors' code makes bounds of PPO's clip from the moment, AReaL counts all tokens"},
	{"p3o", regions, "aggregate=token-mean gradient=detached cap_ess=true pull=true", "1/T sum (-sg[min(r, e)] A logp + (1 - e)(d + e^-d - 1)), e = (sum r)^2/(T sum r^2)", "arXiv:2605.12380, the authors' code (FeynRL) without its 1e-8 and its clamp; e is the step's, in the log domain (D47)"},
	{"opd", regions, "advantage=centered aggregate=token-mean signal=teacher bound=mask measure=tv clip_high=1e300 drift=0.001", "-1/T sum M r sg[ref logp - logp] + drift/T sum d^2, M = pi - mu above -0.2", "on-policy distillation, prime-rl's ref_kl. The teacher is model.reference; rewards are only logged"},
	{"ipo", regions, "aggregate=token-mean bound=mask measure=tv clip_low=0.1 clip_high=0.1 drift=0.001 drift_on=all", "1/T sum (-M r A + drift d^2), M = |pi - mu| within 0.1", "prime-rl's ipo"},
	{"cppo", regions, "aggregate=token-mean bound=back measure=budget clip_high=0.15", "-1/T sum M r A, M = r moves back, or |pi - mu| within what the prefix has left (D73)", "arXiv:2606.10968; UniRL's cppo"},
	{"drpo", regions, "aggregate=token-mean gate=quadratic", "-1/T sum (r A - |A| mu (r - 1)^2/25)", "arXiv:2606.09821; UniRL's drpo"},
	{"cfpo", regions, "aggregate=token-mean gate=quadratic-tv gate_width=0.2", "-1/T sum (r A - |A| (r - 1)^2/0.4)", "arXiv:2601.22801; UniRL's drpo without mu. The width is ours"},
	{"dcpo", regions, "bound=clip measure=probability clip_low=0.16", "grpo's with |(r - 1) pi| within 0.16 and 0.2", "arXiv:2509.02333, its clip. The authors' code limits the upper bound to 10 (D75); their smoothed advantages are not here"},
	{"atr", regions, "bound=clip measure=k3 clip_high=0.02", "grpo's with r - 1 - log r within 0.02", "arXiv:2602.05494; 0.02 is ours"},
	{"fipo", regions, "aggregate=token-mean bound=clip future=32 future_safety=4", "dapo's with clip 0.2, each gain times clip(e^F, 1, 1.2), F = sum_(k >= t) 2^(-(k-t)/32) d_k", "arXiv:2603.19835; ms-swift's fipo (D80)"},

	{"rloo", scoped, "advantage=rloo scope=sequence mean=product bound=clip", "-1/N sum_i min(S A, clip(S, 0.8, 1.2) A), S = exp(sum d)", "arXiv:2402.14740; ratio and clip are those of TRL's RLOOTrainer, which takes KL from the reward (kl_reward)"},
	{"luspo", scoped, "scope=sequence bound=clip clip_low=0.002 clip_high=0.0025 aggregate=constant constant_length=1 penalty_aggregate=sequence-mean", "-1/N sum_i n_i min(S A, clip(S, 1 - 2e-3, 1 + 2.5e-3) A), S = exp(mean d)", "arXiv:2602.05261, checked against TRL 1.16; the clips are second-hand"},
	{"fspo", scoped, "scope=sequence mean=product bound=clip measure=log clip_low=0.1 clip_high=0.1 band_power=0.5", "rloo's with log S within 0.1 sqrt(n)", "arXiv:2509.09177: the band is theirs, the rest and the widths are ours"},
	{"ctpo", scoped, "aggregate=token-mean scope=prefix mean=product gradient=own bound=clip measure=log clip_low=0.025 clip_high=0.05 band_power=0.5 clip_dual=0.05", "-1/T sum min(R A, clip A), R_t = exp(sum_(k <= t) d_k), within -0.025 and 0.05 sqrt(t) in the log; only d_t has a gradient", "arXiv:2605.07331, the authors' code (D78)"},
	{"pnpo", scoped, "aggregate=token-mean scope=prefix gradient=own bound=clip clip_dual=3", "-1/T sum min(R A, clip(R, 0.8, 1.2) A), R_t = exp(mean_(k <= t) d_k)", "arXiv:2608.01418: the ratio is theirs, the rest is ours"},
	{"minpro", scoped, "aggregate=token-mean scope=before mean=min with_token=times gradient=detached cap=5", "-1/T sum sg[min(r_t min_(k < t) r_k, 5)] A logp", "arXiv:2601.22718: the ratio is theirs, the rest is ours"},
	{"nfpo", scoped, "aggregate=token-mean scope=next scope_tokens=4 mean=product gradient=detached cap=5", "-1/T sum sg[min(r_t ... r_(t+3), 5)] A logp", "arXiv:2605.20865: the ratio is theirs, the rest is ours"},
	{"apmpo", scoped, "scope=sequence mean=rewards inner=rewards inner_low=0.2231435513142098 inner_high=0.1823215567939546", "-1/N sum_i A (1/n sum_t e^(p z))^(1/p), p = exp(-0.8 mean reward), z = d within 0.8 and 1.2 + 0.2 tanh(mean/deviation of the rewards)", "arXiv:2605.04066, second-hand: notes on the paper, whose text was not at hand (D46); rewards are those of the step"},
	{"turn", scoped, "scope=turn bound=clip", "grpo's with the geometric mean of each turn's ratios", "ours: a point of the plane of scope and mean"},

	{"real", lists, "list=margin list_temperature=0.5", "1/G sum_g log(1 + sum_(A <= 0) e^s) + log(1 + sum_(A > 0) e^-s), s = mean d / 0.5", "ms-swift's real (D81)"},
	{"tpo", lists, "list=target", "-1/G sum_g sum_i q_i log p_i, p = softmax(sum logp), q = softmax(sum old logp + standardized reward)", "arXiv:2604.06159, the authors' text (D82)"},

	{"verl_grpo", presets, "aggregate=token-mean advantage_eps=1e-06 bound=clip clip_dual=3", "-1/T sum max(min(r A, clip(r, 0.8, 1.2) A), 3 A if A < 0)", "verl 0.9.1, adv_estimator = grpo"},
	{"trl_grpo", presets, "aggregate=token-mean advantage_eps=0.0001 bound=clip kl_gradient=unbiased", "-1/T sum min(r A, clip(r, 0.8, 1.2) A)", "TRL 1.16, loss_type = dapo, the default"},
	{"art", presets, "aggregate=token-mean scope=sequence with_token=1 gradient=detached cap=5", "-1/T sum sg[min((r + S)/2, 5)] A logp, S = exp(mean d)", "ART 0.5.23, importance_sampling_level = average"},
}

// called are the names that keys have in an objective, where it had them before it was a
// point; a key without a name is not one of its settings. The key's own name is taken too.
var called = map[string]map[string]string{
	"dispo": {"cap": "", "floor": "", "cap_negative": "", "floor_negative": ""},
	"dppo":  {"clip_low": "tv_low", "clip_high": "tv_high"},
	"luspo": {"aggregate": "", "constant_length": ""},
	"m2po":  {"clip_low": "", "clip_high": "m2"},
	"opd":   {"clip_low": "tv_low", "clip_high": ""},
	"sapo":  {"gate_positive": "tau_positive", "gate_negative": "tau_negative"},
	"vespo": {"gate_positive": "lambda_positive", "gate_negative": "lambda_negative"},
}

func init() {
	for i := range rows {
		if r := &rows[i]; r.family != paper {
			objectives.Register(r.name, r.new)
		}
	}
}

// new returns the objective of a row.
func (r *row) new() objectives.Objective {
	o := New(r.point)
	o.row = r
	if r.name == "dispo" {
		return newDISPO(o)
	}
	return &o
}

// New returns the point that a text of settings, such as "bound=clip clip_high=0.28", states. It
// panics if the text does not: that is a mistake in the program.
func New(point string) Policy {
	o := Policy{Shared: objectives.Defaults("standardized"), tokenMean: tokenMean{"sequence-mean", 3000},
		RatioBound: objectives.RatioBound{ClipLow: 0.2, ClipHigh: 0.2}, parts: defaultParts}
	fields := settings.Fields(&o)
	for setting := range strings.FieldsSeq(point) {
		key, text, _ := strings.Cut(setting, "=")
		at := slices.IndexFunc(fields, func(f settings.Field) bool { return f.Key == key })
		if at < 0 {
			panic("policy: there is no setting " + setting)
		}
		if err := fields[at].Set(text); err != nil {
			panic(err)
		}
	}
	return o
}

// Called returns the names that the row has for keys, see called.
func (o *Policy) Called() map[string]string {
	if o.row == nil {
		return nil
	}
	return called[o.row.name]
}

// A dispo is the objective "dispo", whose bounds are distances from 1.
type dispo struct {
	Policy
	// LowPositive and HighPositive limit the ratio of a token to [1 - low, 1 + high] for
	// A >= 0, LowNegative and HighNegative for A < 0. Default 0.2, 10, 1, 100.
	LowPositive  float64 `toml:"low_positive" range:"[0,1]"`
	HighPositive float64 `toml:"high_positive" range:"[0,)"`
	LowNegative  float64 `toml:"low_negative" range:"[0,1]"`
	HighNegative float64 `toml:"high_negative" range:"[0,)"`
}

func newDISPO(o Policy) *dispo {
	d := &dispo{o, 0.2, 10, 1, 100}
	d.ownBounds = func(sign int) clip {
		if sign == aNotNegative {
			return clip{1 - d.LowPositive, 1 + d.HighPositive}
		}
		return clip{1 - d.LowNegative, 1 + d.HighNegative}
	}
	return d
}

// List returns the names by family, with the formula of each: those of the table, and names that it does not have.
func List(names []string) string {
	var b strings.Builder
	for i, r := range rows {
		if i == 0 || r.family != rows[i-1].family {
			fmt.Fprintln(&b, r.family)
		}
		fmt.Fprintf(&b, "  %-12s %s\n", r.name, r.loss)
	}
	fmt.Fprintln(&b, "formulas of your own")
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == name }) {
			fmt.Fprintf(&b, "  %-12s %s\n", name, map[string]string{"command": "what a program answers, in any language", "http": "what a server answers"}[name])
		}
	}
	return b.String()
}

// Describe returns the formula of an objective, its settings that differ from those of "policy", its source, and what the
// objectives that are nearest to it set otherwise, in lines; "" for a name that the table does not have.
func Describe(name string) string {
	at := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if at < 0 {
		return ""
	}
	r := rows[at]
	text := fmt.Sprintf("%s\n\n  %s\n\nsettings: %s\nsource: %s\n", r.family, r.loss, r.point, r.source)
	near := slices.Clone(rows)
	slices.SortStableFunc(near, func(x, y row) int { return len(r.differences(x)) - len(r.differences(y)) })
	for _, x := range near[1:4] { // near[0] is r
		text += fmt.Sprintf("%s differs in: %s\n", x.name, strings.Join(r.differences(x), " "))
	}
	text += "advantages: hierarchical is for onering weights, which takes roles and episodes: in a run all responses to a prompt have one role, where it is " +
		"centered (rae compares with the role's past)"
	if o, err := objectives.New(name); err == nil && objectives.NeedsOf(o).Whole {
		text += "; otb and gigpo, which tell tokens apart, are for objectives that weigh each token"
	}
	return text + "\n"
}

// differences lists the settings of x that r states otherwise or not at all, and with a minus those of r that x
// does not state.
func (r row) differences(x row) (list []string) {
	mine, others := strings.Fields(r.point), strings.Fields(x.point)
	key := func(setting string) string { return setting[:strings.Index(setting, "=")+1] }
	for _, setting := range others {
		if !slices.Contains(mine, setting) {
			list = append(list, setting)
		}
	}
	for _, setting := range mine {
		if !slices.ContainsFunc(others, func(o string) bool { return key(o) == key(setting) }) {
			list = append(list, "-"+setting)
		}
	}
	return list
}
