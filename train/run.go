package train

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"onering/policy"
	"onering/runtime"
	"onering/train/doctor"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
)

// A run is a chain of small deterministic pieces. Between two pieces its state consists
// of its position, the weights, the optimizer's state and the Task's state. A checkpoint
// holds these, so a resumed run does the same pieces with the same bits.

// A Task is the work of a run. One goroutine calls its methods, on every rank in the same order.
type Task interface {
	// Plan says what the run needs to know about the task.
	Plan() Plan
	// Recall receives each record that a resumed run has written before.
	Recall(r metrics.Record)
	// Begin is called before the first piece, when the run has its folder and position.
	Begin(at Position) error
	// Next returns the piece at a position; nil at the end of the run. It changes
	// nothing.
	Next(at Position) Piece
	// Save adds the task's state to a snapshot, without copying it: the run continues
	// only after the state is written or copied.
	Save(s *rundir.Snapshot) error
	// Restore restores the state that Save stored, or refuses a checkpoint if settings
	// have changed.
	Restore(from Checkpoint) error
}

// A Piece does a part of a run, completely or not at all. It may fail on a single rank:
// the ranks agree after each piece, and an error of one ends the run on all. So a Piece
// must exchange its data with the other ranks even after an error.
type Piece func(ctx context.Context) (Done, error)

// A Done is the result of a Piece.
type Done struct {
	At     Position       // the run's new position
	Record metrics.Record // for metrics.jsonl; nil if there is none
	Say    []string       // lines for people
	Save   save
	Seen   *doctor.Round // the evidence of a finished round
	Score  *float64      // how good the model is at this position, if that was measured: the highest is the best
}

// A Run does the pieces of a Task. It has the run folder, checkpoints, resuming, the
// agreement of the ranks, records and warnings.
type Run struct {
	Learned
	Ranks    *ranks.Group
	Clock    *metrics.Stopwatch
	Observer metrics.Observer
	Log      *slog.Logger
	Folder   *rundir.Folder // opened by Do; nil on all ranks but the first
	// BeforePass, if not nil, is called before each pass of a step; see learn.Options.
	BeforePass func(tokens int) error

	spreadBytes   func(from, to int) int64 // the bytes of a range that all ranks get of one
	model         string                   // with several ranks, the fingerprint of the policy when it was opened
	onResumed     func() error             // see Setup.Resumed; nil if nobody asks
	endsAt        *rundir.State            // see Setup.Until
	follower      rundir.Follower          // see Setup.Follower
	configChanged bool                     // the newest checkpoint counts another run.toml than the run goes on with
	task          Task
	plan          Plan
	saver         *saver
	doctor        *doctor.Doctor
	at            Position
	score         *float64
	stop          *stopRule // nil without train.stop_when
}

// Stopped says whether train.stop_when ends the run: a Task then has nothing more to do than at its last round or step.
func (r *Run) Stopped() bool { return r.stop != nil && r.stop.ended }

// A Setup has the parts of which a Run is made. With several ranks, the first writes the
// folder, and its log and observer receive everything that concerns all.
type Setup struct {
	Ranks    *ranks.Group
	Policy   *policy.Policy
	Log      *slog.Logger
	Observer metrics.Observer
	// Resumed, if not nil, is called on the first rank when a run is resumed, after its
	// folder and checkpoint have been found to belong to it. Before that, only
	// half-written or damaged files in the folder are changed. An error ends the run.
	Resumed func() error
	// Follower, if not nil, follows the checkpoints on the first rank.
	Follower rundir.Follower
	// Until, if not nil, is the state of a checkpoint where the run ends, and writes one.
	Until *rundir.State
}

// New opens the Stepper of a run. path is the model's name in messages. It refuses weights that are not finite.
func New(s Setup, path string, d DistributedConfig, o learn.Options) (*Run, error) {
	if err := learn.CheckWeights(s.Policy.Weights); err != nil {
		return nil, fmt.Errorf("train: %s: %w", path, err)
	}
	r := &Run{
		Learned: Learned{Policy: s.Policy}, Ranks: s.Ranks, Clock: metrics.NewStopwatch(), Observer: s.Observer, Log: s.Log,
		spreadBytes: runtime.SpreadBytes(s.Policy.Ring.Arch, d.Shard == "optimizer"), onResumed: s.Resumed, endsAt: s.Until, follower: s.Follower,
	}
	o.Ranks, o.Shard, o.Log, o.Observe = r.Ranks, d.Shard == "optimizer", s.Log, r.Clock.Enter
	o.BeforePass = func(tokens int) error { // r.BeforePass may be set later
		if r.BeforePass == nil {
			return nil
		}
		return r.BeforePass(tokens)
	}
	if r.Ranks.Size() > 1 { // while the host still has all weights
		r.model = s.Policy.Fingerprint()
	}
	var err error
	if r.Stepper, err = learn.New(s.Policy.Env, s.Policy.Ring, o); err != nil {
		return nil, err
	}
	return r, nil
}

