package train

import (
	"context"
	"log/slog"
	"math/rand/v2"

	"onering/data"
	"onering/objectives"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
)

// A roller makes rounds: it samples responses to the next problems, has them
// graded, computes advantages and cuts the rollouts into batches (Algorithm 1,
// line 1).
type roller struct {
	config    Config
	policy    *Policy
	prompter  *data.Prompter
	problems  data.Problems
	digest    string // of the problems
	reward    reward.Reward
	objective objectives.Objective
	decoder   *runtime.Decoder
}

// newRoller opens the training problems and the decoder. maxTokens is the most tokens of
// prompt and response that a slot has to hold.
func newRoller(c Config, env *runtime.Env, policy *Policy, r reward.Reward, maxTokens int, log *slog.Logger) (*roller, error) {
	template, err := c.Model.PromptTemplate()
	if err != nil {
		return nil, err
	}
	prompter, err := policy.Prompter(template)
	if err != nil {
		return nil, err
	}
	problems, err := openTraining(c, prompter, log)
	if err != nil {
		return nil, err
	}
	slots := min(c.Rollout.Slots, c.Rollout.PromptsPerRound*c.Rollout.SamplesPerPrompt)
	if c.Rollout.Invariant {
		slots++ // see sampler.Invariant
	}
	decoder, err := env.NewDecoder(policy.Ring, slots, policy.MaxTokens(maxTokens))
	if err != nil {
		return nil, err
	}
	return &roller{c, policy, prompter, problems, problems.Digest(), r, c.Objective.Settings, decoder}, nil
}

func (r *roller) close() { r.decoder.Close() }

// problemsOf returns the problems of round n, from 0.
func (r *roller) problemsOf(n int) []data.Problem {
	per := r.config.Rollout.PromptsPerRound
	return r.problems.Take(r.config.Data.Seed, n*per, per)
}

// roll makes round n, from 0. progress is told of each response that is graded.
func (r *roller) roll(ctx context.Context, n int, progress func()) (*round, error) {
	c := r.config.Rollout
	problems := r.problemsOf(n)
	decoder := sampler.Decoder(r.decoder)
	if c.Invariant {
		invariant := sampler.NewInvariant(r.decoder)
		defer invariant.Close()
		decoder = invariant
	}
	rollouts, stats, err := Roll(ctx, decoder, r.prompter, problems, Request{
		Sampling: c.Sampling, EOS: r.policy.Model.EOS,
		Samples: c.SamplesPerPrompt, Seed: uint64(r.config.Train.Seed), FirstID: uint64(n * c.PromptsPerRound),
	}, r.reward, func(int) { progress() })
	if err != nil {
		return nil, err
	}
	made := newRound(problems, rollouts, c.SamplesPerPrompt, r.objective)
	made.stats, made.batches = stats, r.batches(n, made.kept)
	return made, nil
}

// batches cuts the kept rollouts of round n into optimizer steps, in an order that
// follows from the seed and the round.
func (r *roller) batches(n int, kept []int) [][]int {
	c := r.config.Train
	order := rand.New(rand.NewPCG(uint64(c.Seed), uint64(n)))
	var out [][]int
	for range c.Epochs {
		shuffled := append([]int{}, kept...)
		order.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for from := 0; from < len(shuffled); from += c.BatchSize {
			out = append(out, shuffled[from:min(from+c.BatchSize, len(shuffled))])
		}
	}
	return out
}

// firstPrompt returns the ids of the first prompt of round n.
func (r *roller) firstPrompt(n int) ([]int32, error) {
	_, ids, err := r.prompter.Prompt(r.problemsOf(n)[0])
	return ids, err
}
