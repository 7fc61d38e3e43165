package rl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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
	Ranks  int `json:"ranks,omitempty"`         // number of ranks of the run
	OnHost int `json:"ranks_on_host,omitempty"` // how many of them share the memory of this machine
}

// share is the largest part that a rank has of n things.
func (s Split) share(n int64) int64 {
	ranks := int64(max(1, s.Ranks))
	return (n + ranks - 1) / ranks
}

// A MemoryEstimate is the memory that a run needs, in bytes, if every response is as long as allowed; with several
// ranks for each of them. Activations, reduction and other are not exact.
type MemoryEstimate struct {
	Needs []runtime.Need `json:"-"` // several may be about one thing
	// Peak is the need of the memory that the run computes in, and Available what the
	// process may use of it; 0 if unknown.
	Peak      int64 `json:"peak"`
	Available int64 `json:"available"`
	// Copy is the host's additional memory for writing checkpoints in the background, if
	// there is enough. With a GPU it replaces Saving, the memory for reading back during
	// writing: the largest tensor, or all weights and moments if several ranks share them.
	Copy   int64 `json:"checkpoint_copy"`
	Saving int64 `json:"checkpoint_on_host,omitempty"`
	// Plans say how the run would go on GPUs.
	Plans []Plan `json:"-"`
	// The lengths are those assumed of every prompt and response, in tokens.
	PromptTokens   int `json:"prompt_tokens"`
	ResponseTokens int `json:"response_tokens"`
	Split              // zero for one rank
	// Gathered is the memory for other ranks' moments and float32 weights, which rank 0 holds
	// while it writes a checkpoint. Writing is its total then, after it has freed the memory of
	// steps; 0 with a GPU. Sent is how many bytes of gradients and weights it sends in a step.
	Gathered int64 `json:"moments_gathered,omitempty"`
	Writing  int64 `json:"peak_at_checkpoint,omitempty"`
	Sent     int64 `json:"sent_per_step,omitempty"`
}

// EstimateMemory adds up the needs of the parts of a run of c with a model of this shape,
// of the GPU's memory if runtime.device is a GPU. Sampling and learning count in full
// there: while one works, the other's memory is idle but not returned.
func (c Config) EstimateMemory(model models.Model, split Split) (e MemoryEstimate, err error) {
	s, err := c.architecture(model)
	if err != nil {
		return e, err
	}
	return s.estimate(c, split)
}

