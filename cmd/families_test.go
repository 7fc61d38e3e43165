package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// families are small configs for the characters of the embedded task; each has the parts
// that its family adds to Qwen2: scaled rotary embeddings, biases everywhere, norms of
// heads that are wider than the model, layers without rotary embedding, and two ids that
// end a response.
var families = map[string]string{
	"llama": `"model_type": "llama", "attention_bias": true, "mlp_bias": true, "num_key_value_heads": 2, "eos_token_id": [23, 24],
		"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}`,
	"qwen3":   `"model_type": "qwen3", "head_dim": 10, "num_key_value_heads": 1, "eos_token_id": 24, "tie_word_embeddings": true`,
	"smollm3": `"model_type": "smollm3", "no_rope_layer_interval": 2, "eos_token_id": 24, "num_key_value_heads": 1`,
	"gemma2": `"model_type": "gemma2", "sliding_window": 4, "head_dim": 10, "num_key_value_heads": 1, "eos_token_id": 24, "attn_logit_softcapping": 2.0,
		"final_logit_softcapping": 6.0`,
	"gemma3": `"model_type": "gemma3_text", "sliding_window": 3, "sliding_window_pattern": 2, "head_dim": 8, "num_key_value_heads": 2, "eos_token_id": 24,
		"rope_scaling": {"rope_type": "linear", "factor": 8.0}`,
	"wrapped": `"model_type": "gemma3", "eos_token_id": 24, "vision_config": {}, "text_config": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
		"num_attention_heads": 2, "vocab_size": 25, "max_position_embeddings": 64, "sliding_window": 5, "sliding_window_pattern": 2, "head_dim": 8, "num_key_value_heads": 1}`,
	"olmo3": `"model_type": "olmo3", "sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"], "eos_token_id": 24,
		"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}`,
	"granite": `"model_type": "granite", "embedding_multiplier": 4.0, "residual_multiplier": 0.7, "attention_multiplier": 0.3, "logits_scaling": 2.0, "eos_token_id": 24`,
	"lfm2":    `"model_type": "lfm2", "full_attn_idxs": [1], "block_ff_dim": 48, "block_multiple_of": 8, "num_key_value_heads": 1, "eos_token_id": 24`,
	"qwen3_5": `"model_type": "qwen3_5_text", "full_attention_interval": 2, "head_dim": 16, "num_key_value_heads": 1, "eos_token_id": 24, "initializer_range": 0.1,
		"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 6`,
	"phi3": `"model_type": "phi3", "partial_rotary_factor": 0.75, "original_max_position_embeddings": 60, "num_key_value_heads": 1, "eos_token_id": 24,
		"rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 2.0, 4.0]}`,
	"ministral3": `"model_type": "ministral3", "head_dim": 10, "num_key_value_heads": 1, "eos_token_id": 24, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4,
		"factor": 8.0, "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}`,
}

