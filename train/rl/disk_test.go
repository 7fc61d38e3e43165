//go:build linux

package rl_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"onering/policy"
	"onering/runtime/runtimetest"
	"onering/train/metrics"
	"onering/train/rl"
)

// A diskObserver changes the disk when a round ends.
type diskObserver struct {
	quiet
	act func() // once
}

func (m *diskObserver) Record(r metrics.Record) {
	if r.Get("kind") == "round" && m.act != nil {
		m.act()
		m.act = nil
	}
}

// The run folder is removed during the run: the run stops at the next step and saves that
// step and the metrics elsewhere. A run resumed there ends with the same files.
func TestFolderVanishes(t *testing.T) {
	env := runtimetest.Test(t)
	t.Setenv("TMPDIR", t.TempDir())
	want := whole(t, env)["reference"]
	dir := filepath.Join(t.TempDir(), "run")
	c := chaosConfig("reference", dir)
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	m := &diskObserver{act: func() {
		// A checkpoint that is being written may put new files into the folder.
		err := os.RemoveAll(dir)
		for range 1000 {
			if err == nil {
				return
			}
			time.Sleep(time.Millisecond)
			err = os.RemoveAll(dir)
		}
		t.Error(err)
	}}
	trainer, err := rl.New(context.Background(), c, env, policy, slog.New(slog.DiscardHandler), m)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	_, err = trainer.Run(context.Background(), false)
	if err == nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "the run folder has gone") {
		t.Fatalf("error %v", err)
	}
	resumeRescue(t, env, "reference", err, "the folder is gone", want)
}

// A full disk stops the run. With free space again it resumes from its last whole
// checkpoint, or from the step that was saved elsewhere, to the same end. A run on a disk
// that cannot be written to is refused at once.
func TestDiskFull(t *testing.T) {
	env := runtimetest.Test(t)
	t.Setenv("TMPDIR", t.TempDir())
	want := whole(t, env)["ema"]
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("this user cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	dir, ballast := filepath.Join(disk, "run"), filepath.Join(disk, "ballast")
	c := chaosConfig("ema", dir)
	policy, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	m := &diskObserver{act: func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 1<<12))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	}}
	var log bytes.Buffer
	trainer, err := rl.New(context.Background(), c, env, policy, slog.New(slog.NewTextHandler(&log, nil)), m)
	if err != nil {
		t.Fatal(err)
	}
	_, err = trainer.Run(context.Background(), false)
	trainer.Close()
	if err == nil || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v", err)
	}
	if strings.Contains(err.Error(), " is saved in ") {
		resumeRescue(t, env, "ema", err, "full", want)
	} else if !strings.Contains(log.String(), "saved a checkpoint before stopping") {
		// The space of the failed checkpoint may be enough for the next one.
		t.Errorf("the last step is not saved: %v", err)
	}

	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	err = chaosRun(context.Background(), env, "ema", dir, slog.New(slog.DiscardHandler))
	if !errors.Is(err, syscall.EROFS) || strings.Contains(err.Error(), "rescue") {
		t.Errorf("read-only: error %v", err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := chaosRun(context.Background(), env, "ema", dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("resuming: %v", err)
	}
	same(t, "full", contents(t, dir), want)
}