// estimate is EstimateMemory for a model whose architecture is known. The peak is the sum of e.Needs, less on a CPU where
// sampling and learning take turns in the same memory.
func (s sized) estimate(c Config, split Split) (e MemoryEstimate, err error) {
	e.PromptTokens, e.ResponseTokens = c.Rollout.MaxPromptTokens, c.Rollout.MaxNewTokens
	parts, offload := 1, c.offload() // parts: into how many the optimizer's state and float32 weights are divided among ranks
	if split.Ranks > 1 {
		e.Split = Split{split.Ranks, max(1, split.OnHost)}
		if c.Distributed.Shard == "optimizer" {
			parts = split.Ranks
		}
	}
	trained := cmp.Or(s.AdapterLayout(), s.Layout())
	weights := 4 * int64(trained.Size) // in float32, and the gradients
	updates := runtime.OptimizerNeeds(s, c.Optimizer.Rule, offload, parts)
	// The first need of the optimizer is its moments, and of a ring its weights: each as this rank has them, and undivided.
	moments, allMoments := updates[0], runtime.OptimizerNeeds(s, c.Optimizer.Rule, offload, 1)[0]
	ring, wholeRing := runtime.RingNeeds(s, s.compute, offload, parts), runtime.RingNeeds(s, s.compute, offload, 1)
	e.Needs = append(append(ring, runtime.Need{What: "gradients", Device: weights}), updates...)
	if err := e.addReference(c, s, s.compute); err != nil {
		return e, err
	}
	w := c.work(s, e.Split)
	decoder := runtime.DecoderNeeds(s.Geometry(), s.compute.Provider, w.slots, w.cachedTokens, w.prefillTokens)
	stored, running, err := w.passes.Needs(s, s.compute, w.stepTrajectories*w.trajectoryTokens, w.trajectoryTokens)
	if err != nil {
		return e, err
	}
	e.Needs = append(append(e.Needs, decoder...), stored, running)
	if e.Ranks > 1 {
		e.Sent = ranks.Volume(0, e.Ranks, learn.EvenBuckets(trained.Size, 0, e.Ranks), runtime.SpreadBytes(s, parts > 1))
		e.Needs = append(e.Needs, ranks.Needs(e.Ranks, trained.Size, c.onGPU())...)
	}
	e.Needs = append(e.Needs, runtime.Need{What: "other", Device: c.provider().Taken()})
	e.Gathered = othersShare(allMoments, moments) + s.gatheredWeights(wholeRing[0], ring[0], parts > 1 && !c.onGPU())
	e.Copy = weights + allMoments.Device + allMoments.Host
	if c.Model.ReferenceUpdate != 0 {
		e.Copy += weights // a checkpoint has the reference
	}
	if c.onGPU() {
		e.Peak = e.Of("").Device // the sum of all needs
		readWeights := weights
		if s.AdapterLayout() == nil { // else the base, which is in the ring too, is not saved
			readWeights = ring[0].Device
		}
		e.readBack(readWeights, moments.Device, trained)
		return e, nil
	}
	// Go's heap needs this much for a token of a response: its figures, its share of the
	// records and of the report, and garbage.
	e.Needs = append(e.Needs, runtime.Need{What: "other", Device: 640 * w.trajectories * w.trajectoryTokens, Setting: "rollout.max_new_tokens"})
	e.Available, e.Peak = memory.Available(), e.Of("").Device // the sum of all needs
	if e.Gathered > 0 {
		e.Writing = e.Peak + e.Gathered
		if memory.TakesTurns(trained.Size) { // see Learned.SaveTo in package train
			e.Writing -= decoder[0].Device + stored.Device // both are freed before
		}
	}
	if memory.TakesTurns(s.Layout().Size) { // sampling and learning give their memory back, so only the larger counts
		e.Peak -= min(decoder[0].Device, stored.Device) // decoder[0] is the KV cache
	}
	return e, nil
}

// othersShare returns what other ranks have, given the need of all and this rank's own.
func othersShare(all, own runtime.Need) int64 { return all.Device + all.Host - own.Device - own.Host }

// gatheredWeights returns what rank 0 takes for float32 weights while it writes a checkpoint, beside its own part of the
// whole ring. A CPU's ring has the weights of 16-bit layers as upper halves, which Programs read, and lower ones, which
// ranks may divide: then rank 0 puts both together, which takes twice what a ring saves by halves.
func (s sized) gatheredWeights(whole, own runtime.Need, dividedOnCPU bool) int64 {
	if halved := 4*int64(s.Layout().Size) - whole.Device; dividedOnCPU && s.AdapterLayout() == nil && halved > 0 {
		return 2 * halved
	}
	return othersShare(whole, own)
}

// readBack sets the host's memory for reading weights and moments back from a GPU for a checkpoint, and adds it to Copy:
// these bytes of both where ranks share them, else of one tensor at a time.
func (e *MemoryEstimate) readBack(weights, moments int64, trained *models.Layout) {
	if e.Gathered > 0 {
		e.Saving = weights + moments
		e.Copy += e.Saving + e.Gathered // the copy holds both
		return
	}
	_, largest := trained.Largest()
	e.Saving = 4 * int64(largest)
	e.Copy += e.Saving
}

