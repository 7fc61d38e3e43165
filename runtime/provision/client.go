package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// runClient runs a package client in the staging folder. The client's temporary
// files go there too, and their size is reported as the progress.
func (p *provisioner) runClient(ctx context.Context, b Build, name, command string, args ...string) error {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = p.staging
	cmd.Env = append(os.Environ(), "TMPDIR="+p.staging, "TEMP="+p.staging, "TMP="+p.staging)
	cmd.WaitDelay = 5 * time.Second // time for child processes that keep the pipes open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	step := fmt.Sprintf("ONNX Runtime %s with %s", b.version, name)
	p.progress(step, 0, b.Size)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if b.Size > 0 {
				p.progress(step, min(treeSize(p.staging), b.Size), b.Size)
			}
		case err := <-done:
			if err != nil {
				return clientError(err, out.String())
			}
			p.progress(step, b.Size, b.Size)
			return nil
		}
	}
}

// account matches the name and password in an address, such as that of a private
// package index. They must not appear in messages.
var account = regexp.MustCompile(`://[^/@\s]*@`)

// clientError returns what went wrong in the client's own words: the first line of its output that is marked as an
// error, since both pip and npm print long explanations after it.
func clientError(err error, out string) error {
	lines := strings.Split(strings.TrimSpace(account.ReplaceAllString(out, "://")), "\n")
	for _, marker := range []string{"ERROR:", "npm error", "npm ERR!"} {
		for _, l := range lines {
			if strings.Contains(l, marker) {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(l))
			}
		}
	}
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// treeSize returns the bytes of all files below dir. Files may appear and disappear while it counts.
func treeSize(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n
}
