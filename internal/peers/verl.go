package peers

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What a script of verl is read by: its comments, its words, its settings such as data.train_batch_size=128, its variables.
var (
	shellComment = regexp.MustCompile(`(?m)(^|\s)#.*$`)
	shellWord    = regexp.MustCompile(`("[^"\n]*"|'[^'\n]*'|\$\(\([^)\n]*\)\)|\S)+`)
	overrideForm = regexp.MustCompile(`^\+{0,2}([A-Za-z_][\w.]*\.[\w.]+)=(.*)$`)
	product      = regexp.MustCompile(`\$\(\( *(\d+)(?: *\* *(\d+))? *\)\)`)
	variableUse  = regexp.MustCompile(`\$\{(\w+)(:-[^${}]*)?\}|\$(\w+)`)
	assignment   = regexp.MustCompile(`^([A-Za-z_]\w*)=(.*)$`)
	quotes       = strings.NewReplacer(`"`, "", "'", "")
)

// Verl returns the run that a config of verl 0.9.1's PPO trainer means: overrides of its
// defaults in YAML, or a script with its command line, and then further overrides, each
// key=value. rows is how many rows the data has, 0 if that is not known.
func Verl(text []byte, overrides []string, rows int) (*Run, error) {
	c := &config{values: map[string]any{}, unread: map[string]bool{}}
	var words []string // of a script; none for YAML
	if strings.Contains(string(text), "main_ppo") || strings.Contains(string(text), "main_dapo") {
		script := shellComment.ReplaceAllString(strings.ReplaceAll(string(text), "\r", ""), "")
		words = shellWord.FindAllString(strings.ReplaceAll(script, "\\\n", " "), -1)
	} else {
		var err error
		if c, err = newConfig(text); err != nil {
			return nil, err
		}
	}
	assigned := map[string]string{}
	for _, word := range words {
		text := expand(expand(quotes.Replace(word), assigned), assigned) // twice: a value may use a variable
		texts := []string{text}
		if strings.HasPrefix(word, "$") { // a variable may hold several overrides
			texts = strings.Fields(text)
		}
		for _, text := range texts {
			if m := assignment.FindStringSubmatch(text); m != nil {
				assigned[m[1]] = m[2]
			}
			c.override(text) // other words than key=value change nothing
		}
	}
	for _, text := range overrides {
		if !c.override(text) {
			return nil, fmt.Errorf("%q is not an override: want key=value, such as algorithm.adv_estimator=grpo", text)
		}
	}
	v := verl{c}
	v.translate(rows)
	return c.finish("verl", verlIgnored), nil
}

// override sets the key of a text key=value, and reports whether the text is one. It replaces an earlier value of the
// key, and takes back a refusal of that.
func (c *config) override(text string) bool {
	m := overrideForm.FindStringSubmatch(quotes.Replace(text))
	if m == nil {
		return false
	}
	c.Refused = slices.DeleteFunc(c.Refused, func(r Refusal) bool { return r.Key == m[1] })
	var value any
	if err := yaml.Unmarshal([]byte(m[2]), &value); err != nil || strings.ContainsAny(m[2], "$`") {
		value = nil
		if !beginsWithAny(m[1], verlIgnored) { // such a key changes nothing here, whatever its value is
			c.refuse(m[1], fmt.Sprintf("its value %s is the shell's: write it out", m[2]))
		}
	}
	c.values[m[1]], c.unread[m[1]] = value, true
	return true
}

// expand puts the values of variables, their defaults, and products of numbers such as $((4 * 8)) in the places where
// a shell would; what it does not know stays.
func expand(text string, assigned map[string]string) string {
	text = variableUse.ReplaceAllStringFunc(text, func(use string) string {
		m := variableUse.FindStringSubmatch(use)
		return cmp.Or(assigned[m[1]+m[3]], strings.TrimPrefix(m[2], ":-"), use)
	})
	return product.ReplaceAllStringFunc(text, func(use string) string {
		m := product.FindStringSubmatch(use)
		a, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(cmp.Or(m[2], "1"))
		return strconv.Itoa(a * b)
	})
}

