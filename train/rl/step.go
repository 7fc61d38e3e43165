package rl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"onering/internal/files"
	"onering/internal/strict"
	"onering/models"
	"onering/models/lora"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/train/learn"
	"onering/train/rundir"
)

// A Step is one optimizer step with weights that somebody else has given each token.
type Step struct {
	learn.Options
	StepFiles
	Update learn.UpdateSettings

	batch learn.Batch
}

// StepFiles say what a step reads beside its batch and what it writes; "" is nothing.
type StepFiles struct {
	State string `complete:"dir" help:"folder of the optimizer's moments, as an earlier step wrote it"`
	Out   string `complete:"dir" help:"folder to write (required but for --dry-run)"`
	Grads string `help:"also write the gradients, before clipping, to this safetensors file"`
	Dry   bool   `flag:"dry-run" help:"compute loss and gradients, update nothing"`
}

// NewStep returns a step with the defaults of a run.
func NewStep() *Step {
	return &Step{
		Update:  Default().Optimizer.UpdateSettings,
		Options: learn.Options{Temperature: 1, Passes: learn.Passes{MicroTokens: 4096, StashBytes: math.MaxInt}, Log: slog.Default()},
	}
}

// A ScoredRow is a prompt and a response, which may be an episode as a line of rollouts has it: then only the policy's
// tokens are scored. Kept are the ids of that line among which the tokens are scored.
type ScoredRow struct {
	policy.Pair
	Turns rundir.Turns `json:"turns"`
	Kept  [][]int32    `json:"kept"`
}

// Sequence returns the row as a Learner of a policy reads it. With turns, response_ids are the tokens of all authors, and
// kept has a set for each of them.
func (row ScoredRow) Sequence(p *policy.Policy) (runtime.Sequence, error) {
	if len(row.Turns) > 0 && row.ResponseIDs == nil {
		return runtime.Sequence{}, errors.New(`"turns" are parts of "response_ids", which must be given: they are the "ids" of a line of rollouts, and its "response" is not all the policy's`)
	}
	s, err := row.Pair.Sequence(p)
	if err != nil {
		return s, err
	}
	s.Kept = row.Kept
	if len(row.Turns) == 0 {
		return s, s.Check()
	}
	ids := *row.ResponseIDs
	if err := row.Turns.Check(len(ids)); err != nil {
		return s, err
	}
	var observed []sampler.Observed
	sampled := 0 // number of the policy's tokens so far
	for _, t := range row.Turns {
		if t.Author == rundir.Policy {
			sampled += t.To - t.From
		} else {
			observed = append(observed, sampler.Observed{At: sampled, IDs: ids[t.From:t.To]})
		}
	}
	s = sequenceOf(s.Tokens[:len(s.Tokens)-len(ids)], rundir.Sampled(row.Turns, ids), observed)
	s.Kept = rundir.Sampled(row.Turns, row.Kept)
	if len(s.Kept) == 0 && len(row.Kept) > 0 { // Sampled returns nothing for a list of another length
		return s, fmt.Errorf("%d sets in \"kept\" for %d response tokens", len(row.Kept), len(ids))
	}
	return s, s.Check()
}

// Widen inserts figures of 0 for the tokens of an environment.
func (row ScoredRow) Widen(figures []float32) []float32 { return rundir.Widen(row.Turns, figures) }

// A WeighedRow is a row with the weights of the response's tokens.
type WeighedRow struct {
	ScoredRow
	Weights *[]float64 `json:"weights"`
}

// Add adds a row to the batch. An episode has a weight for every token, which must be 0 for those of
// the environment; the batch gets only the policy's.
func (o *Step) Add(p *policy.Policy, row WeighedRow) error {
	s, err := row.Sequence(p)
	if err != nil {
		return err
	}
	if row.Weights == nil {
		return errors.New(`field "weights" is missing`)
	}
	weights, n := *row.Weights, s.Count()
	if len(row.Turns) > 0 {
		n = len(*row.ResponseIDs)
	}
	if len(weights) != n {
		return fmt.Errorf("%d weights for %d response tokens", len(weights), n)
	}
	own := rundir.Sampled(row.Turns, weights)
	for i, x := range rundir.Widen(row.Turns, own) { // own weights, and 0 for the environment's tokens
		if x != weights[i] {
			return fmt.Errorf("weights[%d] = %v: the token is the environment's, whose weight is 0", i, weights[i])
		}
	}
	o.batch.Sequences, o.batch.Weights = append(o.batch.Sequences, s), append(o.batch.Weights, own)
	return nil
}

