package rl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"onering/internal/memory"
	"onering/models"
	"onering/models/lora"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/ranks"
)

// A Split says into how many processes a run is divided; the zero Split is one.
type Split struct {
	Ranks  int `json:"ranks,omitempty"`         // of the run
	OnHost int `json:"ranks_on_host,omitempty"` // of those, how many share the memory of this machine
}

// share is the largest part that a rank has of n things.
func (s Split) share(n int64) int64 {
	ranks := int64(max(1, s.Ranks))
	return (n + ranks - 1) / ranks
}

// A MemoryEstimate is the memory that a run takes, in bytes, if every response is as long
// as it may be; with several ranks that of each. Activations, reduction and other are not
// exact.
type MemoryEstimate struct {
	Needs   []runtime.Need   `json:"-"` // several may be about one thing
	Buffers []runtime.Buffer `json:"-"` // that may be larger than a GPU has them
	// Peak is of the memory that the run computes in, of which there is Available for the
	// process; 0 if that is unknown.
	Peak      int64 `json:"peak"`
	Available int64 `json:"available"`
	// Copy is what writing checkpoints in the background takes in addition, if there is
	// memory for it: the host's, and beside a GPU in place of Saving, which is what is read
	// back while one is written: the weights, and the moments one after the other, or with
	// several ranks that share them all at once.
	Copy   int64 `json:"checkpoint_copy"`
	Saving int64 `json:"checkpoint_on_host,omitempty"`
	// The lengths are those assumed of every prompt and response, in tokens.
	PromptTokens   int `json:"prompt_tokens"`
	ResponseTokens int `json:"response_tokens"`
	Split              // zero for one rank
	// Gathered is the moments that the others keep, which rank 0 has while it writes a
	// checkpoint. Writing is all that it takes then, when it has given back what steps left;
	// 0 beside a GPU. Sent is how many bytes of gradients and weights it sends in a step.
	Gathered int64 `json:"moments_gathered,omitempty"`
	Writing  int64 `json:"peak_at_checkpoint,omitempty"`
	Sent     int64 `json:"sent_per_step,omitempty"`
}

// EstimateMemory adds up what the parts of a run of c take with a model of this shape, of
// the GPU's memory if runtime.device is a GPU. Sampling and learning count in full there:
// while one works, the other's memory is idle but not returned.
func EstimateMemory(c Config, model models.Model, split Split) (e MemoryEstimate, err error) {
	arch, compute, err := c.architecture(model)
	if err != nil {
		return e, err
	}
	e.PromptTokens, e.ResponseTokens = c.Rollout.MaxPromptTokens, c.Rollout.MaxNewTokens
	own := runtime.OptimizerOptions{Offload: c.Optimizer.Offload && c.onGPU()}
	if split.Ranks > 1 {
		e.Split = Split{split.Ranks, max(1, split.OnHost)}
		if c.Distributed.Shard == "optimizer" {
			own.Parts = split.Ranks
		}
	}
	trained := cmp.Or(arch.AdapterLayout(), arch.Layout())
	weights := 4 * int64(trained.Size) // and gradients
	moments := runtime.OptimizerNeed(c.Optimizer.Rule, trained.Size, own)
	all := runtime.OptimizerNeed(c.Optimizer.Rule, trained.Size, runtime.OptimizerOptions{})
	e.Needs = append(runtime.RingNeeds(arch, compute), runtime.Need{What: "gradients", Device: weights}, moments)
	if err := e.addReference(c, arch, compute); err != nil {
		return e, err
	}
	w := c.work(arch, e.Split)
	e.Buffers = c.buffers(arch, w)
	decoder := runtime.DecoderNeeds(arch.Geometry(), compute.Provider, w.slots, w.cached, w.prefill)
	kept, running, err := w.passes.Needs(arch, compute, w.step*w.length, w.length)
	if err != nil {
		return e, err
	}
	e.Needs = append(append(e.Needs, decoder...), kept, running)
	if e.Ranks > 1 {
		e.Sent = ranks.Volume(0, e.Ranks, learn.EvenBuckets(trained.Size, 0, e.Ranks))
		e.Needs = append(e.Needs, ranks.Needs(e.Ranks, trained.Size, c.onGPU())...)
	}
	e.Needs = append(e.Needs, runtime.ProgramNeed(c.provider()))
	e.Gathered, e.Copy = all.Device-moments.Device-moments.Host, weights+all.Device
	if c.onGPU() {
		e.Peak = e.Of("").Device
		if e.Saving = weights + min(weights, moments.Device); e.Gathered > 0 {
			e.Saving = weights + moments.Device
			e.Copy += e.Saving + e.Gathered // from there
			return e, nil
		}
		_, largest := trained.Largest()
		e.Copy += 4 * int64(largest)
		return e, nil
	}
	// A token of a response takes so much in Go's heap: its figures, its share of the records
	// and of the report, and garbage.
	e.Needs = append(e.Needs, runtime.Need{What: "other", Device: 640 * w.trajectories * w.length, Setting: "rollout.max_new_tokens"})
	e.Available, e.Peak = memory.Available(), e.Of("").Device
	if e.Gathered > 0 {
		if e.Writing = e.Peak + e.Gathered; memory.TakesTurns(trained.Size) { // see saving.Learned.SaveTo
			e.Writing -= decoder[0].Device + kept.Device
		}
	}
	if memory.TakesTurns(arch.Layout().Size) {
		e.Peak -= min(decoder[0].Device, kept.Device)
	}
	return e, nil
}

