package sft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/data"
	"onering/internal/files"
	"onering/internal/settings"
	"onering/policy"
	"onering/runtime"
	"onering/train"
	"onering/train/doctor"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// A trainer trains one policy on demonstrations: it is the train.Task of supervised training.
type trainer struct {
	Config Config

	run        *train.Run
	log        *slog.Logger
	learn      *set
	heldOut    *set // nil if nothing is held out
	summary    Summary
	order      []int // the order of the demonstrations in pass number pass, counted from 1
	pass       int
	stepsBegun bool // the observer knows that steps have begun
	finished   bool // the model is written

	findings []doctor.Finding // what is wrong before the first step
	// A unit is what is drawn and counted: a demonstration, or a preference. Its first responses examples, 2 of a
	// pair and else 1, are learned; of its unitSize examples the others are mismatched ones, which the loss needs.
	responses, unitSize int
	prefer              *preferring // nil unless the run is on preferences
}

var _ train.Task = (*trainer)(nil)

// A Summary is the result of a run, from its beginning, even if it was resumed.
type Summary struct {
	Folder         string  `json:"folder"`
	Demonstrations int     `json:"demonstrations"`
	Tokens         int     `json:"tokens"` // number of tokens learned in one pass over the demonstrations
	Steps          int     `json:"steps"`
	Resumed        int     `json:"resumed,omitempty"` // number of finished steps when the run was last resumed
	Seconds        float64 `json:"seconds"`           // since it began or was last resumed
	train.Ending
	Loss    []float64 `json:"loss,omitempty"`          // loss of the first and of the last step
	HeldOut []float64 `json:"held_out_loss,omitempty"` // loss before and after; nil without held-out demonstrations
	// Diagnoses say what is wrong with the run, in the order in which it was found.
	Diagnoses []doctor.Finding `json:"diagnoses,omitempty"`
}

// NewOn opens everything that a run needs and checks that it fits together. list are the
// demonstrations, or those of the preferences (see data.LoadPreferences), and heldOut are of data.eval. The run folder is
// made by Run. Of several ranks all call it, and then Run.
func NewOn(c Config, s train.Setup, list, heldOut []data.Demonstration) (*trainer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &trainer{responses: 1, unitSize: 1}
	if c.Preference != nil {
		var err error
		if t, err = newPreferring(c, list, heldOut); err != nil {
			return nil, err
		}
	}
	return t, t.open(c, s, list, heldOut)
}

// open splits the demonstrations into those to learn and those to hold out, unless a file has the latter, encodes them,
// and opens the run. It notes a finding if the prompts lack the model's chat template.
func (t *trainer) open(c Config, s train.Setup, list, heldOut []data.Demonstration) error {
	t.Config, t.log = c, s.Log
	encoder, err := c.Encoder(s.Policy)
	if err != nil {
		return err
	}
	if c.Data.HeldOut > 0 {
		if list, heldOut, err = split(list, t.responses, c.Data.HeldOut, c.Train.Seed); err != nil {
			return err
		}
	}
	if t.learn, err = encoder.EncodeAll(list, t.responses, "--data", s.Log); err != nil {
		return err
	}
	if len(heldOut) > 0 {
		if t.heldOut, err = encoder.EncodeAll(heldOut, t.responses, "--eval-data", s.Log); err != nil {
			return err
		}
	}
	for _, s := range t.sets() {
		if t.unitSize > t.responses { // the loss needs mismatched responses
			addMismatched(s, t.responses)
		}
	}
	t.run, err = train.New(s, c.Model.Path, c.Distributed, learn.Options{
		Optimizer: c.Optimizer.Rule, MaxGradNorm: c.Optimizer.MaxGradNorm,
		Temperature: 1, Passes: train.PassesOf(s.Policy, c.Train.MicroTokens, t.prefer == nil), // demonstrations are weighed before the forward pass
	})
	if err == nil && t.prefer == nil && s.Ranks.Size() == 1 && s.Policy.Tokenizer.CheckChat() == nil {
		t.findings = t.missesTemplate(encoder, list)
	}
	return err
}

