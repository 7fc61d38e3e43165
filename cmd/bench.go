package cmd

import (
	"cmp"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/bench"
	"onering/internal/cli"
	"onering/policy"
	ort "onering/runtime"
	"onering/train"
	"onering/train/rl"
)

// benchParts are the values of --part.
var benchParts = []string{"all", "decode", "score", "train", "step"}

// A benchCommand has the flags of `onering bench`.
type benchCommand struct {
	bench.Parts
	Config   string   `help:"config.json of a model, or its folder (required)" required:"true" complete:"json"`
	Which    []string `flag:"part" split:"," help:"what to measure: all, or some of decode, score, train, step"`
	Contexts []string `help:"decode rows of several contexts together, such as 64x15,3000 for fifteen of 64 and one of 3000"`
	Whole    bool     `flag:"round" help:"measure a whole round in place of parts, cold and warm: rollout, steps, a checkpoint"`
	Profile  string   `complete:"dir" help:"folder for cpu.pprof (go tool pprof) and ONNX Runtime's traces (chrome://tracing)"`
	round    bench.Round
	settings *resolved
}

// newBench makes the command bench, which measures parts of a round, or a whole one.
func newBench() *cobra.Command {
	b := benchCommand{Parts: bench.DefaultParts(), round: bench.DefaultRound(), Which: benchParts[:1]}
	b.Log = slog.Info
	s := newSettings(func(config *rl.Config) { config.Runtime.Threads = runtime.NumCPU() })
	c := newCommand("bench", &b, s.withResolved(func(c *cobra.Command, _ []string, r *resolved) error {
		b.settings, b.Optimizer = r, r.Optimizer.Name
		return b.run(c)
	}))
	addFlags(c, &b.round)
	s.addSettingFlags(c, "runtime", "model.dtype", "lora.on", "lora.rank", "lora.base_dtype", "optimizer.name")
	offer(c, benchParts, "part")
	return c
}

// checkRound checks the flags of --round, and that they are not given without it.
func (b *benchCommand) checkRound(c *cobra.Command) error {
	r := &b.round
	if !b.Whole {
		if r.Roofline {
			return usagef("--roofline goes with --round")
		}
		return nil
	}
	if c.Flags().Changed("part") {
		return usagef("--round measures all of a round: leave out --part")
	}
	if r.Roofline && b.settings.Runtime.Device != "cpu" {
		return usagef("--roofline measures the limits of a CPU: it goes with --device cpu")
	}
	if n := r.Prompts * r.Samples; r.Slots > maxSlots || r.Steps > n || n > maxBench {
		return usagef("%d responses in %d slots, for %d updates: want at most %d slots and %d responses, and a response for each update",
			n, r.Slots, r.Steps, maxSlots, maxBench)
	}
	return nil
}

// maxBench bounds the counts of a benchmark, since memory has to hold what it measures.
const maxBench = 1 << 24

// check refuses impossible flags of parts, and reads each value of --contexts into the lengths of its rows.
func (b *benchCommand) check() error {
	if b.Prompt > b.Tokens {
		return usagef("--prompt %d: must be at most --tokens, %d", b.Prompt, b.Tokens)
	}
	for _, n := range b.Batch {
		if n < 1 || n > maxSlots {
			return usagef("--batch %d: must be in [1, %d]", n, maxSlots)
		}
	}
	b.Parts.Contexts = make(map[string][]int)
	for _, text := range b.Contexts {
		rows, err := parseContexts(text)
		if err != nil {
			return err
		}
		b.Parts.Contexts[text] = rows
	}
	return nil
}

// parseContexts reads a value of --contexts, such as 64x15,3000: lengths, and behind x the number of rows that have
// this length. It returns the length of each row.
func parseContexts(text string) (rows []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		length, times, several := strings.Cut(part, "x")
		n, err := strconv.Atoi(length)
		count := 1
		if err == nil && several {
			count, err = strconv.Atoi(times)
		}
		if err != nil || n < 1 || n > maxBench || count < 1 || len(rows)+count > maxSlots {
			return nil, usagef("--contexts %q: must be lengths such as 64x15,3000: from 1 to %d tokens, and at most %d rows", text, maxBench, maxSlots)
		}
		rows = append(rows, slices.Repeat([]int{n}, count)...)
	}
	return rows, nil
}

