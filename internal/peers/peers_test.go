package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// TestConfigs: each config of a peer gives the run file that is written for it.
func TestConfigs(t *testing.T) {
	for _, dir := range []string{"testdata", "../../../shared/goldens/field/configs"} {
		files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if len(files) == 0 {
			t.Logf("%s: no configs here", dir)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			peer, _, _ := strings.Cut(filepath.Base(file), "-")
			run, err := read(peer, string(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			wanted, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".toml")
			if err != nil {
				t.Fatal(err)
			}
			got, want := decode(t, []byte(run.TOML())), decode(t, wanted)
			if !reflect.DeepEqual(got, want) || len(run.Refused) > 0 {
				t.Errorf("%s:\n%s\nwant\n%s\nrefused: %v", file, run.TOML(), wanted, run.Refused)
			}
		}
	}
}

// decode reads a run file; whole numbers and decimals of one value are equal.
func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var m map[string]map[string]any
	if err := toml.Unmarshal(text, &m); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	flat := map[string]any{}
	for section, keys := range m {
		for key, v := range keys {
			if n, ok := v.(int64); ok {
				v = float64(n)
			}
			flat[section+"."+key] = v
		}
	}
	return flat
}

// TestRefused: keys that would give another gradient are named, each once.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ peer, text, want string }{
		{"trl", "max_steps: 8\nloss_type: bnpo\n", "loss_type"},
		{"trl", "max_steps: 8\nloss_type: grpo\ndelta: 1.1\nepsilon_high: 0.28\n", "delta"},
		{"trl", "max_steps: 8\nimportance_sampling_level: sequence\n", "importance_sampling_level"},
		{"trl", "max_steps: 8\nimportance_sampling_level: sequence\nloss_type: grpo\nbeta: 0.1\n", "use_bias_correction_kl"},
		{"trl", "max_steps: 8\nsync_ref_model: true\n", "sync_ref_model"},
		{"trl", "max_steps: 8\nper_device_train_batch_size: 12\n", "num_generations"},
		{"trl", "num_train_epochs: 2\n", "num_train_epochs"},
		{"trl", "max_steps: 8\nrepetition_penalty: 1.1\n", "repetition_penalty"},
		{"trl", "max_steps: 8\nlr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-7}\n", "lr_scheduler_kwargs"},
		{"trl", "max_steps: 8\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n", "lr_scheduler_kwargs"},
		{"trl", "max_steps: 8\nbetas: 0.1\n", "betas"},
		{"trl", "max_steps: 8\nlearning_rate: fast\n", "learning_rate"},
		{"trl", "max_steps: 8\noptim: adafactor\n", "optim"},
		{"trl", "max_steps: 8\nuse_peft: true\n", "lora_dropout"},
		{"trl", "max_steps: 8\nimportance_sampling_level: sequence_token\n", "importance_sampling_level"},
		{"verl", "trainer: {total_training_steps: 5}", "algorithm.adv_estimator"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {adv_estimator: grpo}\nactor_rollout_ref: {actor: {use_kl_loss: true, kl_loss_type: kl}}", "actor_rollout_ref.actor.kl_loss_type"},
		{"verl", "algorithm: {adv_estimator: grpo}", "trainer.total_epochs"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {adv_estimator: grpo, rollout_correction: {rollout_rs: token_k1, rollout_rs_threshold: 2}}", "algorithm.rollout_correction.rollout_rs_threshold"},
		{"verl", "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.total_training_steps=5 \\\n data.train_files=$DATA\n", "data.train_files"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {adv_estimator: grpo, rollout_correction: {rollout_is: geometric}}", "algorithm.rollout_correction.rollout_is"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {adv_estimator: grpo, rollout_correction: {bypass_mode: true, loss_type: reinforce}}", "algorithm.rollout_correction.loss_type"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {adv_estimator: reinforce_plus_plus, gamma: 0.9}", "algorithm.gamma"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {use_kl_in_reward: true, adv_estimator: rloo, kl_ctrl: {type: adaptive}}\nactor_rollout_ref: {actor: {use_kl_loss: true}}", "algorithm.kl_ctrl.type"},
		{"verl", "trainer: {total_training_steps: 5}\nalgorithm: {adv_estimator: grpo, }\nactor_rollout_ref: {rollout: {do_sample: false, ignore_eos: false}}", "actor_rollout_ref.rollout.do_sample"},
		{"verl", "trainer: {total_training_steps: 5, critic_warmup: 3}\nalgorithm: {adv_estimator: grpo}", "trainer.critic_warmup"},
	} {
		run, err := read(tt.peer, tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if len(run.Refused) != 1 || run.Refused[0].Key != tt.want || run.Refused[0].Reason == "" {
			t.Errorf("%s: refused %v, want %s", tt.text, run.Refused, tt.want)
		}
	}
	for _, text := range []string{"- a\n- b\n", "a: [", "\x00"} {
		if _, err := read("trl", text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// TestScript: the command line of verl in a script means what its YAML does, and overrides
// behind the file win.
func TestScript(t *testing.T) {
	const script = `set -x
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=a.parquet data.train_batch_size=64 \
    actor_rollout_ref.model.path="org/model" \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.optim.lr=3e-6 \
    +actor_rollout_ref.rollout.n=4 \
    trainer.n_gpus_per_node=8 \
    trainer.total_epochs=2
`
	run, err := Verl([]byte(script), []string{"trainer.total_training_steps=7"}, 0)
	if err != nil || len(run.Refused) > 0 {
		t.Fatal(err, run.Refused)
	}
	got := decode(t, []byte(run.TOML()))
	for key, want := range map[string]any{"model.path": "org/model", "rollout.samples_per_prompt": 4.0, "train.batch_size": 128.0,
		"optimizer.learning_rate": 3e-6, "train.rounds": 7.0, "data.train": "a.parquet", "objective.clip_dual": 3.0} {
		if got[key] != want {
			t.Errorf("%s = %v, want %v", key, got[key], want)
		}
	}
	if _, err := Verl([]byte(script), []string{"steps"}, 0); err == nil {
		t.Error("an override without a value is taken")
	}
}

// TestScriptOfShell: comments count for nothing, variables and products that the script states have their values, and
// what the shell alone knows is refused, but for keys without an effect.
func TestScriptOfShell(t *testing.T) {
	const script = `# trainer.total_epochs=9 isn't used
files="['a.parquet', 'b.parquet']"
n=$((2 * 4)); bsz=${BSZ:-32}
python3 -m recipe.dapo.main_dapo data.train_files="$files" data.truncation='left' data.filter_overlong_prompts=True \
    # algorithm.adv_estimator=gae \
    algorithm.adv_estimator=grpo data.train_batch_size=${bsz} actor_rollout_ref.model.path=m \
    actor_rollout_ref.actor.ppo_mini_batch_size=$bsz actor_rollout_ref.rollout.n=8 data.max_response_length=$((1024 * 2)) data.max_prompt_length=$((700)) \
    data.val_files=$HOME/x.parquet trainer.total_training_steps=7 $@
`
	run, err := Verl([]byte(script), nil, 0)
	if err != nil || len(run.Refused) > 0 {
		t.Fatal(err, run.Refused)
	}
	got := decode(t, []byte(run.TOML()))
	for key, want := range map[string]any{"rollout.prompts_per_round": 32.0, "rollout.max_new_tokens": 2048.0, "rollout.max_prompt_tokens": 700.0, "objective.name": "grpo"} {
		if got[key] != want {
			t.Errorf("%s = %v, want %v", key, got[key], want)
		}
	}
	if files := fmt.Sprint(got["data.train"]); files != "[a.parquet b.parquet]" {
		t.Errorf("data.train = %s", files)
	}
	run, err = Verl([]byte(script), []string{"actor_rollout_ref.model.path=${M:-$HOME/m}"}, 0)
	if err != nil || len(run.Refused) != 1 || !strings.Contains(run.Refused[0].Reason, "${M:-$HOME/m}") {
		t.Error(err, run.Refused)
	}
	const model = "actor_rollout_ref.model.path="
	if run, err = Verl([]byte(script), []string{model + "$HOME/m", model + "m"}, 0); err != nil || len(run.Refused) != 0 {
		t.Error("an override does not stand for the shell's value:", err, run.Refused)
	}
}

// TestVariablesOfOverrides: a variable may hold several overrides, one on each line or all on one.
func TestVariablesOfOverrides(t *testing.T) {
	const script = `ROLLOUT="actor_rollout_ref.rollout.n=4 \
  actor_rollout_ref.rollout.temperature=0.7"
OPTIM="
  actor_rollout_ref.actor.optim.lr=2e-6"
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.total_training_steps=5 data.train_files=a.parquet $ROLLOUT ${OPTIM}
`
	run, err := Verl([]byte(script), nil, 0)
	if err != nil || len(run.Refused) > 0 {
		t.Fatal(err, run.Refused)
	}
	got := decode(t, []byte(run.TOML()))
	for key, want := range map[string]any{"rollout.samples_per_prompt": 4.0, "rollout.temperature": 0.7, "optimizer.learning_rate": 2e-6} {
		if got[key] != want {
			t.Errorf("%s = %v, want %v", key, got[key], want)
		}
	}
}

// read translates a text of a peer without what is not in it.
func read(peer, text string) (*Run, error) {
	if peer == "trl" {
		return TRL([]byte(text), 1, 0)
	}
	return Verl([]byte(text), nil, 0)
}

// FuzzRead: whatever the text is, it is translated, refused or an error.
func FuzzRead(f *testing.F) {
	f.Add("max_steps: 8\n")
	f.Add("algorithm: {adv_estimator: grpo}\ntrainer: {total_training_steps: -5}\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, peer := range []string{"trl", "verl"} {
			if run, err := read(peer, text); err == nil {
				run.TOML()
			}
		}
	})
}