// missesTemplate finds that the model knows the responses to prompts that are texts better behind its
// chat template than behind the prompts as they are learned, by the losses of a few demonstrations. It finds
// nothing where they cannot be compared, and leaves errors to training, which meets them again.
func (t *trainer) missesTemplate(bare *encoder, list []data.Demonstration) []doctor.Finding {
	c := t.Config
	c.Model.Template = "chat"
	chat, err := c.Encoder(bare.policy)
	if err != nil {
		return nil
	}
	chat.trial = true   // no warnings
	var loss [2]float64 // the mean over learned tokens, bare and in the chat template
	for k, e := range []*encoder{bare, chat} {
		s := new(set)
		for _, d := range list[:min(16, len(list))] {
			x, err := e.Encode(d)
			if err != nil || d.Chat != nil || d.Whole || bare.template.Chat {
				return nil // not a prompt that is a text, or one in the chat template already
			}
			if x != nil {
				s.Examples, s.tokens = append(s.Examples, *x), s.tokens+x.sequence().Count()
			}
		}
		scores, err := t.score(context.Background(), s.Examples)
		if err != nil {
			return nil // training meets it again
		}
		loss[k] = s.loss(scores)
	}
	if !(loss[1] < 0.7*loss[0]-0.1) { // not clearly lower, or NaN
		return nil
	}
	f := &doctor.Finding{Cause: "template", Text: fmt.Sprintf("the prompts lack the chat template that the model knows: behind it the responses of the first "+
		"demonstrations have a loss of %.3g, and of %.3g behind the prompts as they are. Set model.template = \"chat\" (--template chat)", loss[1], loss[0])}
	return []doctor.Finding{*f.With("model.template", "chat")}
}

// sets are the demonstrations that are learned and, if there are any, those held out.
func (t *trainer) sets() []*set {
	if t.heldOut == nil {
		return []*set{t.learn}
	}
	return []*set{t.learn, t.heldOut}
}

// split holds out a share of the units, at least one, drawn by the seed. A unit is together demonstrations in a row, such
// as the 2 of a preference.
func split(list []data.Demonstration, together int, share float64, seed int64) (kept, heldOut []data.Demonstration, err error) {
	all := len(list) / together
	n := max(1, int(math.Round(share*float64(all))))
	if n >= all {
		return nil, nil, settings.About(fmt.Errorf("train: data.held_out = %v of %d demonstrations leaves none to learn from", share, all), "data.held_out")
	}
	chosen := make([]bool, all)
	for _, i := range rand.New(rand.NewPCG(uint64(seed), math.MaxUint64)).Perm(all)[:n] { // MaxUint64: not the number of a pass, as in batch
		chosen[i] = true
	}
	for i, d := range list {
		if chosen[i/together] {
			heldOut = append(heldOut, d)
		} else {
			kept = append(kept, d)
		}
	}
	return kept, heldOut, nil
}

// Close frees everything but the policy.
func (t *trainer) Close() { t.run.Close() }

// perEpoch is how many steps a pass over the demonstrations takes.
func (t *trainer) perEpoch() int {
	return (t.units() + t.Config.Train.BatchSize - 1) / t.Config.Train.BatchSize
}

// units is how many demonstrations or preferences are learned.
func (t *trainer) units() int { return len(t.learn.Examples) / t.unitSize }

// steps returns how many steps the whole run takes.
func (t *trainer) steps() int { return t.Config.Train.Epochs * t.perEpoch() }

// epochs returns the number of passes over the demonstrations after so many steps. The
// last step of a pass may be smaller than the others.
func (t *trainer) epochs(steps int) float64 {
	all := t.units()
	return float64(steps/t.perEpoch()) + float64(steps%t.perEpoch()*t.Config.Train.BatchSize)/float64(all)
}

// Run trains and writes the run folder, which at the end is a Hugging Face folder too; see train.Run.
func (t *trainer) Run(ctx context.Context, resume bool) (Summary, error) {
	t.summary = Summary{Folder: t.Config.Output.Dir, Demonstrations: t.units(), Tokens: t.learn.tokens}
	end, err := t.run.Do(ctx, t, resume)
	s := t.summary
	s.Resumed = end.Resumed.Step
	if err == nil {
		s.Steps, s.Seconds, s.Ending = end.At.Step, end.Seconds, end.Ending
	}
	return s, err
}

// Recall implements train.Task: it notes a finding, or the first and newest loss of steps or of evaluations,
// for the summary.
func (t *trainer) Recall(r metrics.Record) {
	if f, ok := doctor.FindingOf(r); ok {
		t.summary.Diagnoses = append(t.summary.Diagnoses, f)
		return
	}
	loss, noted := r.Float("loss"), &t.summary.Loss
	if r.Get("kind") == "eval" {
		noted = &t.summary.HeldOut
	}
	if *noted == nil {
		*noted = []float64{loss, loss}
	}
	(*noted)[1] = loss
}

// name is the name of the task.
func (t *trainer) name() string {
	if t.prefer != nil {
		return "dpo"
	}
	return "sft"
}

// Begin implements train.Task.
func (t *trainer) Begin(train.Position) error { return nil }