// Close frees everything but the policy.
func (r *Run) Close() {
	if r.saver != nil {
		r.saver.writer.Close()
	}
	if err := r.Ranks.Unlink(); err != nil {
		r.Log.Warn("the link between the devices did not end in order", "reason", err)
	}
	r.Stepper.Close()
	r.Folder.Close()
}

// A summary is the result of a run of any task.
type summary struct {
	At      Position // position at the end of the run
	Resumed Position // position when it was last resumed
	Seconds float64  // since it began or was last resumed
	Ending
}

// Do does the pieces of a task to the last one, and writes the run folder; all ranks call it. With resume it
// continues from the folder's newest whole checkpoint, or from the beginning if there is
// none yet.
//
// When ctx ends, Do finishes the present optimizer step, writes a checkpoint and returns
// ctx's error. It also writes one before it returns any other error, unless an update has
// failed halfway. If the run folder cannot be written, the checkpoint goes to the system's
// folder for temporary files, which the error names.
func (r *Run) Do(ctx context.Context, task Task, resume bool) (s summary, err error) {
	began := time.Now()
	ctx, end := r.Ranks.Context(ctx)
	defer end()
	r.task, r.plan = task, task.Plan()
	r.doctor = doctor.New(r.plan.Facts)
	if r.stop, err = r.plan.Stopping.rule(); err != nil {
		return s, fmt.Errorf("train: train.stop_when = %q: %w", r.plan.Stopping.StopWhen, err)
	}
	if err := r.open(resume); err != nil {
		return s, err
	}
	s.Resumed = r.at
	if err := r.together(func() error { return task.Begin(r.at) }); err != nil {
		return s, err
	}
	if err := r.together(func() error { return r.diagnose(r.doctor.Begin()) }); err != nil {
		return s, err
	}
	if err := r.stop.agree(r.Ranks); err != nil {
		return s, err
	}
	if err := r.pieces(ctx); err != nil {
		stopped := r.saver.stop(r.at, err)
		if stopped != err && ctx.Err() != nil {
			// A caller that ended ctx may look only for ctx's error.
			r.Log.Error("stopping was not clean", "reason", stopped)
		}
		return s, stopped
	}
	s.At, s.Seconds = r.at, time.Since(began).Seconds()
	if r.stop != nil && r.Folder != nil {
		s.Best = rundir.Best(r.Folder.Dir)
	}
	if r.Stopped() {
		s.Early = r.stop.reason()
	}
	return s, nil
}

// together does steps one after the other. All ranks do each step, and then agree whether
// it succeeded on all: an error of one rank is an error on all.
func (r *Run) together(steps ...func() error) error {
	for _, step := range steps {
		if err := r.Ranks.AgreeOn(step()); err != nil {
			return err
		}
	}
	return nil
}

// pieces does the pieces that are left. After each the ranks agree on its error, and the run may say something, stop
// early by train.stop_when, or be saved; at the end it waits for the checkpoint that is being written.
func (r *Run) pieces(ctx context.Context) error {
	stopped := func() error { return errors.Join(ctx.Err(), r.saver.writer.Poll()) } // Poll: an error of the background write
	for next := r.next(); next != nil; next = r.next() {
		steps := r.at.Step
		var done Done
		err := r.together(stopped, func() (err error) {
			done, err = r.piece(ctx, next)
			return err
		})
		if err == nil && r.at.Step > steps {
			err = r.checkWeights()
		}
		if err != nil {
			return err
		}
		if done.Record != nil && !r.at.Inside { // records of steps inside a round are not shown
			r.Observer.Record(done.Record)
		}
		for _, line := range done.Say {
			r.Observer.Say(line)
		}
		if err := r.stop.after(r); err != nil {
			return err
		}
		if err := r.saver.after(r.at, done.Save); err != nil {
			return err
		}
	}
	// A run that ends early, or with another run.toml, may not be saved yet. Without rounds its result is the model that the last piece wrote.
	if r.endsAt != nil || r.configChanged || r.Stopped() && r.at.Round > 0 {
		if err := r.saver.after(r.at, Now); err != nil {
			return err
		}
	}
	return r.together(r.Wait)
}