// architecture returns the architecture of a run of c, and its type of computation.
func (c Config) architecture(model models.Model) (s sized, err error) {
	s.compute.Type, s.compute.Provider = policy.ComputeTypes[c.Model.DType], c.provider().Graphs()
	if c.LoRA.On {
		a, err := lora.New(c.LoRA.Settings, model, "")
		if err != nil {
			return s, err
		}
		s.compute.Adapter, s.compute.Base = &a.Adapter, policy.BaseTypes[c.LoRA.BaseDType]
	}
	if s.Architecture, err = model.Architecture(s.compute); err == nil {
		s.layout, s.known = s.Architecture.Layout(), map[layerSize][2]int64{}
	}
	return s, err
}

// addReference adds the weights of the reference: another model's, or a second set of arch's if the objective needs a
// reference, unless there is an adapter: then the base is the reference. It adds those of streams' teachers likewise.
func (e *MemoryEstimate) addReference(c Config, arch models.Architecture, compute models.Compute) error {
	for _, s := range c.Stream.List {
		teacher := c // a run whose reference is the teacher
		teacher.Model.Reference, teacher.Stream.List = s.Teacher, nil
		if s.Teacher != "" {
			if err := e.addReference(teacher, arch, compute); err != nil {
				return err
			}
		}
	}
	if c.Model.Reference != "" {
		model, err := policy.ReadModel(c.Model.Reference)
		compute.Adapter, compute.Base = nil, models.Invalid // those of the trained model are not the reference's
		if err == nil {
			arch, err = model.Architecture(compute)
		}
		if err != nil {
			return fmt.Errorf("the reference or teacher %s: %w", c.Model.Reference, err)
		}
	} else if compute.Adapter != nil || !objectives.NeedsOf(c.Objective.Settings).Reference {
		return nil
	}
	for _, n := range runtime.RingNeeds(arch, compute, c.offload(), 1) {
		e.Needs = append(e.Needs, runtime.Need{What: "reference", Device: n.Device, Host: n.Host})
	}
	return nil
}

// Of adds up the needs of one name, or with "" of all; the cache and activations may use the same memory in turn.
func (e MemoryEstimate) Of(what string) runtime.Need {
	sum := runtime.Need{What: what}
	for _, n := range e.Needs {
		if what == "" || n.What == what {
			sum.Device, sum.Host = sum.Device+n.Device, sum.Host+n.Host
		}
	}
	return sum
}

// onHost returns the memory of this machine that its ranks need, given each one's need,
// plus rank 0's extra for a checkpoint.
func (e MemoryEstimate) onHost(each int64) int64 {
	return int64(max(1, e.OnHost))*each + max(0, min(e.Gathered, e.Writing-each))
}

// Certain returns the memory that a run needs for any values of the settings that Needs name.
func (e MemoryEstimate) Certain() (sum int64) {
	for _, n := range e.Needs {
		if n.Setting == "" {
			sum += n.Device
		}
	}
	return sum
}

// assumed describes the assumptions of the estimate.
func (e MemoryEstimate) assumed() string {
	return fmt.Sprintf("every prompt of %d tokens and every response of %d", e.PromptTokens, e.ResponseTokens)
}

// MarshalJSON writes the sum of the needs of each name (weights_16_bits for weights in fewer bits), those on the host of a
// GPU apart with _on_host behind it, and the other figures. Moments and reference are there even if they are 0.
func (e MemoryEstimate) MarshalJSON() ([]byte, error) {
	type figures MemoryEstimate // without this method
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
	plans, failed := json.Marshal(e.Plans)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	// The parts come first, then their sum, then the rest.
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
	if len(e.Plans) > 0 {
		fmt.Fprintf(&out, `,"cards":%s`, plans)
	}
	return append(append([]byte("{"), out.Bytes()[1:]...), '}'), nil // [1:]: without the first comma
}

