package cmd

import (
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/models"
	ort "onering/runtime"
	"onering/train"
)

// benchParts are what --part takes.
var benchParts = []string{"all", "decode", "score", "train", "step"}

func newBench() *cobra.Command {
	var config, dtype string
	var parts []string
	var options ort.Options
	o := train.DefaultBench()
	o.Log = slog.Info
	stash := int(o.Stash)
	c := &cobra.Command{
		Use:   "bench --config config.json",
		Short: "Measure prefill, decoding, forward, backward and update",
		Long: `Measure a model's shape with random weights, phase by phase. The parts are

  decode  the first token of a prompt, and decode steps by batch size
  score   a forward pass that keeps nothing: the log-probs of given tokens
  train   a forward and backward pass
  step    the same, and AdamW's update

and all is decode, score and step. Prints one JSON object: of one part its
figures, of several those under rollout, score and train. Each figure is logged
as it is there. peak_bytes is the most of the host's memory that the program has
had until then, not a GPU's. bench/compare.py puts PyTorch's figures beside
these, bench/gpu.sh runs it on a GPU.`,
		Example: `  onering bench --config bench/qwen2.5-0.5b/config.json
  onering bench --config Qwen2.5-1.5B --part decode --batch 8
  onering bench --config bench/qwen2.5-7b --device cuda --dtype bfloat16 --part score,step --offload`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for name, n := range map[string]int{"context": o.Context, "steps": o.Steps, "rows": o.Rows, "tokens": o.Tokens, "repeat": o.Repeat} {
				if n < 1 {
					return usagef("--%s %d: must be at least 1", name, n)
				}
			}
			for _, n := range o.Batch {
				if n < 1 {
					return usagef("--batch %d: must be at least 1", n)
				}
			}
			if err := checkDType(dtype, options.Device); err != nil {
				return err
			}
			if stash < int(models.StashInput) || stash > int(models.StashAll) {
				return usagef("--stash %d: must be 0, 1 or 2", stash)
			}
			o.Stash = models.Stash(stash)
			wanted, err := wantedParts(parts)
			if err != nil {
				return err
			}
			if o.Offload && !wanted["step"] {
				return usagef("--offload is about the update: it goes with --part step or all")
			}
			config, err := localTokenizer(c, config)
			if err != nil {
				return err
			}
			model, err := train.ReadModel(config)
			if err != nil {
				return err
			}
			env, err := openRuntime(c, options, dtype)
			if err != nil {
				return err
			}
			defer env.Close()
			compute, err := train.ComputeOn(env, dtype)
			if err != nil {
				return err
			}
			policy, err := train.RandomPolicy(model, compute, 0)
			if err != nil {
				return err
			}
			defer policy.Close()
			result := make(map[string]any)
			var failed error
			measure := func(part, name string, bench func() (any, error)) {
				if wanted[part] && failed == nil {
					result[name], failed = bench()
				}
			}
			measure("decode", "rollout", func() (any, error) { return train.BenchDecode(env, policy, o) })
			measure("score", "score", func() (any, error) { return train.BenchScore(env, policy, o) })
			measure("train", "train", func() (any, error) { return train.BenchTrain(c.Context(), env, policy, o, false) })
			measure("step", "train", func() (any, error) { return train.BenchTrain(c.Context(), env, policy, o, true) })
			var printed any = result
			if len(wanted) == 1 {
				for _, printed = range result {
				}
			}
			// What was measured is printed where a later part failed, too.
			if err := (lineWriter{c.OutOrStdout()}).write(printed); err != nil {
				return err
			}
			return failed
		},
	}
	flags := c.Flags()
	flags.StringVar(&config, "config", "", "config.json of a Qwen2 model, or its folder (required)")
	flags.StringSliceVar(&parts, "part", benchParts[:1], "what to measure: all, or some of "+strings.Join(benchParts[1:], ", "))
	flags.IntSliceVar(&o.Batch, "batch", o.Batch, "batch sizes of decoding")
	flags.IntVar(&o.Context, "context", o.Context, "tokens in the cache when decoding begins")
	flags.IntVar(&o.Steps, "steps", o.Steps, "decode steps to time")
	flags.IntVar(&o.Rows, "rows", o.Rows, "sequences of the training pass")
	flags.IntVar(&o.Tokens, "tokens", o.Tokens, "tokens of each sequence, and of the prompt")
	flags.IntVar(&stash, "stash", stash, "what the forward pass keeps: 0 layer inputs, 1 attention too, 2 everything")
	flags.IntVar(&o.Repeat, "repeat", o.Repeat, "passes to time after one that warms up; the fastest counts")
	flags.BoolVar(&o.Offload, "offload", false, "keep the moments of the update in the host's memory")
	flags.StringVar(&options.Library, "library", "", "ONNX Runtime library, in place of the usual places")
	flags.StringVar(&options.Device, "device", "cpu", "what to run on: cpu, cuda, cuda:N or auto")
	registerDType(c, &dtype)
	flags.IntVar(&options.Threads, "threads", runtime.NumCPU(), "threads of the kernels")
	must(c.RegisterFlagCompletionFunc("part", cobra.FixedCompletions(benchParts, cobra.ShellCompDirectiveNoFileComp)))
	must(c.MarkFlagRequired("config"))
	must(c.MarkFlagFilename("config", "json"))
	must(c.MarkFlagFilename("library"))
	return c
}

// wantedParts reads --part.
func wantedParts(parts []string) (map[string]bool, error) {
	wanted := make(map[string]bool)
	for _, p := range parts {
		if !slices.Contains(benchParts, p) {
			return nil, usagef("--part %q: must be one or several of %s", p, strings.Join(benchParts, ", "))
		}
		wanted[p] = true
	}
	if len(wanted) == 0 || wanted["all"] && len(wanted) > 1 || wanted["train"] && wanted["step"] {
		return nil, usagef("--part %q: name what to measure; all stands alone, and step is train and more", strings.Join(parts, ","))
	}
	if wanted["all"] {
		return map[string]bool{"decode": true, "score": true, "step": true}, nil
	}
	return wanted, nil
}
