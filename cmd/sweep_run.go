package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"

	"onering/models"
	"onering/train"
)

// A sweepRun is one run of a sweep, done by a process of its own: one that dies
// takes no other along.
type sweepRun struct {
	variant string
	seed    int64
	dir     string
	config  train.Config
	failed  error
}

// resultFile is written into a run folder when its run is through.
const resultFile = "result.json"

// done says whether the run's folder holds its result. A folder of another
// configuration is an error: results of the two must not be mixed.
func (r *sweepRun) done() (bool, error) {
	left, err := os.ReadFile(filepath.Join(r.dir, "run.toml"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	settings, err := parseFile(filepath.Join(r.dir, "run.toml"), left)
	if err != nil {
		return false, err
	}
	there, err := resolve(settings)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.dir, err)
	}
	if diff := difference(there.Config, r.config); diff != "" {
		return false, usagef("%s holds a run of other settings (%s): choose another folder with --out, or remove it", r.dir, diff)
	}
	_, err = os.Stat(filepath.Join(r.dir, resultFile))
	return err == nil, nil
}

// difference names the first key, with both values, in which two configurations
// differ; "" if they are one. Where they run does not count.
func difference(a, b train.Config) string {
	left, right := sectionsOf(&a), sectionsOf(&b)
	for i, s := range left {
		if s.name == "output" || s.name == "runtime" {
			continue
		}
		if len(s.fields) != len(right[i].fields) {
			return s.name
		}
		for k, f := range s.fields {
			// As JSON, which sees through the pointers of keys that may be unset.
			x, errX := json.Marshal(f.value.Interface())
			y, errY := json.Marshal(right[i].fields[k].value.Interface())
			if errX != nil || errY != nil || right[i].fields[k].key != f.key || !bytes.Equal(x, y) {
				return fmt.Sprintf("%s.%s is %s there and %s here", s.name, f.key, x, y)
			}
		}
	}
	return ""
}

// run trains to the end, from the last checkpoint if there is one.
func (r *sweepRun) run(ctx context.Context) error {
	args := []string{"train", "--config", "-", "--json", "--quiet", "--report=false"}
	checkpoints, _ := filepath.Glob(filepath.Join(r.dir, "checkpoints", "step-*"))
	if len(checkpoints) > 0 {
		args = append(args, "--resume", "--out", r.dir)
	} else if err := os.RemoveAll(r.dir); err != nil { // a run of ours that got nowhere
		return err
	}
	text, err := encodeConfig(r.config)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stdin = bytes.NewReader(text)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return fmt.Errorf("%s: %s (%w)", r.dir, strings.TrimPrefix(lines[len(lines)-1], "onering: "), err)
	}
	if !json.Valid(stdout.Bytes()) {
		return fmt.Errorf("%s: train printed %q, which is no result", r.dir, stdout.String())
	}
	return models.WriteFile(filepath.Join(r.dir, resultFile), func(w io.Writer) error {
		_, err := w.Write(stdout.Bytes())
		return err
	})
}

// threadsFor shares the cores among jobs, where the configuration leaves it open.
func threadsFor(jobs int) int { return max(1, goruntime.NumCPU()/jobs) }