// Next implements train.Task. Before the first step, after the last and as often as
// train.eval_every says the held-out loss is measured; at the end the model is written.
func (t *trainer) Next(at train.Position) train.Piece {
	do := t.step
	switch {
	case !at.Evaluated:
		do = t.evaluate
	case t.finished:
		return nil
	case at.Step == t.steps() || t.run.Stopped():
		do = t.finish
	}
	return func(ctx context.Context) (train.Done, error) { return do(ctx, at) }
}

// batch returns the examples of the step after the given number of steps.
func (t *trainer) batch(step int) (examples []Example) {
	if pass := step/t.perEpoch() + 1; pass != t.pass {
		t.pass, t.order = pass, rand.New(rand.NewPCG(uint64(t.Config.Train.Seed), uint64(pass-1))).Perm(t.units())
	}
	from := step % t.perEpoch() * t.Config.Train.BatchSize
	for _, i := range t.order[from:min(from+t.Config.Train.BatchSize, len(t.order))] {
		examples = append(examples, t.learn.Examples[i*t.unitSize:(i+1)*t.unitSize]...)
	}
	return examples
}

// step takes the next optimizer step. Its loss is the mean of -log p over all learned
// tokens of the batch, so w = -1/N, which is known before the forward pass; on preferences t.prefer
// weighs the examples once their log-probs are known. It finishes a step even if ctx is cancelled.
func (t *trainer) step(ctx context.Context, at train.Position) (train.Done, error) {
	if !t.stepsBegun {
		t.run.Observer.Begin(t.name(), "steps", t.steps())
		t.run.Observer.Advance(at.Step)
		t.stepsBegun = true
	}
	n, examples := at.Step+1, t.batch(at.Step)
	b := learn.Batch{Number: n, LearningRate: t.Config.Optimizer.Rate(t.Config.Optimizer.LearningRate, at.Step, float64(t.steps()))}
	learned := 0
	for k, x := range examples {
		b.Sequences = append(b.Sequences, x.sequence())
		learned += b.Sequences[k].Count()
	}
	var weigh learn.Weigh
	var figures metrics.Record
	if t.prefer == nil {
		for _, s := range b.Sequences {
			b.Weights = append(b.Weights, slices.Repeat([]float64{-1 / float64(learned)}, s.Count()))
		}
	} else {
		for k := range examples {
			b.Live = append(b.Live, k%t.unitSize < t.responses) // the others are mismatched ones, which are only scored
		}
		weigh = func(scores learn.Scores) (learn.Loss, error) {
			loss, pairs := t.prefer.weigh(examples, scores, t.responses, t.unitSize)
			figures = t.prefer.record(pairs)
			return loss, nil
		}
	}
	sent := t.run.Ranks.Sent() // before the step, for its Volume
	report, err := t.run.Stepper.Step(context.WithoutCancel(ctx), b, weigh)
	if nonfinite, ok := errors.AsType[*learn.NonfiniteError](err); ok {
		nonfinite.Among = "demonstrations of the batch"
		for _, k := range nonfinite.Sequences {
			t.log.Error("a demonstration has figures that are not finite", "place", examples[k].place)
		}
	}
	if err != nil {
		return train.Done{}, fmt.Errorf("train: step %d: %w", n, err)
	}
	record := append(metrics.Record{}.With("kind", "step").With("step", n).With("epoch", t.epochs(n)), report.Record(b.LearningRate)...)
	entropy := 0.0
	for _, row := range report.Entropy {
		for _, h := range row {
			entropy += h / float64(learned)
		}
	}
	record = append(append(record.With("entropy", entropy), figures...), t.run.Volume(sent, report.Early)...)
	return t.stepDone(n, append(record, t.run.Clock.Take()...)), nil
}

// stepDone returns the result of step number n, from 1: its record, what to print of some twenty steps of a run, and
// whether an evaluation or a checkpoint is next. It notes the record for the summary.
func (t *trainer) stepDone(n int, record metrics.Record) train.Done {
	t.Recall(record)
	t.run.Observer.Advance(1)
	done, total := train.Done{At: train.Position{Step: n, Evaluated: true}, Record: record, Save: train.IfDue}, t.steps()
	if every := t.Config.Train.EvalEvery; n == total || every > 0 && n%every == 0 {
		done.At.Evaluated, done.Save = false, train.Never // an evaluation comes first
	}
	if every := max(1, total/20); n%every == 0 || n == total {
		done.Say = []string{fmt.Sprintf("step %d/%d  epoch %.2f  loss %.4f  grad norm %.2f  learning rate %.1e",
			n, total, record.Float("epoch"), record.Float("loss"), record.Float("grad_norm"), record.Float("learning_rate"))}
	}
	return done
}