// familyFolder writes the config and the tokenizer of a family.
func familyFolder(t *testing.T, family string) string {
	t.Helper()
	dir := t.TempDir()
	vocab := map[string]int{"<pad>": 23, "<eos>": 24}
	for i, c := range `0123456789+-=;c\boxed{}` {
		vocab[string(c)] = i
	}
	text, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"config.json": `{"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 25,
			"max_position_embeddings": 64, "torch_dtype": "float32", ` + families[family] + `}`,
		"vocab.json": string(text), "merges.txt": "#version: 0.2\n",
		"tokenizer_config.json": `{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<eos>", "added_tokens_decoder": {"24": {"content": "<eos>", "special": true}}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// commandLine runs the program in a folder and returns what it printed.
func commandLine(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(append(args, "-q"), strings.NewReader(stdin), &stdout, &stderr); code != 0 {
		t.Fatalf("onering %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return stdout.String()
}

// TestFamilies: every family supports all commands that Qwen2 supports. Without
// ONERING_LONG=1 those that differ most stand for all.
func TestFamilies(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	for family := range families {
		if family != "smollm3" && family != "gemma2" && family != "qwen3_5" && os.Getenv("ONERING_LONG") == "" {
			continue
		}
		t.Run(family, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			config := familyFolder(t, family)
			commandLine(t, "", "init", "--config", config, "--seed", "3", "--out", at("fresh"))
			commandLine(t, commandLine(t, "", "data", "arithmetic", "-n", "64", "--seed", "1"), "sft", "--model", at("fresh"), "--data", "-", "--out", at("warm"), "--template", "no", "--lr", "3e-3")
			commandLine(t, "", "export", "--model", config, "--out", at("graphs"))

			checkScores(t, at("warm"))
			trainFamily(t, at)

			step := `{"prompt_ids": [1, 3, 1], "response_ids": [4, 2, 24], "weights": [0.5, -0.25, 0.125]}`
			commandLine(t, step, "step", "--model", at("whole/checkpoints/step-000004"), "--out", at("stepped"), "--lr", "0.01", "-")
			if sameFile(t, at("stepped/model.safetensors"), at("whole/checkpoints/step-000004/model.safetensors")) {
				t.Error("the step changed nothing")
			}
		})
	}
}

// checkScores: samples do not depend on how many are sampled at once, and log-probs of
// sampling and of scoring are equal.
func checkScores(t *testing.T, model string) {
	const prompts = `{"prompt": "123+456="}` + "\n" + `{"prompt": "9-1="}` + "\n" + `{"prompt": "1"}` + "\n"
	generate := []string{"generate", "--model", model, "-n", "5", "--seed", "5", "--max-tokens", "30", "-"}
	type response struct {
		Index int       `json:"index"`
		IDs   []int32   `json:"ids"`
		LogP  []float64 `json:"logp"`
	}
	lines := func(text string) (out []response) {
		for line := range strings.Lines(text) {
			var r response
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	many, one := lines(commandLine(t, prompts, generate...)), lines(commandLine(t, prompts, append(generate, "--slots", "1")...))
	var scored strings.Builder
	for i, r := range many {
		if fmt.Sprint(r.IDs) != fmt.Sprint(one[i].IDs) {
			t.Errorf("response %d is %v, with one slot %v", i, r.IDs, one[i].IDs)
		}
		ids, _ := json.Marshal(r.IDs)
		fmt.Fprintf(&scored, "%s, \"response_ids\": %s}\n", strings.TrimSuffix(strings.Split(prompts, "\n")[r.Index], "}"), ids)
	}
	for dtype, most := range map[string]float64{"float32": 1e-5, "float16": 0.05} {
		for i, r := range lines(commandLine(t, scored.String(), "score", "--model", model, "--dtype", dtype, "-")) {
			for k, logp := range r.LogP {
				if gap := math.Abs(logp - many[i].LogP[k]); !(gap <= most) || len(r.LogP) != len(many[i].IDs) {
					t.Errorf("%s: response %d, token %d: log-prob %v in scoring, %v in sampling", dtype, i, k, logp, many[i].LogP[k])
				}
			}
		}
	}
}

// trainFamily: a run that is stopped and resumed ends with the same bytes as one that is
// not, and the log-probs of training equal those of sampling.
func trainFamily(t *testing.T, at func(string) string) {
	train := func(out string, more ...string) string {
		return commandLine(t, "", append([]string{"train", "--out", at(out), "--set", "model.path=" + at("warm"), "--set", "rollout.prompts_per_round=8",
			"--set", "rollout.samples_per_prompt=4", "--set", "train.batch_size=16",
			// Untrained models earn no reward, but a run can train entropy.
			"--set", "objective.name=grpo", "--set", "objective.entropy_bonus=0.5", "--set", "train.save_every=1", "--set", "eval.suites="}, more...)...)
	}
	if text := train("dry", "--set", "train.rounds=2", "--dry-run"); !strings.Contains(text, "weights") {
		t.Errorf("the dry run prints\n%s", text)
	}
	train("whole", "--set", "train.rounds=2")
	train("parts", "--set", "train.rounds=1")
	commandLine(t, "", "train", "--resume", "--out", at("parts"), "--set", "train.rounds=2")
	const last = "/checkpoints/step-000004/model.safetensors"
	if !sameFile(t, at("whole"+last), at("parts"+last)) {
		t.Error("the resumed run ends with other weights")
	}
	if sameFile(t, at("whole"+last), at("warm/model.safetensors")) {
		t.Error("training changed nothing")
	}
	text, err := os.ReadFile(at("whole/metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for line := range bytes.Lines(text) {
		var record struct {
			Kind string  `json:"kind"`
			Gap  float64 `json:"logp_gap_max"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		if record.Kind == "round" {
			rounds++
			if record.Gap > 1e-4 || record.Gap == 0 {
				t.Errorf("logp_gap_max %g, want at most 1e-4", record.Gap)
			}
		}
	}
	if rounds != 2 {
		t.Errorf("%d rounds, want 2", rounds)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}