// verlIgnored are keys of verl, or their beginnings, that do not change what is learned.
var verlIgnored = strings.Fields(`hydra _target_ trainer. ray_ ray_kwargs global_profiler transfer_queue critic. reward. reward_model.
	custom_reward_function actor_rollout_ref.hybrid_engine actor_rollout_ref.nccl_timeout actor_rollout_ref.ref.
	actor_rollout_ref.rollout.name actor_rollout_ref.rollout.mode actor_rollout_ref.rollout.gpu_ actor_rollout_ref.rollout.tensor_
	actor_rollout_ref.rollout.log_prob_ actor_rollout_ref.rollout.max_ actor_rollout_ref.rollout.enforce_
	actor_rollout_ref.rollout.free_ actor_rollout_ref.rollout.enable_ actor_rollout_ref.rollout.val_kwargs
	actor_rollout_ref.rollout.dtype actor_rollout_ref.rollout.load_ actor_rollout_ref.rollout.engine_kwargs
	actor_rollout_ref.rollout.n_gpus_ actor_rollout_ref.rollout.nnodes actor_rollout_ref.rollout.disable_
	actor_rollout_ref.rollout.layered_ actor_rollout_ref.rollout.data_parallel actor_rollout_ref.rollout.seed
	actor_rollout_ref.rollout.calculate_log_probs actor_rollout_ref.rollout.agent
	actor_rollout_ref.rollout.checkpoint_engine actor_rollout_ref.rollout.trace actor_rollout_ref.rollout.skip_
	actor_rollout_ref.rollout.full_determinism actor_rollout_ref.rollout.logprobs_mode actor_rollout_ref.rollout.scheduling_
	actor_rollout_ref.rollout.multi_stage_ actor_rollout_ref.rollout.swap_space
	actor_rollout_ref.model.enable_ actor_rollout_ref.model.use_ actor_rollout_ref.model.trust_ actor_rollout_ref.model.tokenizer
	actor_rollout_ref.actor.ppo_micro_ actor_rollout_ref.actor.ppo_max_token actor_rollout_ref.actor.use_dynamic
	actor_rollout_ref.actor.fsdp actor_rollout_ref.actor.megatron actor_rollout_ref.actor.strategy
	actor_rollout_ref.actor.checkpoint actor_rollout_ref.actor.profiler actor_rollout_ref.actor.use_torch
	actor_rollout_ref.actor.use_fused actor_rollout_ref.actor.use_remove actor_rollout_ref.actor.ulysses
	actor_rollout_ref.actor.entropy_ actor_rollout_ref.actor.data_loader_seed actor_rollout_ref.actor.calculate_
	actor_rollout_ref.actor.use_prefix_grouper actor_rollout_ref.actor.optim.total_ actor_rollout_ref.actor.optim.optimizer_impl
	actor_rollout_ref.actor.optim.zero_
	algorithm.gamma algorithm.lam algorithm.filter_groups.m
	data.val_ data.image data.video data.return_ data.dataloader data.filter_overlong_prompts_workers data.trust_ data.shuffle
	data.validation data.reward_fn_key data.gen_batch_size data.tool_ data.function_ data.use_shm data.tokenizer`)

// The beginnings of keys of verl.
const (
	actorKey      = "actor_rollout_ref.actor."
	rolloutKey    = "actor_rollout_ref.rollout."
	correctionKey = "algorithm.rollout_correction."
)

// verl is a config of verl.
type verl struct{ *config }