// Lines returns the estimate as a table of names and sizes: the needs of a device, their peak, those of the host, and what
// checkpoints and other ranks take.
func (e MemoryEstimate) Lines() (lines [][2]string) {
	add := func(when bool, what string, parts ...any) { // parts are texts, and numbers of bytes as int64
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
	if e.Peak < e.Of("").Device { // less than the sum of all: these two take turns in the same memory
		turns = map[string]string{"KV cache": ", while sampling", "activations": ", while training"}
	}
	var things []runtime.Need // the sums of the needs of each name
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
	add(e.Gathered > 0 && e.Writing == 0, "what the others keep", e.Gathered, written)
	add(e.Writing > 0, "what the others keep", e.Gathered, written, ", when it takes ", e.Writing)
	add(e.Sent > 0, "sent per step", e.Sent)
	add(e.Saving > 0, "checkpoint, on the host", e.Saving, " while one is written, or ", e.Copy, " beside training, where there is room")
	add(e.Saving == 0 && e.Copy > 0, "checkpoint copy", e.Copy, " more, where there is room")
	add(e.Available > 0 && e.OnHost < 2, "available", e.Available)
	add(e.Available > 0 && e.OnHost > 1, "available", e.Available, " to ", e.OnHost, " ranks, which take ", e.onHost(e.Peak))
	add(true, "assumed", e.assumed(), "; shorter ones take less")
	for _, p := range e.Plans {
		add(true, "on "+p.Card, p)
	}
	return lines
}

// offload says what the host keeps for a run on a GPU.
func (c Config) offload() runtime.Offload {
	if !c.onGPU() {
		return runtime.OffloadNone
	}
	return c.Optimizer.Offload
}

// onGPU says whether a run keeps its weights on a GPU.
func (c Config) onGPU() bool { return c.provider().Graphs() != models.CPU }

// provider returns the provider of the device that a run names; for auto the CPU's.
func (c Config) provider() runtime.Provider {
	if p := runtime.ProviderOf(c.Runtime.Device); p != nil {
		return p
	}
	return runtime.ProviderOf("cpu")
}

// A work has the sizes of what a process holds at once, in any memory, if every prompt and response is as long as allowed.
type work struct {
	trajectories     int64 // of a round
	stepTrajectories int64 // of a step, of which this process computes its share
	trajectoryTokens int64
	slots            int64        // of the sampler
	prefillTokens    int64        // of prompts that are computed at once
	cachedTokens     int64        // of slots and of prompts
	passes           learn.Passes // how a step is cut into passes, and what they store
}

// work computes the sizes of what a process holds at once; split says what its share of the run is.
func (c Config) work(arch models.Architecture, split Split) work {
	g, r := arch.Geometry(), c.Rollout
	capped := func(n int) int64 { // no sequence is longer than the model allows
		if g.MaxPositions > 0 {
			n = min(n, g.MaxPositions)
		}
		return int64(n)
	}
	w := work{trajectories: int64(r.PromptsPerRound) * int64(r.SamplesPerPrompt), trajectoryTokens: capped(r.MaxPromptTokens + r.MaxNewTokens)}
	ownPrompts := split.share(int64(r.PromptsPerRound))                   // that this rank samples in a round
	w.slots = min(int64(r.Slots), ownPrompts*int64(c.samplesPerPrompt())) // greedy responses take slots, too
	slotTokens := capped(c.longest())                                     // suites may have longer responses than training
	// Prompts are computed some thousand tokens at a time and stored until their samples
	// have begun: at most one of each slot, and the next one.
	promptTokens := min(ownPrompts, w.slots+1) * int64(r.MaxPromptTokens)
	w.prefillTokens = min(promptTokens, 8192)
	w.cachedTokens = w.slots*slotTokens + promptTokens + w.prefillTokens
	w.stepTrajectories = split.share(min(int64(c.Train.BatchSize), w.trajectories))
	// On a CPU each pass goes backward before the next begins, if the objective weighs responses apart.
	apart := objectives.NeedsOf(c.Objective.Settings).Apart && !c.onGPU()
	w.passes = c.Train.storing(learn.PassesFor(g, arch.Layout().Size, c.Train.MicroTokens, apart))
	return w
}

// storing returns passes p that store what train.stash says, or as much as a Plan for a GPU has room for.
func (c loopConfig) storing(p learn.Passes) learn.Passes {
	switch {
	case c.Stash == "inputs":
		p.StashBytes = 0
	case c.room > 0:
		p.StashBytes = c.room
	}
	return p
}

// Refuse returns an error if not even Certain fits into the available memory.
func (e MemoryEstimate) Refuse(c Config, model models.Model) error {
	if e.onHost(e.Certain()) <= e.Available || e.Available == 0 {
		return nil
	}
	return e.Check(c, model)
}

// Check returns an error if the peak exceeds the available memory. It says which settings of c to
// change, or what is too large with any settings.
func (e MemoryEstimate) Check(c Config, model models.Model) error {
	if e.Available == 0 || e.onHost(e.Peak) <= e.Available {
		return nil
	}
	who, lighter := "the run takes", "a smaller model or a larger machine"
	if e.OnHost > 1 {
		who, lighter = fmt.Sprintf("the %d ranks of this machine take", e.OnHost), lighter+", or fewer ranks"
	}
	var advice string
	if certain := e.onHost(e.Certain()); certain > e.Available {
		advice = fmt.Sprintf("weights, gradients and moments alone are %s; take %s", memory.Text(certain), lighter)
		if e.onHost(e.Certain()-e.Of("reference").Device) <= e.Available {
			advice += ", or an objective without a reference policy (kl_beta = 0)"
		}
	} else if less, err := e.fitting(c, model); err != nil {
		return err
	} else if less != nil {
		advice = "set " + strings.Join(changed(c, *less), " and ")
	} else {
		advice = "no rollout.slots, train.micro_tokens and rollout.max_new_tokens alone make it fit; take " + lighter
	}
	return fmt.Errorf("train: %s up to %s of memory, with %s; %s are available: %s",
		who, memory.Text(e.onHost(e.Peak)), e.assumed(), memory.Text(e.Available), advice)
}

// fitting returns c with slots and micro-batches halved as few times together as
// make the run fit, and among several such pairs the one with the least memory; only if that is
// not enough, responses are shortened by half, and again. It returns nil if nothing fits.
func (e MemoryEstimate) fitting(c Config, model models.Model) (fits *Config, err error) {
	s, err := c.architecture(model)
	if err != nil {
		return nil, err
	}
	for n := c.Rollout.MaxNewTokens; n > 0 && fits == nil; n /= 2 {
		for halvings, possible := 0, true; possible && fits == nil; halvings++ {
			possible = false    // whether some pair of sizes is large enough
			peak := e.Available // then the least of the pairs that fit
			for k := range halvings + 1 {
				less := c
				// Slots are halved k times, and micro-batches the other times.
				less.Rollout.MaxNewTokens, less.Rollout.Slots, less.Train.MicroTokens = n, c.Rollout.Slots>>k, c.Train.MicroTokens>>(halvings-k)
				if less.Rollout.Slots < 1 || less.Train.MicroTokens < min(c.Train.MicroTokens, learn.SmallestMicroBatch) {
					continue
				}
				possible = true
				now, err := s.estimate(less, e.Split)
				if err != nil {
					return nil, err
				}
				if taken := now.onHost(now.Peak); taken <= peak {
					fits, peak = &less, taken
				}
			}
		}
	}
	return fits, nil
}

// changed lists the sizes in less that differ from c, as they are set in a run file.
func changed(c, less Config) (set []string) {
	sizes := func(c Config) []int {
		return []int{c.Rollout.Slots, c.Train.MicroTokens, c.Rollout.MaxNewTokens, c.Rollout.PromptsPerRound, c.Train.BatchSize}
	}
	was := sizes(c)
	for i, key := range strings.Fields("rollout.slots train.micro_tokens rollout.max_new_tokens rollout.prompts_per_round train.batch_size") {
		if now := sizes(less)[i]; now != was[i] {
			set = append(set, fmt.Sprintf("%s = %d", key, now))
		}
	}
	return set
}
