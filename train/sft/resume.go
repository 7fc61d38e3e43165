package sft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/policy"
	"onering/train/rundir"
	"onering/train/saving"
)

// configFiles are the files of a Hugging Face folder and of an adapter's of which one
// is written last: with it the run is finished.
var configFiles = []string{"config.json", "adapter_config.json"}

// Finished says whether the run in a folder is done, so that there is nothing to
// resume.
func Finished(dir string) bool {
	return slices.ContainsFunc(configFiles, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// finish writes the model, or the adapter, into the run folder. A process that is
// killed in the middle leaves no config, and the run is resumed from its checkpoint.
func (t *Trainer) finish() error {
	if err := t.saver.Wait(); err != nil || t.folder == nil {
		return err
	}
	trained := t.policy.Ring.Trained()
	if err := t.env.Download(trained); err != nil {
		return err
	}
	dir := t.Config.Output.Dir
	whole := filepath.Join(dir, ".model.tmp-whole") // a name that opening the folder removes
	if err := os.RemoveAll(whole); err != nil {
		return fmt.Errorf("train: run folder: %w", err)
	}
	dtype := policy.ComputeTypes[t.Config.Output.DType]
	if err := t.policy.Save(whole, trained, dtype, nil); err != nil {
		return err
	}
	entries, err := os.ReadDir(whole)
	if err != nil {
		return fmt.Errorf("train: run folder: %w", err)
	}
	last := func(e os.DirEntry) int {
		if slices.Contains(configFiles, e.Name()) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return last(a) - last(b) })
	for _, e := range entries {
		if err := files.Rename(filepath.Join(whole, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("train: run folder: %w", err)
		}
	}
	return os.Remove(whole)
}

// learned is what the steps change.
func (t *Trainer) learned() saving.Learned {
	return saving.LearnedOf(t.policy, t.env, t.stepper)
}

// Snapshot implements saving.Source: it copies no weights.
func (t *Trainer) Snapshot() (rundir.Snapshot, error) {
	s := rundir.Snapshot{State: rundir.State{
		Objective: objective, Settings: decisive(t.Config), Problems: t.digest(), Score: t.course.score, Alarms: t.course.alarms.State(), Base: t.policy.Base(),
	}}
	t.course.at.Mark(&s.State)
	return s, t.learned().SaveTo(&s)
}

// Release implements saving.Source.
func (t *Trainer) Release() { t.learned().Release() }

// objective stands in checkpoints where those of reinforcement learning name theirs.
const objective = "sft"

func (t *Trainer) digest() string {
	if t.held == nil {
		return digest(t.learn)
	}
	return digest(t.learn, t.held)
}

// decisive returns the settings that decide the course of a run, by key.
func decisive(c Config) map[string]string {
	values := make(map[string]string)
	for _, s := range settings.Sections(&c) {
		for _, f := range s.Fields {
			values[s.Name+"."+f.Key] = fmt.Sprint(f.Value)
		}
	}
	for _, key := range []string{
		"model.path", "data.train", "data.eval", "train.save_steps", "train.save_minutes", "train.keep_last", "train.keep_best", "train.eval_every",
		"runtime.library", "distributed.shard", "distributed.check_every", "distributed.timeout", "output.dir", "output.dtype", "output.sink",
	} {
		delete(values, key)
	}
	return values
}

// resume restores the newest checkpoint, or begins again if there is none yet, and
// recalls what the folder says of the run before.
func (t *Trainer) resume(s *Summary) error {
	found, err := saving.Newest(t.ranks, t.folder, t.log)
	if err != nil {
		return err
	}
	if found.Dir == "" {
		t.log.Info("there is no checkpoint yet: the run begins again", "folder", t.Config.Output.Dir)
	} else if err := t.restore(found.State, found.Dir); err != nil {
		return err
	}
	err = t.folder.Rewind(found.State, t.log)
	if err == nil && t.Resumed != nil {
		err = errors.Join(t.Resumed(), t.folder.ReadConfig())
	}
	if err := t.ranks.AgreeOn(err); err != nil {
		return err
	}
	s.Resumed = t.course.at.Step
	return t.ranks.AgreeOn(t.folder.Records(func(record map[string]any) {
		switch loss, _ := record["loss"].(float64); record["kind"] {
		case "step":
			s.addLoss(loss)
		case "eval":
			s.addHeldOut(loss)
		}
	}))
}

// checkSame ends the run unless all ranks have the same program, settings,
// demonstrations and weights.
func (t *Trainer) checkSame() error {
	if t.ranks.Size() == 1 {
		return nil
	}
	values := decisive(t.Config)
	for key, x := range map[string]any{
		"train.save_steps": t.Config.Train.SaveSteps, "train.save_minutes": t.Config.Train.SaveMinutes, "train.eval_every": t.Config.Train.EvalEvery,
		"distributed.shard": t.Config.Distributed.Shard, "distributed.check_every": t.Config.Distributed.CheckEvery,
	} {
		values[key] = fmt.Sprint(x)
	}
	return saving.CheckSame(t.ranks, saving.Configuration(values), saving.Trait{Thing: "version of ONNX Runtime", Text: t.env.Version()},
		saving.Trait{Thing: "set of demonstrations", Text: t.digest()}, saving.Trait{Thing: "model", Text: t.policy.Fingerprint()})
}

// checkWeights ends the run unless all ranks have the same weights, where
// distributed.check_every says that it is time to look.
func (t *Trainer) checkWeights() error {
	every, step := t.Config.Distributed.CheckEvery, t.course.at.Step
	if t.ranks.Size() == 1 || every == 0 || step%every != 0 {
		return nil
	}
	return t.learned().CheckWeights(t.ranks, step)
}

// restore continues from the checkpoint dir with state s, if it is this run's.
func (t *Trainer) restore(s rundir.State, dir string) error {
	var changed []string
	if s.Objective != objective {
		return fmt.Errorf("train: resume: %s is of a run with objective %q, not of supervised training: resume it with onering train", dir, s.Objective)
	}
	if err := t.policy.CheckBase(s.Base, dir); err != nil {
		return err
	}
	is := decisive(t.Config)
	for key, value := range is {
		was, ok := s.Settings[key]
		if key == "optimizer.name" && !ok {
			was, ok = "adamw", true // before it could be chosen
		}
		if ok && was != value {
			changed = append(changed, fmt.Sprintf("%s was %s and is %s", key, was, value))
		}
	}
	if s.Problems != t.digest() {
		changed = append(changed, "there are other demonstrations")
	}
	if len(changed) > 0 {
		slices.Sort(changed)
		return fmt.Errorf("train: resume: since %s %s: the run could not end as one that was never stopped; set it back, or begin another run from the checkpoint with --model %s", dir, strings.Join(changed, "; "), dir)
	}
	if err := t.learned().Restore(s, dir, true); err != nil {
		return err
	}
	if err := t.course.alarms.Restore(s.Alarms); err != nil {
		return fmt.Errorf("train: resume: %s: %w", dir, err)
	}
	t.course.at, t.course.score = saving.PositionOf(s), s.Score
	t.saver.Resumed(t.course.at)
	t.log.Info("resuming", "checkpoint", dir, "step", t.course.at.Step)
	return nil
}
