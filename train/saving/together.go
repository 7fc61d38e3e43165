package saving

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
)

// Of several ranks the first has the run folder. What they need to know of it, and what
// they must have the same of, is here.

// A Found is the newest checkpoint of a run; Dir is empty where there is none.
type Found struct {
	Dir   string
	State rundir.State
	Round *rundir.Round // that it lies inside, or nil
}

// Newest reads the newest checkpoint on the first rank, and returns it on all: the others
// may have no folder of the run.
func Newest(group *ranks.Group, folder *rundir.Folder, log *slog.Logger) (f Found, err error) {
	if group.First() {
		f, err = newest(folder, log)
	}
	if err := group.AgreeOn(err); err != nil || group.Size() == 1 {
		return f, err
	}
	all, err := ranks.GatherAll(group, f)
	if err != nil {
		return f, err
	}
	return all[0], nil
}

func newest(folder *rundir.Folder, log *slog.Logger) (f Found, err error) {
	if f.Dir, err = folder.NewestCheckpoint(log); err != nil || f.Dir == "" {
		return f, err
	}
	if f.State, err = rundir.ReadState(f.Dir); err == nil && f.State.Inside {
		f.Round, err = rundir.ReadRound(f.Dir)
	}
	return f, err
}

// A Trait is what all ranks of a run must have the same text of, such as the
// configuration.
type Trait struct{ Thing, Text string }

// CheckSame returns an error on every rank unless all have the same program and traits.
func CheckSame(group *ranks.Group, traits ...Trait) error {
	if group.Size() == 1 {
		return nil
	}
	program := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		program = info.String()
	}
	for _, x := range append([]Trait{{"program", program}}, traits...) {
		if err := group.Same(x.Thing, x.Text); err != nil {
			return err
		}
	}
	return nil
}

// Configuration is the trait of settings, by key.
func Configuration(values map[string]string) Trait {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, key+" = "+values[key])
	}
	return Trait{"configuration", strings.Join(lines, "\n")}
}

// CheckWeights returns an error on every rank unless all have the same weights after a
// step.
func (l Learned) CheckWeights(group *ranks.Group, step int) error {
	if err := group.AgreeOn(l.Env.Download(l.Weights)); err != nil {
		return err
	}
	text := l.Weights.Checksum()
	l.Env.Forget(l.Weights)
	if err := group.Same("digest of the weights", text); err != nil {
		return &learn.UpdateError{Err: fmt.Errorf("train: after step %d: %w", step, err)}
	}
	return nil
}

// Predicted is how many bytes this rank sends in a step.
func (l Learned) Predicted(group *ranks.Group) int64 {
	return group.Volume(l.Stepper.Buckets())
}

// Volume is how many bytes of gradients and weights this rank has sent since it had sent
// so many, how many a step should take, and of how many bytes of gradients the sums began
// before the end of the backward pass; nothing of one rank.
func (l Learned) Volume(group *ranks.Group, sent int64, early int) metrics.Record {
	if group.Size() == 1 {
		return nil
	}
	return metrics.Record{}.With("ranks/sent_bytes", group.Sent()-sent).With("ranks/predicted_bytes", l.Predicted(group)).With("ranks/early_bytes", 4*early)
}