// translate reads the config and sets what it means. rows is how many rows the data has, 0 if that is not known.
func (v verl) translate(rows int) {
	v.model(v.text("actor_rollout_ref.model.path", ""), true) // asked by its chat template, as all models there
	v.data(v.list("data.train_files"))
	v.adapter()
	if key := v.text("data.prompt_key", "prompt"); key != "prompt" {
		v.set("data.prompt", key)
	}
	prompts, samples := v.count("data.train_batch_size", 1024), v.count(rolloutKey+"n", 1)
	v.set("rollout.prompts_per_round", prompts)
	v.set("rollout.samples_per_prompt", samples)
	v.rollout()
	v.objective()
	v.penalties()
	v.correction()
	v.optimizer()
	mini := v.count(actorKey+"ppo_mini_batch_size", 256)
	v.divided(actorKey+"ppo_mini_batch_size", prompts, mini, "a round is not whole mini-batches")
	const stepsPerRound = 1 // a step of verl's trainer is a round
	v.rounds(v.count("trainer.total_training_steps", -1), stepsPerRound, v.number("trainer.total_epochs", 30), rows, prompts, "trainer.total_epochs")
	v.set("train.batch_size", mini*samples)
	v.set("train.epochs", v.count(actorKey+"ppo_epochs", 1))
	shuffle := "prompts"
	if v.on(actorKey+"shuffle", false) {
		shuffle = "responses"
	}
	v.set("train.shuffle", shuffle)
	v.setIf(v.given("data.seed"), "data.seed", v.count("data.seed", 0))
}

// adapter reads LoRA's settings, which stand beside the model.
func (v verl) adapter() {
	const model = "actor_rollout_ref.model."
	rank, alpha, targets := v.count(model+"lora_rank", 0), v.count(model+"lora_alpha", 16), v.list(model+"target_modules")
	if rank > 0 {
		v.set("lora.on", true)
		v.set("lora.rank", rank)
		v.set("lora.alpha", alpha)
		v.setIf(len(targets) > 0, "lora.targets", targets)
	}
}

// rollout reads how responses are sampled, and whose log-probs count as the old ones.
func (v verl) rollout() {
	v.set("rollout.temperature", v.number(rolloutKey+"temperature", 1))
	v.carryUnless(rolloutKey+"top_p", "rollout.top_p", 1)
	if k := v.count(rolloutKey+"top_k", -1); k > 0 {
		v.set("rollout.top_k", k)
	}
	v.set("rollout.max_prompt_tokens", v.count("data.max_prompt_length", 512))
	v.set("rollout.max_new_tokens", v.count("data.max_response_length", 512))
	if cut := v.text("data.truncation", "error"); !v.on("data.filter_overlong_prompts", false) && cut != "error" {
		v.note("verl cuts prompts that are too long; onering leaves them out, and says how many")
	}
	v.arguments("data.apply_chat_template_kwargs")
	v.refuseUnless(rolloutKey+"multi_turn.enable", "false", "choose an environment with [environment]")
	v.refuseUnless(rolloutKey+"ignore_eos", false, "responses end at the end-of-sequence token")
	v.refuseUnless(rolloutKey+"do_sample", true, "greedy responses to a prompt are all the same: onering samples")
	old := "rescore"
	if v.on(correctionKey+"bypass_mode", false) {
		old = "rollout"
		v.refuseUnless(correctionKey+"loss_type", "ppo_clip", "in bypass_mode it takes the place of loss_mode: onering reads ppo_clip alone")
	}
	v.passOver(correctionKey + "loss_type") // without bypass_mode it has no effect
	v.set("rollout.old_logp", old)
}

// advantageRules are the advantages of verl that have a name here; the others are refused.
var advantageRules = map[string]string{"grpo": "standardized", "grpo_passk": "pass-k", "rloo": "rloo", "rloo_vectorized": "rloo", "opo": "opo",
	"remax": "remax", "gdpo": "gdpo", "reinforce_plus_plus": "reinforce++", "reinforce_plus_plus_baseline": "reinforce++-baseline",
	"optimal_token_baseline": "otb", "gpg": "centered"}