// next returns the next piece; nil at the end of the run, or where it is to end.
func (r *Run) next() Piece {
	if r.endsAt != nil && r.at == positionOf(*r.endsAt) {
		return nil
	}
	return r.task.Next(r.at)
}

// piece does a piece: it moves the position on, notes how good the model is, and writes the record and what is wrong by
// it. The piece counts as done even if its record cannot be written.
func (r *Run) piece(ctx context.Context, do Piece) (Done, error) {
	done, err := do(ctx)
	if err != nil {
		return done, err
	}
	if done.At != r.at {
		r.at, r.score = done.At, done.Score
	}
	if r.stop != nil {
		r.stop.see(done.Record)
		r.score = r.stop.score(r.at.Step) // by the figure of train.stop_when, in place of the Task's
	}
	if done.Record == nil {
		return done, nil
	}
	err = r.Folder.Append(done.Record)
	return done, errors.Join(err, r.diagnose(r.doctor.Look(done.Record, done.Seen)))
}

// diagnose warns of what is wrong with the run, and records it.
func (r *Run) diagnose(list []doctor.Finding) (err error) {
	for _, f := range list {
		r.Log.Warn(f.Text, "cause", f.Cause, "round", r.at.Round, "step", r.at.Step)
		record := f.Record(r.at.Round, r.at.Step)
		r.task.Recall(record)
		r.Observer.Record(record)
		err = errors.Join(err, r.Folder.Append(record))
	}
	return err
}

// Wait waits for the checkpoint that is being written, if any, and returns its error.
func (r *Run) Wait() error { return r.saver.writer.Wait() }

// snapshot returns the present state of the run, without a copy of the weights. It is
// valid until Release, before which the run does not continue.
func (r *Run) snapshot() (rundir.Snapshot, error) {
	s := rundir.Snapshot{State: rundir.State{
		Objective: r.plan.Objective, Settings: r.plan.Settings, Problems: r.plan.Problems, Score: r.score, Alarms: r.doctor.State(),
		Round: r.at.Round, Step: r.at.Step, Inside: r.at.Inside, Evaluated: r.at.Evaluated,
	}}
	failed := r.task.Save(&s)
	return s, errors.Join(failed, r.SaveTo(&s)) // the ranks exchange parts here, so it is called even after an error
}

// checkWeights ends the run unless all ranks have the same weights. distributed.check_every says how often it looks.
func (r *Run) checkWeights() error {
	var text string
	if every := r.plan.CheckEvery; r.Ranks.Size() == 1 || every == 0 || r.at.Step%every != 0 {
		return nil
	}
	return r.together(func() (err error) {
		text, err = r.digest()
		return err
	}, func() error {
		if err := r.Ranks.Same("digest of the weights", text); err != nil {
			return &learn.UpdateError{Err: fmt.Errorf("train: after step %d: %w", r.at.Step, err)}
		}
		return nil
	})
}

// digest returns a digest of the weights as the graphs read them, which all ranks have.
func (r *Run) digest() (string, error) {
	w, sum := r.Policy.Ring.Trained(), sha256.New()
	read := func(x []byte, _ []int) error {
		_, err := sum.Write(x)
		return err
	}
	for from := 0; from < len(w.Data); from += runtime.DefaultBucket {
		if err := r.Policy.Env.Spread(w, 0, []int{from, min(from+runtime.DefaultBucket, len(w.Data))}, read); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// Volume records how many bytes of gradients and weights this rank has sent since a
// count, how many a step should send, and for how many bytes of gradients the sums began
// before the end of the backward pass. A single rank has no such record.
func (r *Run) Volume(sent int64, early int) metrics.Record {
	if r.Ranks.Size() == 1 {
		return nil
	}
	return metrics.Record{}.With("ranks/sent_bytes", r.Ranks.Sent()-sent).With("ranks/predicted_bytes", r.predicted()).With("ranks/early_bytes", 4*early)
}

// predicted is how many bytes this rank sends in a step.
func (r *Run) predicted() int64 {
	return ranks.Volume(r.Ranks.Rank(), r.Ranks.Size(), r.Stepper.Buckets(), r.spreadBytes)
}