// evaluate measures the held-out loss, if something is held out. On preferences it first notes the log-probs of the first
// policy, with which the loss compares: it runs before the first step.
func (t *trainer) evaluate(ctx context.Context, at train.Position) (train.Done, error) {
	done := train.Done{At: train.Position{Step: at.Step, Evaluated: true}, Save: train.IfDue}
	if at.Step == t.steps() {
		done.Save = train.Never // the model is written next
	}
	t.stepsBegun = false // the observer shows the evaluation
	if t.prefer != nil {
		if err := t.prefer.scoreReference(ctx, t); err != nil {
			return done, err
		}
	}
	if t.heldOut == nil {
		return done, nil
	}
	t.run.Observer.Begin("evaluate", "examples", len(t.heldOut.Examples))
	scores, err := t.score(ctx, t.heldOut.Examples)
	if err != nil {
		return done, fmt.Errorf("train: the held-out loss after step %d: %w", at.Step, err)
	}
	loss, figures, said := t.heldOutLoss(scores)
	score := -loss // the highest is the best
	done.Score = &score
	done.Record = append(metrics.Record{}.With("kind", "eval").With("step", at.Step).With("epoch", t.epochs(at.Step)).With("loss", loss), figures...)
	done.Say = []string{fmt.Sprintf("after step %d: held-out loss %.4f, %s", at.Step, loss, said)}
	t.Recall(done.Record) // for the summary
	return done, nil
}

// heldOutLoss returns the loss of the held-out demonstrations, the mean of -log p over their
// learned tokens, or that of the held-out preferences, with further figures.
func (t *trainer) heldOutLoss(scores learn.Scores) (loss float64, figures metrics.Record, said string) {
	if t.prefer != nil {
		loss, pairs := t.prefer.weigh(t.heldOut.Examples, scores, t.responses, t.unitSize)
		figures = t.prefer.record(pairs)
		return loss.Value, figures, fmt.Sprintf("accuracy %.1f %%", 100*figures.Float("accuracy"))
	}
	loss = t.heldOut.loss(scores)
	return loss, metrics.Record{}.With("perplexity", math.Exp(loss)).With("tokens", t.heldOut.tokens), fmt.Sprintf("perplexity %.4g", math.Exp(loss))
}

// loss returns the mean of -log p over the learned tokens.
func (s *set) loss(scores learn.Scores) float64 {
	total := 0.0
	for _, row := range scores.LogProb {
		for _, logp := range row {
			total -= logp
		}
	}
	return total / float64(s.tokens)
}

// score returns the log-probs of examples under the weights as they are.
func (t *trainer) score(ctx context.Context, list []Example) (all learn.Scores, err error) {
	const portion = 64 // examples between two moves of the bar
	for from := 0; from < len(list); from += portion {
		part := list[from:min(from+portion, len(list))]
		sequences := make([]runtime.Sequence, len(part))
		for i, x := range part {
			sequences[i] = x.sequence()
		}
		scores, err := t.run.Stepper.Score(ctx, sequences)
		if err != nil {
			return all, err
		}
		all.LogProb = append(all.LogProb, scores.LogProb...)
		t.run.Observer.Advance(len(part))
	}
	return all, nil
}

// configFiles are the files of a model folder and of an adapter folder, of which one is
// written last: then the run is finished.
var configFiles = []string{"config.json", "adapter_config.json"}

// Finished says whether the run in the output folder is finished, so that there is nothing to resume.
func (c Config) Finished() bool {
	return slices.ContainsFunc(configFiles, func(name string) bool {
		_, err := os.Stat(filepath.Join(c.Output.Dir, name))
		return err == nil
	})
}

// finish writes the model, or the adapter, into the run folder: into a hidden folder first, whose files it
// moves, configFiles last. If the process is killed before its end, there is no config and the run is
// resumed from its checkpoint. All ranks call it, since Written gathers; only the first has the folder.
func (t *trainer) finish(_ context.Context, at train.Position) (train.Done, error) {
	done := train.Done{At: at}
	trained, err := t.run.Written()
	if err = errors.Join(t.run.Wait(), err); err != nil {
		return done, err
	}
	t.finished = true
	if t.run.Folder == nil {
		return done, nil
	}
	dir := t.Config.Output.Dir
	hidden := filepath.Join(dir, ".model.tmp-whole") // a name that opening the folder removes
	if err := os.RemoveAll(hidden); err != nil {
		return done, fmt.Errorf("train: run folder: %w", err)
	}
	dtype := policy.ComputeTypes[t.Config.Output.DType]
	if err := t.run.Policy.Save(hidden, trained, dtype, nil); err != nil {
		return done, err
	}
	entries, err := os.ReadDir(hidden)
	if err != nil {
		return done, fmt.Errorf("train: run folder: %w", err)
	}
	last := func(e os.DirEntry) int {
		if slices.Contains(configFiles, e.Name()) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return last(a) - last(b) })
	for _, e := range entries {
		if err := files.Rename(filepath.Join(hidden, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return done, fmt.Errorf("train: run folder: %w", err)
		}
	}
	return done, os.Remove(hidden)
}

