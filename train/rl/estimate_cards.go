package rl

import (
	"fmt"
	goruntime "runtime"
	"slices"

	"onering/internal/bench/limits"
	"onering/internal/memory"
	"onering/models"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
)

// A card is a machine's GPUs.
type card struct {
	name  string // for example "1 x 80 GB"
	model string // the GPU's model, in its driver's words
	Split        // one rank for each GPU
	bytes int64  // bytes that a run may use on each GPU
	host  int64  // bytes of the host's memory for each GPU; 0 if unknown
}

// cards are the GPUs for which run files are planned. A GPU has up to 6 % more memory
// than its name says, as a reserve for errors of estimates.
var cards = []card{{"1 x 80 GB", "H100", Split{}, 80e9, 0}, {"1 x 141 GB", "H200", Split{}, 141e9, 0}, {"8 x 80 GB", "H100", Split{8, 8}, 80e9, 0}}

// SizeKeys are the settings that decide memory and speed of a run and not its results,
// except for the last bits on a GPU.
var SizeKeys = []string{"rollout.slots", "optimizer.offload", "train.micro_tokens"}

// A Plan says how a run goes on a card with these values of SizeKeys.
type Plan struct {
	Card        string          `json:"card"`
	Here        bool            `json:"here"` // it is the GPU of this machine, with its free memory
	Fits        bool            `json:"fits"`
	Peak        int64           `json:"peak"`    // peak of a GPU's memory
	Host        int64           `json:"on_host"` // host memory for each GPU, while no checkpoint is written
	Slots       int             `json:"rollout.slots"`
	MicroTokens int             `json:"train.micro_tokens"`
	Stash       string          `json:"train.stash"`
	StashBytes  int             `json:"stash_bytes"` // bytes that the passes of a step keep for going backward
	Offload     runtime.Offload `json:"optimizer.offload"`
	// Seconds estimates a round from measured times; 0 if nothing similar was measured.
	Seconds float64 `json:"seconds_per_round,omitempty"`
}

// Apply gives c the values of the plan.
func (p Plan) Apply(c *Config) {
	c.Rollout.Slots, c.Train.MicroTokens, c.Train.room = p.Slots, p.MicroTokens, p.StashBytes
	c.Optimizer.Offload = p.Offload
}

func (p Plan) String() string {
	fits, time := "does not fit", ""
	switch {
	case p.Seconds > 0:
		fits, time = "fits", fmt.Sprintf(", about %.0f s a round (estimated)", p.Seconds)
	case p.Fits:
		fits, time = "fits", ", no measured rate for a round"
	}
	return fmt.Sprintf("%s: %s, %s of the host%s; slots = %d, micro_tokens = %d, stash = %q (%s), offload = %q",
		fits, memory.Text(p.Peak), memory.Text(p.Host), time, p.Slots, p.MicroTokens, p.Stash, memory.Text(int64(p.StashBytes)), p.Offload)
}

// Choose returns plans for a run of c on this machine's GPU and, with allCards, on the other cards; none for a run on
// another device than CUDA. It sets the SizeKeys that are open, which nobody has set, to the values of the first plan:
// this GPU's, or else that of the first card that fits. Slots and micro-batches decide the last bits of what a GPU
// computes, so the run's folder has to state them.
func (c *Config) Choose(model models.Model, split Split, open func(key string) bool, allCards bool) (plans []Plan, err error) {
	s, err := c.architecture(model)
	if err != nil || s.compute.Provider != models.CUDA {
		return nil, err
	}
	var candidates []card
	name, free := runtime.Room(c.Runtime.Device) // 0 without such a GPU
	if free > 0 {                                // 5 % are a reserve for errors of estimates
		host := memory.Available() / int64(max(1, split.OnHost)) / 100 * 95
		candidates = []card{{c.Runtime.Device + " (" + name + ")", name, split, free / 100 * 95, host}}
	}
	if allCards {
		candidates = append(candidates, cards...)
	}
	for k, card := range candidates {
		p, err := s.plan(*c, card, open)
		if err != nil {
			return nil, err
		}
		p.Here = k == 0 && free > 0
		plans = append(plans, p)
	}
	if k := slices.IndexFunc(plans, func(p Plan) bool { return p.Here || p.Fits }); k >= 0 {
		plans[k].Apply(c)
	}
	return plans, nil
}

// A sized is an Architecture that remembers its Layout and its LayerBytes, which take long to find.
type sized struct {
	models.Architecture
	compute models.Compute
	layout  *models.Layout
	known   map[layerSize][2]int64
}

