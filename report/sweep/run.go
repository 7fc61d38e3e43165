package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"

	"onering/internal/files"
	"onering/internal/settings"
)

// A Run is one variant with one seed.
type Run struct {
	Variant  string
	Seed     int64
	Dir      string   // the run folder
	Settings []string // KEY=VALUE for --set: those of the variant, the seeds, the folder
	// Config is the complete run.toml, which the caller makes from Settings.
	Config []byte
	// Base, if not nil, is the file of weights that the run's process receives as the
	// descriptor named by its flag BaseFlag.
	Base     *os.File
	BaseFlag string
	// Failed is the reason why the run has no result, or nil.
	Failed error
}

// resultFile is the name of the file that marks a run as finished. It holds the output of `train --json`.
const resultFile = "result.json"

// Runs returns the runs of a plan, with a run for each variant and seed. Their folders
// are in the folder out. The caller sets their Config.
func (p *Plan) Runs(out string) []*Run {
	var runs []*Run
	for _, v := range p.Variants {
		for _, seed := range v.Seeds {
			dir := filepath.Join(out, folderName(v.Name), fmt.Sprintf("seed-%d", seed))
			settings := append(slices.Clone(v.Settings), fmt.Sprintf("train.seed=%d", seed), fmt.Sprintf("data.seed=%d", seed), settingText("output.dir", dir))
			runs = append(runs, &Run{Variant: v.Name, Seed: seed, Dir: dir, Settings: settings})
		}
	}
	return runs
}

// A ConflictError reports that the folder of a run contains a run with other settings.
// Difference names the first setting that differs, with both values.
type ConflictError struct{ Dir, Difference string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s holds a run of other settings (%s): choose another folder with --out, or remove it", e.Dir, e.Difference)
}

// maxConfig bounds run.toml, in bytes.
const maxConfig = 1 << 20

// Done reports whether the run's folder has the result of the run. The error is a
// *ConflictError if the folder has a run with other settings, because the results of
// the two must not be mixed. Done calls complete to fill in the defaults of the run.toml
// in the folder; complete gets the path of the file for its error messages.
func (r *Run) Done(complete func(path string, text []byte) ([]byte, error)) (bool, error) {
	path := filepath.Join(r.Dir, "run.toml")
	there, err := files.ReadIn(path, maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if there, err = complete(path, there); err != nil {
		return false, err
	}
	differs, err := difference(there, r.Config)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.Dir, err)
	}
	if differs != "" {
		return false, &ConflictError{r.Dir, differs}
	}
	_, err = os.Stat(filepath.Join(r.Dir, resultFile))
	return err == nil, nil
}

// difference describes the first key whose values differ in two run files, or returns
// "" if there is none. It ignores the sections [output] and [runtime]: they set the
// folder and the machine of a run, which do not change its results.
func difference(a, b []byte) (string, error) {
	var there, here map[string]map[string]any
	metaThere, err := settings.ReadTOML(a, &there)
	if err != nil {
		return "", err
	}
	metaHere, err := settings.ReadTOML(b, &here)
	if err != nil {
		return "", err
	}
	for _, key := range append(metaThere.Keys(), metaHere.Keys()...) {
		if len(key) != 2 || key[0] == "output" || key[0] == "runtime" {
			continue
		}
		x, y := valueText(there, key), valueText(here, key)
		if x != y {
			return fmt.Sprintf("%s is %s there and %s here", key, x, y), nil
		}
	}
	return "", nil
}

// valueText formats the value of a key for an error message.
func valueText(sections map[string]map[string]any, key toml.Key) string {
	value, ok := sections[key[0]][key[1]]
	if !ok {
		return "not set"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// TrainAll trains the runs, up to jobs of them at the same time, and calls finished after each
// one. If a run fails, TrainAll sets its Failed and continues with the others. When ctx ends,
// running processes save a checkpoint and stop, and no further run starts.
func TrainAll(ctx context.Context, runs []*Run, jobs int, finished func()) {
	queue := make(chan *Run)
	var wait sync.WaitGroup
	for range min(jobs, len(runs)) {
		wait.Go(func() {
			for r := range queue {
				r.Failed = r.train(ctx)
				finished()
			}
		})
	}
	for _, r := range runs {
		select {
		case queue <- r:
		case <-ctx.Done():
		}
	}
	close(queue)
	wait.Wait()
}

// train trains the run to its end, from the last checkpoint if there is one. It starts
// a process for the run, so that a crash does not end the other runs.
func (r *Run) train(ctx context.Context) error {
	args := []string{"train", "--config", "-", "--json", "--quiet"} // r.Config comes by the standard input
	if len(files.Glob(r.Dir, "checkpoints/step-*")) > 0 {
		args = append(args, "--resume", "--out", r.Dir)
	} else if err := os.RemoveAll(r.Dir); err != nil { // an earlier run ended before its first checkpoint
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if r.Base != nil {
		args = append(args, "--"+r.BaseFlag, "3") // the first of ExtraFiles
	}
	cmd := exec.CommandContext(ctx, self, args...)
	if r.Base != nil {
		cmd.ExtraFiles = []*os.File{r.Base}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	follow(cmd)            // on Linux, a run is told to end if the sweep is killed
	runtime.LockOSThread() // Linux counts the thread that starts a process as its parent
	defer runtime.UnlockOSThread()
	cmd.Stdin = bytes.NewReader(r.Config)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return fmt.Errorf("%s: %s (%w)", r.Dir, strings.TrimPrefix(lines[len(lines)-1], "onering: "), err)
	}
	if !json.Valid(stdout.Bytes()) {
		return fmt.Errorf("%s: train printed %q, which is not JSON", r.Dir, stdout.String())
	}
	return files.WriteFile(filepath.Join(r.Dir, resultFile), files.Content(stdout.Bytes()))
}