// objective reads the advantage, the loss and its bounds.
func (v verl) objective() {
	estimator := strings.ToLower(v.text("algorithm.adv_estimator", "gae"))
	mode := v.text(actorKey+"policy_loss.loss_mode", "vanilla")
	if estimator == "gpg" && mode == "vanilla" {
		v.note("verl's advantage gpg with loss_mode vanilla clips ratios, as the settings here do; the paper's GPG has loss_mode gpg")
	}
	v.bounds(mode)
	rule, ok := advantageRules[estimator]
	byDeviation := v.on("algorithm.norm_adv_by_std_in_grpo", true)
	switch {
	case estimator == "gae":
		v.refuse("algorithm.adv_estimator", "gae, verl's default, needs a critic: onering compares the responses to a prompt, as grpo, rloo and others do")
		return
	case !ok:
		v.refuse("algorithm.adv_estimator", fmt.Sprintf("%q has no counterpart", estimator))
		return
	case estimator == "grpo" && !byDeviation:
		rule = "centered"
	case estimator == "grpo_passk" && !byDeviation:
		v.set("objective.advantage_std", "none")
	}
	v.set("objective.advantage", rule)
	v.setIf(rule == "standardized" || rule == "gdpo" || rule == "pass-k" && byDeviation, "objective.advantage_eps", 1e-6)
	v.setIf(rule == "otb", "objective.advantage_tail", "none")
	if estimator == "reinforce_plus_plus" {
		v.refuseUnless("algorithm.gamma", 1, "rewards are not discounted over tokens")
	}
	v.refuseUnless("trainer.critic_warmup", 0, "verl leaves the policy as it is in these steps")
	v.noteRewards("custom_reward_function.path", "reward.custom_reward_function.path", "reward_model.model.path", "reward.reward_model.model_path")
	for _, buffer := range []string{"reward_model.overlong_buffer", "reward_model.reward_kwargs.overlong_buffer_cfg", "reward.reward_kwargs.overlong_buffer_cfg"} {
		if v.on(buffer+".enable", false) {
			v.note("the overlong buffer lowers rewards, which are not translated: it is overlong_length and overlong_cache of the objective dapo")
		}
	}
	v.refuseUnless("algorithm.use_pf_ppo", "false", "PF-PPO chooses responses by their rewards: there is no such choice")
}

// aggregate reads what a token counts.
func (v verl) aggregate() {
	switch mode := v.text(actorKey+"loss_agg_mode", "token-mean"); mode {
	case "token-mean", "token-sum":
		v.set("objective.aggregate", mode)
	case "seq-mean-token-mean":
		v.set("objective.aggregate", "sequence-mean")
		v.note("verl's mean over a sequence adds 1e-8 to its length")
	case "seq-mean-token-sum":
		v.set("objective.aggregate", "constant")
		v.set("objective.constant_length", 1)
	case "seq-mean-token-sum-norm":
		v.set("objective.aggregate", "constant")
		v.set("objective.constant_length", v.count(actorKey+"loss_scale_factor", v.count("data.max_response_length", 512)))
	default:
		v.refuse(actorKey+"loss_agg_mode", fmt.Sprintf("there is no mode %q", mode))
	}
	v.passOver(actorKey + "loss_scale_factor")
}