// A layerSize is what LayerBytes depends on.
type layerSize struct {
	kind               int
	full               bool
	blocks, n, rows, T int
}

func (s sized) Layout() *models.Layout { return s.layout }

func (s sized) LayerBytes(kind int, full bool, blocks, n, rows, T int) (forward, backward int64, err error) {
	key := layerSize{kind, full, blocks, n, rows, T}
	x, ok := s.known[key]
	if !ok {
		x[0], x[1], err = s.Architecture.LayerBytes(kind, full, blocks, n, rows, T)
		s.known[key] = x
	}
	return x[0], x[1], err
}

// plan returns the fastest plan of a run of c that fits a card, or if none does the one with the lowest peak. It tries the
// values of tries for each open key, best ones first, so a plan that is as fast as an earlier one does not replace it.
func (s sized) plan(c Config, on card, open func(key string) bool) (best Plan, err error) {
	round, measured := s.round(c, on.Split), false // measured: whether there are measurements of rounds like this
	candidates := []Plan{{Slots: c.Rollout.Slots, MicroTokens: c.Train.MicroTokens, Stash: c.Train.Stash, Offload: c.Optimizer.Offload}}
	for i, key := range SizeKeys {
		if open(key) {
			candidates = tries[i](candidates) // each of them with each value of the key
		}
	}
	for _, p := range candidates {
		if p.Offload == runtime.OffloadAll && (s.compute.Type == models.F32 || c.LoRA.On) { // it takes a 16-bit copy of trained weights
			continue
		}
		if best.Fits && p.MicroTokens < best.MicroTokens { // it fits, too, but is slower
			continue
		}
		p.Apply(&c)
		e, recomputed, err := s.fill(&c, on)
		if err != nil {
			return p, err
		}
		p.StashBytes = c.Train.room // set by fill
		p.Card, p.Peak, p.Host = on.name, e.Peak, e.Of("").Host
		p.Fits = p.Peak <= on.bytes && (on.host == 0 || p.Host <= on.host)
		// What the host keeps crosses in both directions in a step. Ranks send by NCCL, or with mpi through the host.
		round.Slots, round.HostBytes, round.Linked = p.Slots, 2*(e.Of("moments").Host+e.Of("weights").Host), e.Sent
		if c.Distributed.Transport == "mpi" {
			round.Linked, round.Sent = 0, e.Sent
		}
		if p.Fits {
			round.Again = recomputed // in forward passes, such as 0.85
			p.Seconds, measured = seconds(c, round, on.model)
		}
		faster, smaller := p.Seconds < best.Seconds, p.Peak < best.Peak
		if best.Card == "" || p.Fits && (!best.Fits || faster) || !p.Fits && !best.Fits && smaller { // no Card: the first plan
			best = p
		}
	}
	if !measured { // unmeasured seconds only serve to order the plans
		best.Seconds = 0
	}
	return best, nil
}

// fill lets the passes of c keep as much as a card has room for, by setting c.Train.room, in bytes. It returns the estimate, and
// what share of a forward pass is computed again: with the inputs of layers all but the last
// product of each, and where all layers keep everything the logits.
func (s sized) fill(c *Config, on card) (e MemoryEstimate, recomputed float64, err error) {
	w, g := c.work(s, on.Split), s.Geometry()
	micro := int(w.passes.Tokens(w.stepTrajectories*w.trajectoryTokens, w.trajectoryTokens))
	for _, room := range []int{g.FullBytes(micro), 1} { // all of a micro-batch, or too little for any layer
		c.Train.room = room
		if e, err = s.estimate(*c, on.Split); err != nil || e.Peak <= on.bytes {
			break
		}
	}
	if left := on.bytes - e.Peak; c.Train.room == 1 && left > 0 { // some layers fit, beside the inputs that all keep
		c.Train.room = g.InputBytes(micro) + int(left)
		e, err = s.estimate(*c, on.Split)
	}
	if c.Train.Stash == "inputs" { // storing then ignores room, and so did the estimates
		c.Train.room = 0
	}
	if c.Train.room >= g.FullBytes(micro) {
		return e, 0, err
	}
	layers, _ := g.Full(micro, c.Train.room)                     // layers that keep everything
	return e, 0.85 - 0.75*float64(layers)/float64(g.Layers), err // 0.85 with inputs alone, 0.1 for the logits
}