// Plan implements train.Task: it states which settings decide the run, what it saves, and when it stops.
func (t *trainer) Plan() train.Plan {
	c, facts := t.Config, train.FactsOf(t.run.Policy)
	facts.Settings, facts.Steps, facts.Data = train.Values(&c), t.steps(), t.findings // facts has all settings, p the decisive ones
	if t.prefer == nil {
		facts.Frequency = t.learn.frequency() // the loss of a model that knows only how often each token is learned
	}
	p := train.Plan{
		Output: c.Output.Dir, CheckEvery: c.Distributed.CheckEvery,
		Saving:    train.Saving{Steps: c.Train.SaveSteps, Minutes: c.Train.SaveMinutes, KeepLast: c.Train.KeepLast, KeepBest: c.Train.KeepBest},
		Stopping:  c.Train.Stopping,
		Objective: t.name(), Settings: c.decisive(), Facts: facts,
		Former:   map[string]string{"optimizer.name": "adamw"}, // for checkpoints from before it was a setting
		Others:   train.Values(&c, "train", "distributed"),     // these must be equal on all ranks
		Problems: digest(t.sets()...), Things: "demonstrations", Changed: "there are other demonstrations",
	}
	if t.prefer != nil {
		p.Things, p.Changed = "preferences", "there are other preferences" // Changed: the message if a checkpoint had others
	}
	return p
}

// decisive returns the settings that decide the course of a run, by key: all except those
// for saving, and for places of files.
func (c Config) decisive() map[string]string {
	values := train.Values(&c, "model", "lora", "data", "preference", "optimizer", "train", "runtime")
	for _, key := range []string{
		"model.path", "data.train", "data.eval", "train.save_steps", "train.save_minutes", "train.keep_last",
		"train.keep_best", "train.eval_every", "train.stop_when", "train.stop_after", "runtime.library",
	} {
		delete(values, key)
	}
	for _, f := range settings.Fields(c.Data.PreferenceColumns) { // earlier checkpoints have other values of them
		delete(values, "data."+f.Key)
	}
	return values
}

// Changes says which settings that decide a run, and which files, are others than in an
// earlier configuration was; "" if none are. Two paths of the same file are equal.
func (c Config) Changes(was Config) string {
	now, before := c.decisive(), was.decisive()
	for key, path := range map[string][2]string{
		"model.path": {was.Model.Path, c.Model.Path}, "data.train": {was.Data.Train, c.Data.Train}, "data.eval": {was.Data.Eval, c.Data.Eval},
	} {
		a, err := os.Stat(path[0])
		b, failed := os.Stat(path[1])
		same := err == nil && failed == nil && os.SameFile(a, b) || strings.HasPrefix(path[0], path[1]+"@") // run.toml pins a name on a hub
		if !same && (key != "model.path" || c.LoRA.Adapter == "") {                                         // else path may be the run of the adapter
			before[key], now[key] = path[0], path[1]
		}
	}
	return train.Plan{Settings: now}.Changes(before).String()
}

// Save implements train.Task: the position determines the whole state, but for the log-probs
// of the first policy, which is gone.
func (t *trainer) Save(s *rundir.Snapshot) error {
	if t.prefer != nil {
		s.State.ObjectiveState = t.prefer.save(t.sets())
	}
	return nil
}

// Restore implements train.Task: it refuses changed settings, and takes up the log-probs of the first policy.
func (t *trainer) Restore(from train.Checkpoint) error {
	if len(from.Changed) > 0 {
		return fmt.Errorf("train: resume: since %s %s: the run could not end as one that was never stopped; set it "+
			"back, or begin another run from the checkpoint with --model %s", from.Dir, from.Changed, from.Dir)
	}
	if t.prefer == nil {
		return nil
	}
	if err := t.prefer.restore(from.State.ObjectiveState, t.sets()); err != nil {
		return fmt.Errorf("train: resume: %s: %w", from.Dir, err)
	}
	return nil
}
