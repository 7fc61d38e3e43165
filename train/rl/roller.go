package rl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"onering/data"
	"onering/environment"
	"onering/objectives"
	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
	"onering/train"
	"onering/train/learn"
	"onering/train/ranks"
)

// A roller makes rounds: it samples responses to problems, has them graded, computes advantages and cuts the rollouts into batches (Algorithm 1,
// line 1).
type roller struct {
	config    Config
	ranks     *ranks.Group
	policy    *policy.Policy
	prompter  *data.Prompter
	problems  *problemOrder
	digest    string // digest of the problems
	reward    reward.Reward
	grading   reward.Grader       // without what a single round's responses add
	greedy    int                 // greedy responses to a problem, beside the others: 1 if the objective compares with one
	player    *environment.Player // nil where a response is a single turn
	objective objectives.Objective
	decoders  []*runtime.Decoder
	lanes     sampler.Lanes   // the decoders, and how many of them sample at the same time
	options   sampler.Options // how responses are sampled
	grades    *book           // Trainer.Begin opens it; nil if there is nothing to record
}

// newRoller opens the training problems, and divides the slots that this rank can fill among decoders, which sample
// at the same time. maxTokens is the most tokens of prompt and response that a slot has to hold.
func newRoller(c Config, s train.Setup, maxTokens int) (*roller, error) {
	group, env, policy := s.Ranks, s.Policy.Env, s.Policy
	template, err := c.Model.PromptTemplate()
	if err != nil {
		return nil, err
	}
	prompter, err := policy.Prompter(template)
	if err != nil {
		return nil, err
	}
	if warning := prompter.Warning(); warning != "" {
		s.Log.Warn(warning)
	}
	options := sampler.Options{Sampling: c.Rollout.Sampling, Kept: c.Rollout.LogProb == "kept", Seed: uint64(c.Train.Seed)}
	if err := policy.Ends(&options, template); err != nil {
		return nil, err
	}
	problems, err := openTraining(c, prompter, s.Log)
	if err != nil {
		return nil, err
	}
	ownPrompts := (c.Rollout.PromptsPerRound + group.Size() - 1) / group.Size() // most prompts of a round that this rank samples
	slots := min(c.Rollout.Slots, ownPrompts*c.samplesPerPrompt())
	player := c.Environment.Player(prompter, policy.Model.EOS)
	// Observations arrive at other times in each run, so which sequences are decoded together must not matter.
	c.Rollout.Invariant = c.Rollout.Invariant || player != nil
	slotsOf := make([]int, max(1, min(env.Lanes(policy.Ring, slots), ownPrompts))) // of each decoder
	if player.Driver() != nil {
		slotsOf = slotsOf[:1] // programs use one server
	}
	for i := range slotsOf {
		slotsOf[i] = slots*(i+1)/len(slotsOf) - slots*i/len(slotsOf)
		if c.Rollout.Invariant {
			slotsOf[i]++ // for the companion of sampler.Invariant
		}
	}
	decoders, err := env.NewDecoders(policy.Ring, slotsOf, policy.MaxTokens(maxTokens))
	if err != nil {
		return nil, err
	}
	lanes := sampler.Lanes{AtOnce: env.Threads(), Rest: env.Rest}
	for _, d := range decoders {
		lanes.Decoders = append(lanes.Decoders, d)
	}
	grading := c.Reward.Grader()
	grading.Decode, grading.Together = func(ids []int32) string { return prompter.Tokenizer.Decode(ids, true) }, true
	grading.Player, grading.Invariant = player, c.Rollout.Invariant
	return &roller{
		config: c, ranks: group, policy: policy, prompter: prompter, problems: problems, digest: problems.Digest(), reward: c.Reward.Rule,
		grading: grading, greedy: c.samplesPerPrompt() - c.Rollout.SamplesPerPrompt, player: player, objective: c.Objective.Settings,
		decoders: decoders, lanes: lanes, options: options,
	}, nil
}

func (r *roller) close() {
	for _, d := range r.decoders {
		d.Close()
	}
}

// Release gives the memory of the decoders back.
func (r *roller) Release() {
	for _, d := range r.decoders {
		d.Release()
	}
}

// roll samples and grades round n, from 0, of these problems: its own share of them, and then it waits for those of
// the other ranks, so all ranks must call it. progress is called after each graded response, and explain adds the cause
// to an error of sampling.
func (r *roller) roll(ctx context.Context, n int, problems []data.Problem, progress func(), explain func(error) error) (*round, error) {
	rollouts, stats, err := r.sample(ctx, problems, n, progress)
	if err != nil {
		err = explain(err)
	}
	failed := r.grades.exchange() // rank 0 writes the other ranks' grades to the file even if sampling has failed
	if err == nil {
		err = failed
	}
	if err := r.gather(rollouts, &stats, err); err != nil { // it fills in the others' rollouts; err of one rank fails all
		return nil, err
	}
	made := newRound(problems, rollouts, r.config.Rollout.SamplesPerPrompt)
	made.stats = stats
	return made, nil
}

// prepare computes the advantages of round n and cuts it into optimizer steps. It drops groups that teach nothing;
// the error says that too few responses have a grade to learn from.
func (r *roller) prepare(made *round, n int) error {
	made.setRoles(r.config.Data.Role) // for the advantages that compare within roles
	made.compareGroups(r.config.Rollout.SamplesPerPrompt, r.objective)
	if r.config.Environment.Advantages == "turn" {
		made.compareTurns(r.config.Rollout.SamplesPerPrompt, r.objective)
	}
	made.batches = r.batches(n, made.trained)
	return made.checkGraded(r.objective)
}

