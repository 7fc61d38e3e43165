package peers

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

var (
	// chatModel matches names of models that were taught a chat template.
	chatModel = regexp.MustCompile(`(?i)instruct|chat|-it\b|qwen3`)
	// hubData matches names of datasets on a hub, ORG/NAME, and no paths of files.
	hubData = regexp.MustCompile(`^[\w-][\w.-]*/[\w.-]+$`)
)

// TRL returns the run that arguments of TRL 1.16.0's GRPOConfig mean, in YAML or JSON. processes is how many
// processes the run has there, and rows how many rows the data has, 0 if that is not known.
func TRL(text []byte, processes, rows int) (*Run, error) {
	c, err := newConfig(text)
	if err != nil {
		return nil, err
	}
	path := c.text("model_name_or_path", "")
	c.model(path, chatModel.MatchString(path) && !strings.Contains(strings.ToLower(path), "base")) // only a chat model is asked by a chat template
	names := c.list("dataset_name")
	for i, name := range names {
		if hubData.MatchString(name) {
			names[i] = "hf:" + name
		}
	}
	c.data(names)
	if system := c.text("system_prompt", ""); system != "" { // of scripts around TRL
		c.set("model.system", system)
	}
	if column := c.text("dataset_prompt_column", "prompt"); column != "prompt" {
		c.set("data.prompt", column)
	}
	if split := c.text("dataset_train_split", "train"); split != "train" {
		c.set("data.split", split)
	}
	if name := c.text("dataset_config", ""); name != "" {
		c.note("the data is the configuration %s of its dataset: choose its files in data.train", name)
	}
	t := trl{config: c}
	t.sizes(processes) // sets t.prompts, t.batch, t.steps and t.iterations
	t.rollout()
	t.objective()
	c.noteRewards("reward_funcs", "reward_model_name_or_path")
	t.optimizer()
	c.rounds(c.count("max_steps", -1), t.steps, c.number("num_train_epochs", 3), rows, t.prompts, "num_train_epochs") // by max_steps if it is above 0
	c.set("train.batch_size", t.batch)
	c.set("train.epochs", t.iterations)
	c.setIf(c.on("mask_truncated_completions", false), "train.truncated", "mask")
	if !c.on("mask_truncated_completions", false) {
		c.note("TRL grades truncated responses; here they earn 0 with most rewards")
	}
	c.set("train.seed", c.count("seed", 42))
	return c.finish("TRL", trlIgnored), nil
}

// trlIgnored are keys of TRL, or their beginnings, that do not change what is learned.
var trlIgnored = strings.Fields(`output_dir overwrite_output_dir logging_ log_ save_ eval_ report_to run_name push_to_hub
	hub_ bf16 fp16 tf32 gradient_checkpointing use_vllm vllm_ dataset_ dataloader_ torch_ dtype attn_implementation ddp_
	deepspeed fsdp do_train do_eval disable_tqdm num_completions_to_print wandb_ trackio_ project shuffle_dataset
	remove_unused_columns ds3_gather_for_generation use_liger_kernel auto_find_batch_size cache_implementation
	pad_to_multiple_of per_device_eval_batch_size num_generations_eval resume_from_checkpoint data_seed
	use_transformers_ transformers_ trust_remote_code model_revision config quantization load_best_model_at_end
	metric_for_best_model greater_is_better cast_lm_head_to_fp32 max_tool_calling_iterations
	local_rank use_cpu average_tokens_across_devices`)

// trl is a config of TRL with what its counts come to.
type trl struct {
	*config
	prompts    int  // problems of a round, which TRL calls a generation
	batch      int  // responses of an optimizer step
	steps      int  // optimizer steps of a round
	iterations int  // passes over a round
	sequence   bool // the ratio is of the whole response
}