// architecture is that of a run of c, and what it computes in.
func (c Config) architecture(model models.Model) (arch models.Architecture, compute models.Compute, err error) {
	compute.Type, compute.Provider = policy.ComputeTypes[c.Model.DType], c.provider().Graphs()
	if c.LoRA.On {
		a, err := lora.New(c.LoRA.Settings, model, "")
		if err != nil {
			return nil, compute, err
		}
		compute.Adapter, compute.Base = &a.Adapter, policy.BaseTypes[c.LoRA.BaseDType]
	}
	arch, err = model.Architecture(compute)
	return arch, compute, err
}

// addReference adds the second set of weights that an objective with a reference needs, or
// another model's. Beside an adapter the base is the reference.
func (e *MemoryEstimate) addReference(c Config, arch models.Architecture, compute models.Compute) error {
	if c.Model.Reference != "" {
		model, err := policy.ReadModel(c.Model.Reference)
		compute.Adapter, compute.Base = nil, models.Invalid
		if err == nil {
			arch, err = model.Architecture(compute)
		}
		if err != nil {
			return fmt.Errorf("model.reference: %w", err)
		}
	} else if compute.Adapter != nil || !objectives.NeedsReference(c.Objective.Settings) {
		return nil
	}
	for _, n := range runtime.RingNeeds(arch, compute) {
		e.Needs = append(e.Needs, runtime.Need{What: "reference", Device: n.Device})
	}
	return nil
}

// Of adds up the needs of one thing, or with "" all, of which the cache and activations may
// take turns.
func (e MemoryEstimate) Of(what string) runtime.Need {
	sum := runtime.Need{What: what}
	for _, n := range e.Needs {
		if what == "" || n.What == what {
			sum.Device, sum.Host = sum.Device+n.Device, sum.Host+n.Host
		}
	}
	return sum
}

// onHost is what the ranks of this machine take of its memory if each takes so much, with
// what rank 0 takes more for a checkpoint.
func (e MemoryEstimate) onHost(each int64) int64 {
	return int64(max(1, e.OnHost))*each + max(0, min(e.Gathered, e.Writing-each))
}

// Certain returns the memory that a run takes whatever the settings that Needs name.
func (e MemoryEstimate) Certain() (sum int64) {
	for _, n := range e.Needs {
		if n.Setting == "" {
			sum += n.Device
		}
	}
	return sum
}

// assumed says what is assumed.
func (e MemoryEstimate) assumed() string {
	return fmt.Sprintf("every prompt of %d tokens and every response of %d", e.PromptTokens, e.ResponseTokens)
}

// MarshalJSON writes each need by its name beside the other figures.
func (e MemoryEstimate) MarshalJSON() ([]byte, error) {
	type figures MemoryEstimate
	text, err := json.Marshal(figures(e))
	all := map[string]int64{"moments": 0, "reference": 0}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for _, n := range e.Needs {
		key := strings.NewReplacer("in fewer", "16", " ", "_").Replace(strings.ToLower(n.What))
		if n.Device > 0 {
			all[key] += n.Device
		}
		if n.Host > 0 {
			all[key+"_on_host"] += n.Host
		}
	}
	if err != nil {
		return nil, err
	}
	// The parts come first, then what they sum up to, then the rest.
	names := strings.Fields("weights weights_16_bits gradients moments reference kv_cache activations other peak checkpoint_copy available")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var out bytes.Buffer
	for _, name := range names {
		if n, ok := all[name]; ok {
			fmt.Fprintf(&out, ",%q:%d", name, n)
		}
	}
	return append(append([]byte("{"), out.Bytes()[1:]...), '}'), nil
}

// Lines returns the estimate as a table of names and sizes.
func (e MemoryEstimate) Lines() (lines [][2]string) {
	add := func(when bool, what string, parts ...any) {
		text := ""
		for _, x := range parts {
			if bytes, ok := x.(int64); ok {
				x = memory.Text(bytes)
			}
			text += fmt.Sprint(x)
		}
		if when {
			lines = append(lines, [2]string{what, text})
		}
	}
	turns := map[string]string{}
	if e.Peak < e.Of("").Device {
		turns = map[string]string{"KV cache": ", while sampling", "activations": ", while training"}
	}
	var things []runtime.Need
	for _, n := range e.Needs {
		if sum := e.Of(n.What); !slices.Contains(things, sum) {
			things = append(things, sum)
		}
	}
	add(e.Ranks > 1, "ranks", e.Ranks, ", of which each takes:")
	for _, n := range things {
		add(n.Device > 0 || n.What == "moments", n.What+turns[n.What], n.Device)
	}
	add(true, "peak", e.Peak)
	for _, n := range things {
		add(n.Host > 0, n.What+", on the host", n.Host)
	}
	const written = " on rank 0 while a checkpoint is written"
	add(e.Gathered > 0 && e.Writing == 0, "moments of the others", e.Gathered, written)
	add(e.Writing > 0, "moments of the others", e.Gathered, written, ", when it takes ", e.Writing)
	add(e.Sent > 0, "sent per step", e.Sent)
	add(e.Saving > 0, "checkpoint, on the host", e.Saving, " while one is written, or ", e.Copy, " beside training, where there is room")
	add(e.Saving == 0 && e.Copy > 0, "checkpoint copy", e.Copy, " more, where there is room")
	add(e.Available > 0 && e.OnHost < 2, "available", e.Available)
	add(e.Available > 0 && e.OnHost > 1, "available", e.Available, " to ", e.OnHost, " ranks, which take ", e.onHost(e.Peak))
	add(true, "assumed", e.assumed(), "; shorter ones take less")
	return lines
}