// samplesPerPrompt is how many responses to each problem are sampled: K, and a greedy one if the
// objective compares with it.
func (c Config) samplesPerPrompt() int {
	if objectives.NeedsOf(c.Objective.Settings).Greedy {
		return c.Rollout.SamplesPerPrompt + 1
	}
	return c.Rollout.SamplesPerPrompt
}

// sample samples responses to each of this rank's problems of round n, and has those to
// a problem graded together; progress is called after each. The rollouts are in the order of the problems,
// then of the samples, whatever the schedule; those of other ranks have no response. Greedy ones come last, one
// for each problem. Where the environment could not open the episodes of a problem, its responses are empty and skipped.
func (r *roller) sample(ctx context.Context, problems []data.Problem, n int, progress func()) ([]rollout, sampler.Stats, error) {
	c := r.config.Rollout
	var tasks []reward.Task
	k, each := c.SamplesPerPrompt, c.SamplesPerPrompt+r.greedy
	indexOf := func(problem, sample int) int { // of a rollout in out
		if sample == k { // the greedy one
			return len(problems)*k + problem
		}
		return problem*k + sample
	}
	out := make([]rollout, len(problems)*each)
	for i, q := range problems {
		for j := range each {
			out[indexOf(i, j)] = rollout{Problem: i, Sample: j}
		}
		if !r.mine(i) {
			continue
		}
		id := uint64(n*c.PromptsPerRound + i) // number of the prompt in the run, which with the seed decides the draws
		task, failed, err := r.open(ctx, q, id)
		if err != nil {
			return nil, sampler.Stats{}, err
		}
		for j := range each {
			x := &out[indexOf(i, j)]
			x.PromptText, x.Prompt = task.Prompt, task.Request.Prompt
			if failed != nil {
				x.Response, x.Failed, x.Score = []int32{}, true, reward.Score{Skip: true, Reason: failed.Error()}
			}
		}
		if failed == nil {
			task.Number, task.Request.ID, task.Request.Samples, task.Request.LastGreedy = i, id, each, each > k
			tasks = append(tasks, task)
		}
	}
	if len(tasks) == 0 { // more ranks than prompts, or no episode could be opened
		return out, sampler.Stats{}, ctx.Err()
	}
	grading := r.grading
	grading.Journal = r.grades.journal(n, fmt.Sprint("round ", n+1))
	stats, err := grading.Sample(ctx, r.lanes, r.options, tasks, func(g reward.Graded) error {
		x := &out[indexOf(tasks[g.Request].Number, g.Sample)]
		x.Response, x.LogProb, x.Entropy = g.IDs, learn.Float64s(g.LogProb), learn.Float64s(g.Entropy)
		x.Kept = g.Kept
		x.Text, x.Score, x.Truncated = g.Text, g.Score, g.Truncated()
		x.Observed, x.TurnRewards, x.Failed = g.Observed, g.Outcome.Rewards, g.Outcome.Failed != nil
		x.setSegments(g, r.prompter.Tokenizer)
		progress()
		return nil
	})
	return out, stats, err
}

// open returns the task of a problem with its prompt; id is the prompt's number in the run. If an environment could not
// open an episode, or opens it with too long a prompt, failed says why: the problem has no responses in this round, and
// the task has a prompt for its line in rollouts/. err ends the run.
func (r *roller) open(ctx context.Context, q data.Problem, id uint64) (t reward.Task, failed, err error) {
	t, err = r.grading.Task(ctx, r.prompter, environment.Start{Problem: q, Seed: r.options.Seed<<32 + id})
	var opening *environment.OpeningError
	switch most := r.config.Rollout.MaxPromptTokens; {
	case errors.As(err, &opening) && ctx.Err() == nil: // after an interrupt it has not failed
		t.Prompt, t.Request.Prompt, err = r.prompter.Prompt(q) // a rollout without a prompt could not be read
		return t, opening, err
	case err == nil && len(t.Request.Prompt) > most:
		return t, fmt.Errorf("environment: the opening makes a prompt of %d tokens, more than rollout.max_prompt_tokens = %d", len(t.Request.Prompt), most), nil
	}
	return t, nil, err
}

// batches cuts the rollouts of round n that are trained on, in ascending order, into optimizer steps, once for each epoch,
// in an order that follows from the seed and the round. It shuffles single rollouts, or with train.shuffle = "prompts" the
// groups of one prompt.
func (r *roller) batches(n int, trained []int) [][]int {
	c := r.config.Train
	order := rand.New(rand.NewPCG(uint64(c.Seed), uint64(n)))
	var groups [][]int // what stays together
	for i, j := range trained {
		k := r.config.Rollout.SamplesPerPrompt
		if i == 0 || c.Shuffle != "prompts" || j/k != trained[i-1]/k {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], j)
	}
	var out [][]int
	for range c.Epochs {
		mixed := slices.Clone(groups)
		order.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		shuffled := slices.Concat(mixed...)
		for from := 0; from < len(shuffled); from += c.BatchSize {
			out = append(out, shuffled[from:min(from+c.BatchSize, len(shuffled))])
		}
	}
	return out
}