// bounds sets the objective's name and what bounds its ratio, by verl's loss_mode. It reads the keys of all modes, so
// that finish does not refuse those of others as unread.
func (v verl) bounds(mode string) {
	if v.given(actorKey+"clip_ratio") && !v.given(actorKey+"clip_ratio_low") && !v.given(actorKey+"clip_ratio_high") {
		v.note("clip_ratio alone changes nothing in verl, whose clip_ratio_low and _high are 0.2 by themselves: the settings follow the code")
	}
	v.passOver(actorKey + "clip_ratio")
	low, high, dual := v.number(actorKey+"clip_ratio_low", 0.2), v.number(actorKey+"clip_ratio_high", 0.2), v.number(actorKey+"clip_ratio_c", 3)
	name := map[string]string{"vanilla": "grpo", "geo_mean": "gmpo", "dppo_tv": "dppo", "dppo_kl": "dppo", "clip_cov": "grpo", "kl_cov": "grpo"}[mode]
	switch mode {
	case "gspo", "gpg", "sapo", "cispo", "dro":
		name = mode
	}
	if name == "" {
		v.refuse(actorKey+"policy_loss.loss_mode", fmt.Sprintf("%q has no counterpart", mode)) // go on, to report all that is refused
	}
	v.setName(name)
	switch mode {
	case "cispo":
		v.set("objective.floor", 1-low)
		v.set("objective.cap", 1+high)
	case "dppo_tv", "dppo_kl":
		v.setIf(mode == "dppo_kl", "objective.measure", "kl")
		v.set("objective.clip_low", low)
		v.set("objective.clip_high", high)
		v.set("objective.cap", dual)
		if !v.given(actorKey + "clip_ratio_c") {
			v.note("verl caps %s at clip_ratio_c, 3 by its config, where the paper and the code have 20: the settings follow the config", mode)
		}
	case "sapo":
		v.set("objective.tau_positive", v.number(actorKey+"tau_pos", 1))
		v.set("objective.tau_negative", v.number(actorKey+"tau_neg", 1.05))
	case "dro":
		v.set("objective.drift", v.number(actorKey+"policy_loss.dro_beta", 0)/2)
	case "gpg":
	case "geo_mean":
		v.set("objective.clip", math.Max(low, high))
		if low != high {
			v.refuse(actorKey+"clip_ratio_low", "gmpo's bound of the log ratio is one number on both sides")
		}
	case "kl_cov": // verl's has no clip
		v.set("objective.clip_low", 1.0)
		v.set("objective.clip_high", 1e300)
	default:
		v.set("objective.clip_low", low)
		v.set("objective.clip_high", high)
		v.setIf(mode == "vanilla" || mode == "clip_cov", "objective.clip_dual", dual)
		v.setIf(mode == "gspo", "objective.token_level", true)
	}
	v.masks(mode)
	for _, key := range []string{"clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef", "dro_beta"} {
		v.passOver(actorKey + "policy_loss." + key) // keys of other modes
	}
	v.passOver(actorKey+"tau_pos", actorKey+"tau_neg")
}

// setName sets the objective's name, dapo in place of grpo where groups are left out, and how the loss weighs tokens.
func (v verl) setName(name string) {
	filters := v.on("algorithm.filter_groups.enable", false)
	switch {
	case filters && name == "grpo":
		name = "dapo"
		v.note("verl samples further prompts until a batch is full of groups that teach; onering's dynamic_sampling leaves out the others")
	case filters:
		v.refuse("algorithm.filter_groups.enable", "groups with equal rewards are left out with grpo's clip alone (dapo)")
	}
	v.set("objective.name", name)
	v.setIf(filters, "objective.dynamic_sampling", true)
	switch name {
	case "gspo", "gmpo": // their loss weighs each response the same, whatever loss_agg_mode is
		mode := v.text(actorKey+"loss_agg_mode", "token-mean")
		if penalties := v.on(actorKey+"use_kl_loss", false) || v.number(actorKey+"entropy_coeff", 0) != 0; penalties && mode != "seq-mean-token-mean" {
			v.note("verl counts the tokens of the KL and of the entropy by loss_agg_mode, %s; here they count as those of the loss, each response the same", mode)
		}
	case "gpg":
		v.refuseUnless(actorKey+"loss_agg_mode", "token-mean", "gpg divides by the step's tokens")
		// The name is that of loss_mode; what rescales is the estimator, which may be another one.
		v.set("objective.rescale", strings.EqualFold(v.text("algorithm.adv_estimator", ""), "gpg"))
	default:
		v.aggregate()
	}
}