// Empty says whether the batch has no rows.
func (o *Step) Empty() bool { return len(o.batch.Sequences) == 0 }

// A stepReport is the result of a step.
type stepReport struct {
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	Tokens   int     `json:"tokens"` // tokens of the responses
}

// Take computes the gradients of the batch and writes those that StepFiles asks for; then, unless the step is dry, it
// updates the weights of p, and writes them and the optimizer's state as the folder o.Out.
func (o *Step) Take(ctx context.Context, p *policy.Policy) (report stepReport, err error) {
	o.Optimizer, o.MaxGradNorm = o.Update.Rule, o.Update.MaxGradNorm
	stepper, err := learn.New(p.Env, p.Ring, o.Options)
	if err != nil {
		return report, err
	}
	defer stepper.Close()
	if a := p.Adapter; a != nil && a.Dropout != 0 {
		o.Log.Warn("the adapter's lora_dropout is not applied: gradients are those without dropout", "lora_dropout", a.Dropout)
	}
	optimizer := stepper.Optimizer()
	moments := slices.Collect(maps.Values(optimizer.State))
	if o.State != "" {
		if err := readState(o.State, optimizer); err != nil {
			return report, fmt.Errorf("--state: %w", err)
		}
		if err := p.Env.Upload(moments...); err != nil {
			return report, err
		}
	}
	r, err := stepper.Gradients(ctx, o.batch, nil) // nil: the batch has its weights
	if err != nil {
		return report, err
	}
	report = stepReport{r.Loss.Value, r.GradNorm, r.Tokens}
	if o.Grads != "" {
		err := stepper.WithoutScale(func(gradients []models.Tensor) error { // divided by float16's loss scale, on the host
			return models.WriteSafetensors(files.WriteFile, o.Grads, models.F32, gradients, nil)
		})
		if err != nil {
			return report, err
		}
	}
	if o.Dry {
		return report, nil
	}
	if err := stepper.Update(o.Update.LearningRate); err != nil {
		return report, err
	}
	trained := p.Ring.Trained()
	if err := p.Env.Download(append(moments, trained)...); err != nil {
		return report, err
	}
	return report, p.Save(o.Out, trained, models.F32, func(d *files.Draft) error {
		text, err := json.Marshal(stepState{stateVersion, optimizer.Updates, p.Base()})
		if err == nil {
			err = d.WriteFile(filepath.Join("state", stateFile), files.Content(append(text, '\n')))
		}
		for _, name := range slices.Sorted(maps.Keys(optimizer.State)) {
			err = errors.Join(err, models.WriteSafetensors(d.WriteFile, filepath.Join("state", name+".safetensors"), models.F32, optimizer.State[name].Tensors(), nil))
		}
		return err
	})
}

// stateFile and the optimizer's state, each by its name with .safetensors, are
// the files of a state folder. Those of a checkpoint have the same names.
const stateFile = "state.json"

const stateVersion = 1

// A stepState is the content of a state folder besides the optimizer's state.
type stepState struct {
	Version int        `json:"version"`
	Updates int        `json:"updates"`        // made so far, for AdamW's bias correction
	Base    *lora.Base `json:"base,omitempty"` // the model of an adapter, if it is known
}

// readState reads the optimizer's state, in the host's memory, out of a folder of an earlier step.
func readState(dir string, o *runtime.Optimizer) error {
	path := filepath.Join(dir, stateFile)
	text, err := files.ReadIn(path, 1<<20)
	if err != nil {
		return err
	}
	var s stepState
	if err := strict.JSON(text, &s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if s.Version != stateVersion || s.Updates < 0 || s.Updates > math.MaxInt32 {
		return fmt.Errorf("%s: version %d with %d updates; this program reads version %d", path, s.Version, s.Updates, stateVersion)
	}
	for _, name := range slices.Sorted(maps.Keys(o.State)) {
		if err := o.State[name].LoadFile(filepath.Join(dir, name+".safetensors")); err != nil {
			return err
		}
	}
	o.Updates = s.Updates
	return nil
}
