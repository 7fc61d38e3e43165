package settings

import (
	"slices"
	"strings"
)

// foreignNames are the settings that stand for names of other trainers: TRL, transformers, verl,
// OpenRLHF, PEFT. A line has paths, of which the first that a configuration has counts, and
// the names; or names and what to say of them.
const foreignNames = `
optimizer.learning_rate: lr actor_lr actor_learning_rate learning_rate
optimizer.warmup: warmup_ratio warmup_steps lr_warmup_steps lr_warmup_steps_ratio lr_warmup_ratio
optimizer.schedule: lr_scheduler_type lr_scheduler warmup_style lr_decay_style
optimizer.floor: min_lr_ratio min_lr min_lr_rate lr_scheduler_kwargs
optimizer.max_grad_norm: grad_clip clip_grad max_norm gradient_clip_val
optimizer.beta1: adam_beta1 adam_betas betas
optimizer.beta2: adam_beta2
optimizer.eps: adam_epsilon
optimizer.name: optim optimizer
objective.kl_beta: beta kl_coef kl_loss_coef init_kl_coef init_kl_coeff kl_penalty_coef
objective.entropy_bonus: entropy_coeff entropy_coef entropy_loss_coef
objective.clip_low: epsilon clip_ratio clip_ratio_low cliprange eps_clip eps_clip_low
objective.clip_high: epsilon_high clip_ratio_high eps_clip_high
objective.advantage: scale_rewards norm_adv_by_std_in_grpo
objective.aggregate: loss_agg_mode
objective.name: loss_type adv_estimator advantage_estimator algorithm
rollout.samples_per_prompt: num_generations n group_size n_samples_per_prompt num_samples num_return_sequences
rollout.prompts_per_round: generation_batch_size train_batch_size rollout_batch_size
rollout.max_new_tokens: max_completion_length max_response_length response_length generate_max_len
rollout.max_prompt_tokens: max_prompt_length prompt_max_len
data.max_tokens: max_length max_seq_length max_len cutoff_len
train.rounds train.epochs: max_steps num_train_epochs num_epochs total_epochs total_training_steps num_episodes
train.epochs: num_iterations ppo_epochs mu
train.batch_size: per_device_train_batch_size mini_batch_size ppo_mini_batch_size steps_per_generation global_batch_size
train.micro_tokens: gradient_accumulation_steps ppo_micro_batch_size_per_gpu micro_batch_size per_device_eval_batch_size ppo_max_token_len_per_gpu micro_train_batch_size
train.truncated: mask_truncated_completions ignore_no_eos
train.eval_every: eval_steps test_freq eval_strategy
train.save_every train.save_steps: save_freq save_strategy save_interval
train.keep_last: save_total_limit max_actor_ckpt_to_keep max_ckpt_num
train.keep_best: load_best_model_at_end
model.path: model_name_or_path pretrain base_model pretrained
model.reference: ref_model reference_model teacher_model_name_or_path
model.dtype: bf16 fp16 torch_dtype dtype
model.template: chat_template apply_chat_template
data.train: dataset_name dataset train_files prompt_data train_dataset
data.eval eval.suites: eval_dataset val_files test_files
data.prompt: prompt_key input_key dataset_text_field
data.answer: label_key
data.assistant_only: completion_only_loss assistant_only_loss
output.dir: output_dir default_local_dir save_path
output.sink: report_to logger wandb_project use_wandb
lora.on: use_peft use_lora peft_config
lora.rank: lora_r lora_rank r
lora.alpha: lora_alpha
lora.targets: target_modules lora_target_modules
reward.name: reward_funcs reward_fn reward_model
runtime.threads: dataloader_num_workers
every step is logged: logging_steps logging_strategy logging_first_step
what fits is kept and the rest computed again, without a setting: gradient_checkpointing activation_checkpointing
rollouts are sampled in the process, over the weights that are trained: use_vllm vllm_mode vllm_gpu_memory_utilization gpu_memory_utilization tensor_model_parallel_size num_gpus
demonstrations are always packed: packing padding_free
there is no such setting: lora_dropout repetition_penalty weight_sync sync_ref_model
`

// foreign says which setting does what a key of another trainer does, as the end of a
// message, nothing if that is not known.
func (r *Resolved) foreign(key string) string {
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	for line := range strings.Lines(foreignNames) {
		answer, names, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.Contains(" "+names+" ", " "+key+" ") || key == "" {
			continue
		}
		if !strings.Contains(answer, ".") {
			return "; here " + answer
		}
		for path := range strings.FieldsSeq(answer) {
			if f := r.find(path); f != nil {
				return strings.TrimSuffix("; here it is "+path+": "+f.tag.Get("help"), ": ")
			}
			section, _, _ := strings.Cut(path, ".")
			if slices.ContainsFunc(r.sections, func(t Section) bool { return t.Name == section && plugOf(t.Pointer) != nil }) {
				return "; here it is " + path + ", which not every " + section + " has"
			}
		}
	}
	return ""
}

// Called says, as the end of a message, which setting a flag that there is not may mean.
func (r *Resolved) Called(flag string) string {
	hint := r.foreign(flag)
	for _, t := range r.sections {
		if path := t.Name + "." + strings.ReplaceAll(flag, "-", "_"); hint == "" && t.list == "" && r.find(path) != nil {
			hint = "; it is --set " + path + "=..."
		}
	}
	return hint
}

// find returns the setting at a path, nil if there is none.
func (r *Resolved) find(path string) *Field {
	for _, t := range r.sections {
		if key, ok := strings.CutPrefix(path, t.Name+"."); ok {
			if k := slices.Index(keysOf(t.Fields), key); k >= 0 {
				return &t.Fields[k]
			}
		}
	}
	return nil
}