// masks sets what verl's covariance losses leave out.
func (v verl) masks(mode string) {
	if mode == "clip_cov" {
		v.set("objective.clip_cov", v.number(actorKey+"policy_loss.clip_cov_ratio", 0.0002))
		v.set("objective.clip_cov_low", v.number(actorKey+"policy_loss.clip_cov_lb", 1))
		v.set("objective.clip_cov_high", v.number(actorKey+"policy_loss.clip_cov_ub", 5))
	}
	if mode == "kl_cov" {
		v.set("objective.kl_cov", v.number(actorKey+"policy_loss.kl_cov_ratio", 0.0002))
		v.set("objective.kl_cov_beta", v.number(actorKey+"policy_loss.ppo_kl_coef", 0.1))
	}
}

// penalties reads the KL penalty, in the loss or in the reward, and the entropy bonus. It also reads keys of what is
// off, since finish refuses those that stay unread.
func (v verl) penalties() {
	beta, form := v.number(actorKey+"kl_loss_coef", 0.001), v.text(actorKey+"kl_loss_type", "low_var_kl")
	if v.on(actorKey+"use_kl_loss", false) {
		v.set("objective.kl_beta", beta)
		form, straight := strings.CutSuffix(form, "+")
		switch form {
		case "low_var_kl", "k3":
			v.set("objective.kl_form", "k3")
			v.set("objective.kl_cap", 10.0)
			v.note("verl caps k3 at 10, beyond which its slope is 0; the settings follow the code")
		case "mse", "k2":
			v.set("objective.kl_form", "k2")
		case "abs":
			v.set("objective.kl_form", "abs")
		case "kl", "k1":
			if !straight {
				v.refuse(actorKey+"kl_loss_type", "k1 as a loss has a gradient that does not depend on the reference: take low_var_kl, or kl+ for k2's gradient")
			}
			v.set("objective.kl_form", "k1")
		default:
			v.refuse(actorKey+"kl_loss_type", fmt.Sprintf("there is no form %q", form))
		}
		v.setIf(straight, "objective.kl_gradient", "k2")
	}
	penalty, coefficient := v.text("algorithm.kl_penalty", "kl"), v.number("algorithm.kl_ctrl.kl_coef", 0.001)
	control, target, horizon := v.text("algorithm.kl_ctrl.type", "fixed"), v.number("algorithm.kl_ctrl.target_kl", 0.1),
		v.number("algorithm.kl_ctrl.horizon", 10000)
	if v.on("algorithm.use_kl_in_reward", false) {
		if penalty != "kl" {
			v.refuse("algorithm.kl_penalty", fmt.Sprintf("%q in the reward: onering's kl_reward has k1 (kl) alone", penalty))
		}
		v.set("objective.kl_reward", coefficient)
		if control == "adaptive" {
			if v.on(actorKey+"use_kl_loss", false) {
				v.refuse("algorithm.kl_ctrl.type", "adaptive: kl_target would move kl_beta, the coefficient in the loss, too")
			}
			v.set("objective.kl_target", target)
			v.set("objective.kl_horizon", horizon)
		}
	}
	v.carryUnless(actorKey+"entropy_coeff", "objective.entropy_bonus", 0)
}