// run checks the flags, opens a random model of the given shapes, measures what was asked for, and prints it as JSON.
func (b *benchCommand) run(c *cobra.Command) error {
	if err := cmp.Or(checkSettings(&b.round), b.check(), b.checkRound(c), checkIneffective(b.settings.Resolved, notResumed)); err != nil {
		return err
	}
	wanted, err := wantedParts(b.Which)
	if err != nil {
		return err
	}
	if !b.settings.LoRA.Trainable() && (b.Whole || wanted["train"] || wanted["step"]) {
		return usagef("--base-dtype %s %s; decode and score can be measured without one", b.settings.LoRA.BaseDType, train.NotTrainable)
	}
	if b.Offload != ort.OffloadNone && !wanted["step"] {
		return usagef("--offload is about the update: it goes with --part step or all")
	}
	config, err := tokenizerFolder(c, b.Config)
	if err != nil {
		return err
	}
	model, err := policy.ReadModel(config)
	if err != nil {
		return err
	}
	profile, endProfile, err := startProfile(c, b.Profile)
	if err != nil {
		return err
	}
	defer endProfile()
	options := b.settings.Runtime.Options()
	options.Profile = profile
	env, err := openRuntime(c, options, b.settings.Model.DType)
	if err != nil {
		return err
	}
	defer env.Close()
	compute, err := policy.ComputeOn(env, b.settings.Model.DType)
	if err != nil {
		return err
	}
	compute.Base = policy.BaseTypes[b.settings.LoRA.BaseDType]
	// If nothing but decoding is measured, the base type also holds the head, as in commands that only sample.
	compute.Sampled = !b.Whole && !b.settings.LoRA.On && len(wanted) == 1 && wanted["decode"]
	policy, err := policy.Random(env, model, compute, 0) // seed 0
	if err != nil {
		return err
	}
	defer policy.Close()
	policy.Ring.Offload = b.Offload
	if b.settings.LoRA.On {
		if err := policy.NewAdapter(b.settings.LoRA.Settings, b.Config, 0); err != nil {
			return err
		}
	}
	measured, failed := b.measure(c, env, policy, wanted)
	if measured == nil {
		return failed
	}
	// The parts that were measured before one failed are printed too.
	return cmp.Or(cli.WriteLine(c.OutOrStdout(), measured), failed)
}

// measure returns the figures of a round, or of the wanted parts up to the first that fails: one part alone, or
// several by name. A part that fails has the figures from before its failure. measure returns nil if a round fails
// before it has figures.
func (b *benchCommand) measure(c *cobra.Command, env *ort.Env, policy *policy.Policy, wanted map[string]bool) (any, error) {
	if b.Whole {
		r, err := b.round.Run(c.Context(), env, policy, b.Parts)
		if err != nil && r.Cold.Seconds == 0 {
			return nil, err // the figures are all zeros, which would be taken for measured ones
		}
		return r, err
	}
	var err error
	var newest any
	result := make(map[string]any)
	if wanted["decode"] {
		newest, err = b.Parts.Decode(env, policy)
		result["rollout"] = newest // it has prefill and decoding, the work of a rollout
	}
	if wanted["score"] && err == nil {
		newest, err = b.Parts.Score(env, policy)
		result["score"] = newest
	}
	if (wanted["train"] || wanted["step"]) && err == nil {
		newest, err = b.Parts.Train(c.Context(), env, policy, wanted["step"]) // step is train and the optimizer's update
		result["train"] = newest
	}
	if len(wanted) == 1 {
		return newest, err
	}
	return result, err
}

// wantedParts returns what the values of --part ask for as a set of decode, score, train and step; all is decode,
// score and step, since step measures train, too.
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