// tries are the values to try for each of SizeKeys, the best first among equal times.
var tries = []func([]Plan) []Plan{
	trying([]int{512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8}, func(p *Plan, n int) { p.Slots = n }),
	trying([]runtime.Offload{runtime.OffloadNone, runtime.OffloadMoments, runtime.OffloadAll}, func(p *Plan, what runtime.Offload) { p.Offload = what }),
	trying([]int{4096, 2048, 1024}, func(p *Plan, n int) { p.MicroTokens = n }),
}

// trying makes of each plan one for each value.
func trying[T any](values []T, set func(*Plan, T)) func([]Plan) []Plan {
	return func(plans []Plan) (all []Plan) {
		for _, x := range values {
			for _, p := range plans {
				set(&p, x)
				all = append(all, p)
			}
		}
		return all
	}
}

// round returns the figures of a round of c, except for SizeKeys. It assumes prompts of
// 150 tokens, responses of a third of the allowed length on average, as onering bench
// --round does, and half of the prompts of a step with several responses.
func (s sized) round(c Config, split Split) limits.Round {
	g, own := s.Geometry(), int(split.share(int64(c.Rollout.PromptsPerRound)))
	r := limits.Round{
		Parameters: s.Layout().Size, Prompts: own, Prompt: min(150, c.Rollout.MaxPromptTokens),
		Responses:  limits.Lengths(own*c.samplesPerPrompt(), max(1, c.Rollout.MaxNewTokens/3)),
		Steps:      c.Train.Epochs * max(1, c.Rollout.PromptsPerRound*c.Rollout.SamplesPerPrompt/c.Train.BatchSize),
		TokenBytes: g.RowBytes(1) - g.RowBytes(0),
	}
	for _, n := range r.Responses {
		r.Learned += c.Train.Epochs * (n + r.Prompt/2)
	}
	return r
}

// RoundSeconds estimates how long a round of c takes on this machine: on its CPUs, or on a GPU as
// its Plan says, the first of plans if that is of this machine. It is 0 if nothing is known.
func (c Config) RoundSeconds(model models.Model, split Split, plans []Plan) float64 {
	s, err := c.architecture(model)
	switch {
	case err != nil:
		return 0
	case c.onGPU() && len(plans) > 0 && plans[0].Here:
		return plans[0].Seconds
	case c.onGPU():
		return 0
	}
	round, cores := s.round(c, split), c.Runtime.Threads
	if cores == 0 {
		cores = max(1, goruntime.GOMAXPROCS(0)/max(1, split.OnHost))
	}
	round.Slots, round.Again = c.Rollout.Slots, forwards(c.Objective.Settings, c.Rollout.OldLogProb == "rescore")
	return round.SecondsOnCPU(cores)
}

// fittingSeconds is how long a round of the recipe small may take.
const fittingSeconds = 300

// Fit makes the sizes of c that are open, which nobody has set, fit this machine: it halves the
// problems of a round and the batches with them until a round lasts at most fittingSeconds, and
// then slots, passes and responses if they do not fit its memory. It says which it has set.
func (c *Config) Fit(model models.Model, split Split, open func(key string) bool) (set []string, err error) {
	r, t := &c.Rollout, &c.Train
	was, openRound := *c, open("rollout.prompts_per_round") && open("train.batch_size")
	for openRound && r.PromptsPerRound > 2 && t.BatchSize > 1 && c.RoundSeconds(model, split, nil) > fittingSeconds {
		r.PromptsPerRound, t.BatchSize = r.PromptsPerRound/2, t.BatchSize/2
	}
	e, err := c.EstimateMemory(model, split)
	if err == nil && e.Available > 0 && e.onHost(e.Peak) > e.Available && open("rollout.slots") && open("train.micro_tokens") && open("rollout.max_new_tokens") {
		var less *Config
		if less, err = e.fitting(*c, model); less != nil {
			*c = *less
		}
	}
	return changed(was, *c), err
}

// forwards counts the forward passes of a round over what it learns, in addition to one for each step.
func forwards(o objectives.Objective, rescore bool) (n float64) {
	needs := objectives.NeedsOf(o)
	for _, more := range []bool{
		!needs.Apart, // all passes of a step go forward before the first goes backward
		rescore || needs.Squares, needs.Reference,
	} {
		if more {
			n++
		}
	}
	return n
}

// seconds estimates r on a GPU, and says whether similar rounds were measured.
func seconds(c Config, r limits.Round, gpu string) (float64, bool) {
	r.Again += forwards(c.Objective.Settings, c.Rollout.OldLogProb == "rescore")
	seconds, measured := r.Seconds(gpu)
	return seconds, measured && !c.LoRA.On && policy.ComputeTypes[c.Model.DType] != models.F32
}