// correction reads the factors and rejections for rollouts of another program. A threshold of two numbers, low_high,
// is a band.
func (v verl) correction() {
	level, threshold := v.text(correctionKey+"rollout_is", ""), v.text(correctionKey+"rollout_is_threshold", "2.0")
	if v.on(correctionKey+"rollout_is_batch_normalize", false) {
		v.refuse(correctionKey+"rollout_is_batch_normalize", "factors are not divided by their mean")
	}
	switch level {
	case "", "none":
	default:
		v.refuse(correctionKey+"rollout_is", fmt.Sprintf("there is no level %q, but token and sequence", level))
	case "token", "sequence":
		low, high, band := strings.Cut(threshold, "_")
		if !band {
			low, high = "", low
		}
		kind := level + "-truncate"
		if band {
			kind = level + "-mask"
		}
		v.set("objective.importance", kind)
		v.set("objective.importance_cap", v.decimal(correctionKey+"rollout_is_threshold", high))
		if band {
			v.set("objective.importance_floor", v.decimal(correctionKey+"rollout_is_threshold", low))
		}
	}
	option, bound := v.text(correctionKey+"rollout_rs", ""), v.text(correctionKey+"rollout_rs_threshold", "")
	if option == "" {
		return
	}
	parts := strings.Split(strings.TrimPrefix(option, "seq_"), "_") // such as seq_mean_k1: how a sequence is reduced, and of what
	reduce, form := strings.Join(parts[:len(parts)-1], "_"), parts[len(parts)-1]
	if strings.Contains(option, ",") || reduce == "" {
		v.refuse(correctionKey+"rollout_rs", fmt.Sprintf("%q: onering rejects by one rule", option))
		return
	}
	v.set("objective.reject", form)
	v.set("objective.reject_reduce", reduce)
	if form != "k1" {
		v.set("objective.reject_high", v.decimal(correctionKey+"rollout_rs_threshold", bound))
		return
	}
	low, high, band := strings.Cut(bound, "_")
	if !band {
		v.refuse(correctionKey+"rollout_rs_threshold", "k1 needs a band, low_high")
		return
	}
	v.set("objective.reject_low", 1/v.decimal(correctionKey+"rollout_rs_threshold", high))
	v.set("objective.reject_high", 1/v.decimal(correctionKey+"rollout_rs_threshold", low))
	v.note("verl's band for k1 bounds the inverse of the ratio that its documentation names: the settings follow the code")
}

// decimal reads text, a number of a key that has several, and refuses the key if it is not positive.
func (v verl) decimal(key, text string) float64 {
	var x float64
	if _, err := fmt.Sscan(text, &x); err != nil || x <= 0 {
		v.refuse(key, fmt.Sprintf("%q is not a positive number", text))
		return 1
	}
	return x
}

// optimizer reads AdamW and the schedule.
func (v verl) optimizer() {
	const optim = actorKey + "optim."
	if name := v.text(optim+"optimizer", "AdamW"); name != "AdamW" {
		v.refuse(optim+"optimizer", fmt.Sprintf("%q: this reader translates AdamW alone", name))
	}
	betas := v.list(optim + "betas")
	if len(betas) != 2 {
		betas = []string{"0.9", "0.999"}
	}
	v.set("optimizer.learning_rate", v.number(optim+"lr", 1e-6))
	v.set("optimizer.beta1", v.decimal(optim+"betas", betas[0]))
	v.set("optimizer.beta2", v.decimal(optim+"betas", betas[1]))
	v.set("optimizer.weight_decay", v.number(optim+"weight_decay", 0.01))
	v.set("optimizer.max_grad_norm", v.number(actorKey+"grad_clip", v.number(optim+"clip_grad", 1)))
	v.passOver(optim + "clip_grad")
	warmup := v.number(optim+"lr_warmup_steps", -1)
	if warmup < 0 {
		warmup = v.number(optim+"lr_warmup_steps_ratio", 0)
	}
	v.passOver(optim + "lr_warmup_steps_ratio")
	shape := v.text(optim+"lr_scheduler_type", v.text(optim+"warmup_style", "constant"))
	v.passOver(optim + "warmup_style")
	v.schedule(optim+"lr_scheduler_type", shape, warmup)
	v.refuseUnless(optim+"num_cycles", 0.5, "a cosine goes down once")
	if floor := v.number(optim+"min_lr_ratio", 0); floor > 0 && shape == "cosine" {
		v.set("optimizer.floor", floor)
	}
}