// sizes reads how many responses a generation, our round, and an optimizer step have.
func (t *trl) sizes(processes int) {
	if t.given("generation_batch_size") && t.given("steps_per_generation") {
		t.refuse("generation_batch_size", "TRL takes it or steps_per_generation, not both")
	}
	device := t.count("per_device_train_batch_size", 8) * processes // responses of a pass on all devices
	accumulate := t.count("gradient_accumulation_steps", 1)
	generation := t.count("generation_batch_size", device*t.count("steps_per_generation", accumulate))
	samples := t.count("num_generations", 8)
	t.batch, t.iterations = device*accumulate, t.count("num_iterations", 1)
	t.prompts = t.divided("num_generations", generation, samples, "a round is not whole groups")
	t.steps = t.iterations * t.divided("steps_per_generation", generation, t.batch, "a round is not whole steps")
	t.set("rollout.prompts_per_round", t.prompts)
	t.set("rollout.samples_per_prompt", samples)
}

// rollout reads how responses are sampled.
func (t *trl) rollout() {
	t.set("rollout.temperature", t.number("temperature", 1))
	t.carryUnless("top_p", "rollout.top_p", 1)
	if k := t.count("top_k", 0); k > 0 {
		t.set("rollout.top_k", k)
	}
	t.carryUnless("min_p", "rollout.min_p", 0)
	t.refuseUnless("repetition_penalty", 1.0, "onering trains on what was sampled from the policy alone")
	t.arguments("chat_template_kwargs")
	for _, key := range []string{"generation_kwargs", "vllm_structured_outputs_regex"} {
		t.refuseAny(key, "onering samples by the keys of [rollout] alone: move what it holds there, if it can")
	}
	t.setIf(t.given("max_prompt_length"), "rollout.max_prompt_tokens", t.count("max_prompt_length", 0))
	t.set("rollout.max_new_tokens", t.count("max_completion_length", 512))
	if t.steps > 1 || t.on("use_vllm", false) { // otherwise TRL computes no old log-probs, and the ratio is 1
		t.set("rollout.old_logp", "rescore")
	}
}

// objective reads the loss. It sets t.sequence, on which loss and penalties depend.
func (t *trl) objective() {
	level := t.text("importance_sampling_level", "token")
	if t.sequence = level == "sequence"; !t.sequence && level != "token" {
		t.refuse("importance_sampling_level", fmt.Sprintf("there is no level %q, but token and sequence", level))
	}
	low := t.number("epsilon", 0.2)
	high := t.number("epsilon_high", low)
	clips := t.loss(high)
	t.advantage()
	if clips {
		t.set("objective.clip_low", low)
		t.set("objective.clip_high", high)
	}
	t.dualClip(high, clips)
	t.penalties()
	t.importance()
	if t.carryUnless("top_entropy_quantile", "objective.top_entropy", 1) {
		t.note("TRL takes the quantile of a micro-batch's tokens, onering of a step's")
	}
	t.carryUnless("off_policy_mask_threshold", "objective.mask_off_policy", 0)
}

// loss sets the objective's name and aggregation, and reports whether it clips the ratio. high is epsilon_high.
func (t *trl) loss(high float64) (clips bool) {
	kind := t.text("loss_type", "dapo")
	switch kind {
	case "dapo", "cispo", "vespo":
		if t.steps > t.iterations {
			t.note("TRL's %s divides by the generation's tokens over its steps, onering by those of the step: equal only where a generation is one step", kind)
		}
	}
	if t.sequence && kind != "grpo" && kind != "luspo" && kind != "vespo" {
		t.refuse("importance_sampling_level", fmt.Sprintf("a ratio of the whole response with loss_type = %q: onering has it for grpo (gspo) and luspo", kind))
	}
	name := map[string]string{"dapo": "grpo", "dr_grpo": "drgrpo"}[kind] // dapo is grpo here with the mean of tokens
	switch kind {
	case "grpo":
		name = "grpo"
		if t.sequence {
			name = "gspo"
		}
	case "cispo", "sapo", "luspo", "vespo":
		name = kind
	case "dapo", "dr_grpo":
	case "bnpo":
		t.refuse("loss_type", "bnpo divides by the tokens of a micro-batch, so that its gradient depends on how a step is cut")
	default:
		t.refuse("loss_type", fmt.Sprintf("%q is not a loss of TRL 1.16.0", kind))
	}
	t.set("objective.name", name)
	switch kind {
	case "dapo":
		t.set("objective.aggregate", "token-mean")
	case "grpo":
		t.setIf(!t.sequence, "objective.aggregate", "sequence-mean")
	case "dr_grpo":
		t.set("objective.aggregate", "constant")
		t.set("objective.constant_length", t.count("max_completion_length", 512))
	case "cispo":
		t.set("objective.cap", high)
	case "sapo":
		t.set("objective.tau_positive", t.number("sapo_temperature_pos", 1))
		t.set("objective.tau_negative", t.number("sapo_temperature_neg", 1.05))
	case "luspo":
		if !t.sequence {
			t.refuse("loss_type", "luspo with ratios of tokens: onering's has the ratio of the whole response (importance_sampling_level = sequence)")
		}
	case "vespo":
		t.set("objective.k_positive", t.number("vespo_k_pos", 2))
		t.set("objective.lambda_positive", t.number("vespo_lambda_pos", 3))
		t.set("objective.k_negative", t.number("vespo_k_neg", 3))
		t.set("objective.lambda_negative", t.number("vespo_lambda_neg", 2))
	}
	return kind == "dapo" || kind == "grpo" || kind == "dr_grpo" || kind == "luspo"
}

