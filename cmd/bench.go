package cmd

import (
	"runtime"

	"github.com/spf13/cobra"

	"onering/models"
	ort "onering/runtime"
	"onering/runtime/train"
)

func newBench() *cobra.Command {
	var config, part, dtype string
	var options ort.Options
	o := train.DefaultBench()
	stash := int(o.Stash)
	c := &cobra.Command{
		Use:   "bench --config config.json",
		Short: "Measure prefill, decoding, forward, backward and update",
		Long: `Measure a model's shape with random weights, phase by phase: prefill and
decoding, the forward and backward pass of training, and the update. Prints one
JSON object. bench/compare.py puts PyTorch's figures beside these.`,
		Example: "  onering bench --config bench/qwen2.5-0.5b/config.json\n  onering bench --config Qwen2.5-1.5B --part decode --batch 8",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for name, n := range map[string]int{"context": o.Context, "steps": o.Steps, "rows": o.Rows, "tokens": o.Tokens} {
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
			options.TF32 = dtype != "float32"
			if stash < int(models.StashInput) || stash > int(models.StashAll) {
				return usagef("--stash %d: must be 0, 1 or 2", stash)
			}
			o.Stash = models.Stash(stash)
			if part != "all" && part != "decode" && part != "train" {
				return usagef("--part %q: must be all, decode or train", part)
			}
			config, err := localTokenizer(c, config)
			if err != nil {
				return err
			}
			shape, err := train.ReadModel(config)
			if err != nil {
				return err
			}
			env, err := openRuntime(c, options)
			if err != nil {
				return err
			}
			defer env.Close()
			if shape, err = train.Adapt(shape, env, dtype); err != nil {
				return err
			}
			policy, err := train.RandomPolicy(shape, 0)
			if err != nil {
				return err
			}
			defer policy.Close()
			out := lineWriter{c.OutOrStdout()}
			switch part {
			case "decode":
				b, err := train.BenchDecode(env, policy, o)
				return writeResult(out, b, err)
			case "train":
				b, err := train.BenchTrain(env, policy, o, false)
				return writeResult(out, b, err)
			}
			decode, err := train.BenchDecode(env, policy, o)
			if err != nil {
				return err
			}
			step, err := train.BenchTrain(env, policy, o, true)
			return writeResult(out, map[string]any{"rollout": decode, "train": step}, err)
		},
	}
	flags := c.Flags()
	flags.StringVar(&config, "config", "", "config.json of a Qwen2 model, or its folder (required)")
	flags.StringVar(&part, "part", "all", "what to measure: all, decode or train")
	flags.IntSliceVar(&o.Batch, "batch", o.Batch, "batch sizes of decoding")
	flags.IntVar(&o.Context, "context", o.Context, "tokens in the cache when decoding begins")
	flags.IntVar(&o.Steps, "steps", o.Steps, "decode steps to time")
	flags.IntVar(&o.Rows, "rows", o.Rows, "sequences of the training pass")
	flags.IntVar(&o.Tokens, "tokens", o.Tokens, "tokens of each sequence, and of the prompt")
	flags.IntVar(&stash, "stash", stash, "what the forward pass keeps: 0 layer inputs, 1 attention too, 2 everything")
	flags.StringVar(&options.Library, "library", "", "ONNX Runtime library, in place of the usual places")
	flags.StringVar(&options.Device, "device", "cpu", "what to run on: cpu, cuda, cuda:N or auto")
	registerDType(c, &dtype)
	flags.IntVar(&options.Threads, "threads", runtime.NumCPU(), "threads of the kernels")
	must(c.MarkFlagRequired("config"))
	must(c.MarkFlagFilename("config", "json"))
	must(c.MarkFlagFilename("library"))
	return c
}

func writeResult(out lineWriter, result any, err error) error {
	if err != nil {
		return err
	}
	return out.write(result)
}
