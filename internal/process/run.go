package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Limits are those of a program that is run once.
type Limits struct {
	Seconds float64
	Output  int // bytes of its standard output
	// Megabytes of memory of each process, and of each file that it writes. If it is 0, the
	// program is the user's own and is trusted with memory, environment and network. Else it
	// is run in an empty folder without them, as far as the system allows; the log says what
	// it does not.
	Megabytes int
	// Environment has further variables, each NAME=VALUE, for a program that is the user's own.
	Environment []string
}

// Run runs a command with an input, and returns what it wrote to its standard output, also
// with an error, which says why it was no success.
func Run(ctx context.Context, command []string, input []byte, l Limits) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	cmd := exec.Command(command[0], command[1:]...)
	if len(l.Environment) > 0 {
		cmd.Env = append(os.Environ(), l.Environment...)
	}
	if l.Megabytes > 0 {
		dir, err := os.MkdirTemp("", "onering-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		if cmd, err = shutIn(dir, command, l); err != nil {
			return "", err
		}
	}
	var out []byte
	p, err := start(&stderrLog{name: command[0], kind: "tool", allowance: linesPerGroup}, cmd, func(p *Process, stdout io.Reader) {
		if out, _ = io.ReadAll(io.LimitReader(stdout, int64(l.Output)+1)); len(out) > l.Output {
			out = out[:l.Output]
			p.Fail(fmt.Errorf("it wrote more than %d bytes and was ended", l.Output))
			io.Copy(io.Discard, stdout)
		}
	})
	if err != nil {
		return "", err
	}
	go func() {
		p.Stdin.Write(input)
		p.Stdin.Close()
	}()
	timer := time.NewTimer(time.Duration(l.Seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-p.Ended:
	case <-ctx.Done():
		p.Fail(ctx.Err())
	case <-timer.C:
		p.Fail(fmt.Errorf("it took more than %v s and was ended", l.Seconds))
	}
	<-p.Ended
	text := strings.ToValidUTF8(string(out), "\ufffd")
	if errors.Is(p.err, errEnded) {
		return text, nil
	}
	return text, p.err
}

// shutIn returns the command with its limits, to be run in a folder. Of the environment it
// gets where programs are.
func shutIn(dir string, command []string, l Limits) (*exec.Cmd, error) {
	path, err := exec.LookPath(command[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	cmd, missing := limited(append([]string{path}, command[1:]...), l)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8"}
	if missing != nil {
		unlimited.Do(func() {
			slog.Warn("this system does not limit all that programs of the policy could do: give onering a user or a container of its own", "not limited", missing)
		})
	}
	return cmd, nil
}

// unlimited warns once.
var unlimited sync.Once