// advantage reads how the rewards of a group become advantages.
func (t *trl) advantage() {
	scale := strings.ToLower(t.text("scale_rewards", "group"))
	switch t.text("multi_objective_aggregation", "sum_then_normalize") {
	case "sum_then_normalize":
	case "normalize_then_sum":
		t.set("objective.advantage", "gdpo")
		t.set("objective.advantage_eps", 1e-4)
		scale = "said" // gdpo says how, and scale_rewards does not count
	default:
		t.refuse("multi_objective_aggregation", "there are sum_then_normalize and normalize_then_sum")
	}
	switch scale {
	case "said":
	case "group", "true":
		t.set("objective.advantage", "standardized")
		t.set("objective.advantage_eps", 1e-4)
	case "batch":
		t.set("objective.advantage", "round-std")
		t.set("objective.advantage_eps", 1e-4)
	case "none", "false":
		t.set("objective.advantage", "centered")
	default:
		t.refuse("scale_rewards", "there are group, batch and none")
	}
	if weights := t.list("reward_weights"); len(weights) > 0 {
		t.note("reward_weights = %s are the weights of the parts of [reward]: rewards are Python there and not translated", strings.Join(weights, ", "))
	}
}

// dualClip reads delta. It is a dual clip where it lies above the upper bound of the ratio, 1+high; clips says whether
// the loss has bounds.
func (t *trl) dualClip(high float64, clips bool) {
	if !t.given("delta") {
		return
	}
	delta := t.number("delta", 0)
	switch {
	case !clips:
		t.note("delta has no effect on this loss_type")
	case delta < 1+high:
		t.refuse("delta", fmt.Sprintf("%v is below 1 + epsilon_high: TRL's min(ratio, delta) then also cuts responses "+
			"with a positive advantage, which a dual clip does not", delta))
	default:
		t.set("objective.clip_dual", delta)
	}
}

// penalties reads the KL penalty, the reference that moves, and the entropy bonus. It also reads keys of what is off,
// since finish refuses those that stay unread.
func (t *trl) penalties() {
	unbiased := t.on("use_bias_correction_kl", true)
	if beta := t.number("beta", 0); beta != 0 {
		t.set("objective.kl_beta", beta)
		t.set("objective.kl_form", "k3")
		switch {
		case unbiased && t.sequence:
			t.refuse("use_bias_correction_kl", "with importance_sampling_level = sequence TRL multiplies the estimator "+
				"by the response's ratio, whose gradient is not that of the KL: set it to false")
		case unbiased:
			t.set("objective.kl_gradient", "unbiased")
		default:
			t.set("objective.kl_gradient", "own")
		}
	}
	share, steps := t.number("ref_model_mixup_alpha", 0.6), t.count("ref_model_sync_steps", 512)
	switch {
	case !t.on("sync_ref_model", false):
	case t.number("beta", 0) == 0 || t.on("use_peft", false):
		t.refuse("sync_ref_model", "there is no reference to move without beta, nor beside an adapter (TRL refuses both, too)")
	default:
		t.set("model.reference_update", share)
		t.set("model.reference_steps", steps)
	}
	x, adaptive := t.number("entropy_coef", 0), t.on("use_adaptive_entropy", false)
	if x != 0 || adaptive {
		t.set("objective.entropy_bonus", x)
		t.note("TRL's entropy is a mean over a micro-batch's tokens, whatever loss_type is; onering's counts tokens as the loss does")
	}
	for _, k := range []struct {
		theirs, ours string
		value        float64
	}{{"target", "target", 0.2}, {"coef_delta", "step", 0.005}, {"coef_min", "least", 0}, {"coef_max", "most", 1}} {
		value := t.number("entropy_"+k.theirs, k.value)
		t.setIf(adaptive, "objective.entropy_"+k.ours, value)
	}
}

