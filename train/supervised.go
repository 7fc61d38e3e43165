package train

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"

	"onering/data"
	"onering/models/adamw"
	"onering/runtime"
	"onering/settings"
	"onering/tokenize"
	"onering/train/learn"
)

// A Demonstration is a prompt and the response that a supervised warm start
// teaches.
type Demonstration struct {
	Prompt   string `json:"prompt"`
	Response string `json:"response"`
}

// A SupervisedConfig says how a warm start is trained. The learning rate rises
// over Warmup steps and then falls linearly to Floor of itself.
type SupervisedConfig struct {
	Epochs    int `range:"[1,1000000]" help:"passes over the data"`
	BatchSize int `range:"[1,4194304]" help:"demonstrations of a step"`
	learn.UpdateSettings
	Warmup      int     `range:"[0,1000000000]" help:"steps over which the rate rises"`
	Floor       float64 `range:"[0,1]" help:"share of the rate that is left at the end"`
	MicroTokens int     `range:"[1,1073741824]" help:"most tokens of one forward and backward pass"`
	Seed        int64   `help:"seed of the order of demonstrations"`
	Template    tokenize.Template

	beforePass func(tokens int) error // set by tests; see learn.Options
}

// DefaultSupervised are the settings of the embedded model's warm start. There
// is no template around its prompts.
func DefaultSupervised() SupervisedConfig {
	return SupervisedConfig{
		Epochs: 1, BatchSize: 32, Warmup: 30, Floor: 0.1, MicroTokens: 4096,
		UpdateSettings: learn.UpdateSettings{
			LearningRate: 3e-3, MaxGradNorm: 1,
			AdamW: adamw.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01},
		},
	}
}

// Supervise trains the policy on demonstrations: the loss is the mean negative
// log-prob of a batch's response tokens, EOS included, so w = -1/N. It takes the
// same steps as reinforcement learning. progress is told of each step and may be
// nil; log is told of steps that are computed again. When ctx ends, training stops
// before the next micro-batch.
func Supervise(ctx context.Context, env *runtime.Env, p *Policy, demonstrations []Demonstration, c SupervisedConfig, log *slog.Logger, progress func(step, steps int, loss, norm float64)) error {
	if err := settings.Check(&c); err != nil {
		return err
	}
	if len(demonstrations) == 0 {
		return fmt.Errorf("train: no demonstrations")
	}
	prompter, err := p.Prompter(c.Template)
	if err != nil {
		return err
	}
	if len(p.Model.EOS) == 0 {
		return fmt.Errorf("train: %s names no eos_token_id, so a response has no end to learn", p.Dir)
	}
	sequences, err := encodeAll(p, prompter, demonstrations)
	if err != nil {
		return err
	}
	stepper, err := learn.New(env, p.Ring, learn.Options{
		Optimizer:   c.AdamW,
		MaxGradNorm: c.MaxGradNorm, Temperature: 1, MicroTokens: c.MicroTokens, Stash: p.stash(c.MicroTokens),
		Log: log, BeforePass: c.beforePass,
	})
	if err != nil {
		return err
	}
	defer stepper.Close()

	perEpoch := (len(demonstrations) + c.BatchSize - 1) / c.BatchSize
	steps := c.Epochs * perEpoch
	order := rand.New(rand.NewPCG(uint64(c.Seed), 0))
	for step := 0; step < steps; {
		shuffled := order.Perm(len(sequences))
		for from := 0; from < len(shuffled); from += c.BatchSize {
			b := meanLoss(sequences, shuffled[from:min(from+c.BatchSize, len(shuffled))])
			b.Number, b.LearningRate = step+1, c.rate(step, steps)
			report, err := stepper.Step(ctx, b, nil)
			if err != nil {
				return fmt.Errorf("train: step %d: %w", step+1, err)
			}
			step++
			if progress != nil {
				progress(step, steps, report.Loss.Value, report.GradNorm)
			}
		}
	}
	return nil
}

// encodeAll turns demonstrations into sequences that end with the end-of-sequence
// token.
func encodeAll(p *Policy, prompter *data.Prompter, demonstrations []Demonstration) ([]runtime.Sequence, error) {
	sequences := make([]runtime.Sequence, len(demonstrations))
	for i, d := range demonstrations {
		_, prompt, err := prompter.Prompt(data.Problem{ID: strconv.Itoa(i + 1), Text: d.Prompt})
		if err != nil {
			return nil, err
		}
		response := append(p.Tokenizer.Encode(d.Response), p.end())
		if len(prompt) == 0 {
			return nil, fmt.Errorf("train: demonstration %d has an empty prompt", i+1)
		}
		sequences[i] = runtime.Sequence{Tokens: append(prompt, response...), Prompt: len(prompt)}
		if n, m := len(sequences[i].Tokens), p.Model.MaxPositions; m > 0 && n > m {
			return nil, fmt.Errorf("train: demonstration %d has %d tokens, and the model's max_position_embeddings is %d: leave it out", i+1, n, m)
		}
	}
	return sequences, nil
}

// end is the end-of-sequence token that responses learn to end with. Of several the
// tokenizer names the one that ends a turn; the first is often the one that ends a
// whole text, as in Llama 3.
func (p *Policy) end() int32 {
	if id, ok := p.Tokenizer.EOS(); ok && slices.Contains(p.Model.EOS, id) {
		return id
	}
	return p.Model.EOS[0]
}

// rate is the learning rate of step n (from 0) of total.
func (c SupervisedConfig) rate(n, total int) float64 {
	if n < c.Warmup {
		return c.LearningRate * float64(n+1) / float64(c.Warmup)
	}
	left := 1 - float64(n-c.Warmup)/float64(max(1, total-c.Warmup))
	return c.LearningRate * (c.Floor + (1-c.Floor)*left)
}

// meanLoss is a batch whose loss is the mean of -logp over all response tokens.
func meanLoss(sequences []runtime.Sequence, batch []int) (b learn.Batch) {
	tokens := 0
	for _, j := range batch {
		tokens += len(sequences[j].Tokens) - sequences[j].Prompt
	}
	for _, j := range batch {
		w := make([]float64, len(sequences[j].Tokens)-sequences[j].Prompt)
		for t := range w {
			w[t] = -1 / float64(tokens)
		}
		b.Sequences, b.Weights = append(b.Sequences, sequences[j]), append(b.Weights, w)
	}
	return b
}