// importance reads the correction for log-probs of vLLM, which only a run with vLLM has. It reads all keys in any
// case, so that they are not refused.
func (t *trl) importance() {
	corrects := t.on("vllm_importance_sampling_correction", true) && t.on("use_vllm", false)
	mode := t.text("vllm_importance_sampling_mode", "sequence_mask")
	most := t.number("vllm_importance_sampling_clip_max", t.number("vllm_importance_sampling_cap", 3))
	least := t.number("vllm_importance_sampling_clip_min", 0)
	if !corrects {
		return
	}
	switch mode {
	case "token_mask", "token_truncate", "sequence_mask", "sequence_truncate":
		t.set("objective.importance", strings.ReplaceAll(mode, "_", "-"))
		t.set("objective.importance_cap", most)
		t.setIf(least > 0, "objective.importance_floor", least)
		t.note("the importance factor is that of vLLM's log-probs; onering's sampler is its learner, so here it is " +
			"1 to 1e-5, and matters for imported rollouts alone")
	default:
		t.refuse("vllm_importance_sampling_mode", fmt.Sprintf("there is no mode %q", mode))
	}
}

// optimizer reads AdamW, the schedule and LoRA. TRL's defaults of beta1 and eps are ours, so these are set only if
// they are given.
func (t *trl) optimizer() {
	if name := t.text("optim", "adamw_torch"); !strings.HasPrefix(name, "adamw") {
		t.refuse("optim", fmt.Sprintf("%q: this reader translates AdamW alone", name))
	}
	t.set("optimizer.learning_rate", t.number("learning_rate", 1e-6))
	t.setIf(t.given("adam_beta1"), "optimizer.beta1", t.number("adam_beta1", 0.9))
	t.set("optimizer.beta2", t.number("adam_beta2", 0.999))
	t.setIf(t.given("adam_epsilon"), "optimizer.eps", t.number("adam_epsilon", 1e-8))
	t.set("optimizer.weight_decay", t.number("weight_decay", 0))
	t.set("optimizer.max_grad_norm", t.number("max_grad_norm", 1))
	shape := t.text("lr_scheduler_type", "linear")
	if shape == "cosine_with_min_lr" {
		t.set("optimizer.floor", t.number("lr_scheduler_kwargs.min_lr_rate", 0))
		shape = "cosine"
	}
	t.refuseAny("lr_scheduler_kwargs", "min_lr_rate of cosine_with_min_lr is read, as optimizer.floor, and no other")
	warmup := cmp.Or(t.number("warmup_steps", 0), t.number("warmup_ratio", 0)) // below 1 a share of the steps
	t.schedule("lr_scheduler_type", shape, warmup)
	if warmup > 0 {
		t.note("the first warm-up step has rate 0 in TRL, and its share of the rate here")
	}
	t.passOver("disable_dropout") // no family that is read has dropout
	if t.on("use_peft", false) {
		t.set("lora.on", true)
		t.set("lora.rank", t.count("lora_r", 16))
		t.set("lora.alpha", t.count("lora_alpha", 32))
		if targets := t.list("lora_target_modules"); len(targets) > 0 {
			t.set("lora.targets", targets)
		}
		if x := t.number("lora_dropout", 0.05); x != 0 {
			t.refuse("lora_dropout", fmt.Sprintf("%v, TRL's default being 0.05: adapters are trained without dropout: set it to 0", x))
		}
	}
}
