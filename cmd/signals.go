package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
)

// outlivesReaders are the commands whose work must not be lost because a reader of
// stdout or stderr goes away, as in "onering train | head -1". Of other commands
// the result is what they print, and SIGPIPE ends them.
var outlivesReaders = map[string]bool{
	"onering train": true, "onering sft": true, "onering sweep": true, "onering eval": true, "onering step": true,
}

// surviveClosedPipes has the program go on when a reader of its output goes away,
// up to its end, and makes that no error of the command.
func surviveClosedPipes(c *cobra.Command) {
	pipe := make(chan os.Signal, 1) // signal.Ignore would be inherited by plugins
	signal.Notify(pipe, syscall.SIGPIPE)
	for _, w := range []io.Writer{c.OutOrStdout(), c.ErrOrStderr()} {
		if v, ok := w.(*visible); ok {
			v.deaf = true
		}
	}
}

// catchSignals returns a context that SIGINT, SIGTERM, SIGHUP or SIGUSR1 cancels, so that a
// run ends between two steps, and a function that returns the signal that came, or
// nil. The second signal is not handled: it ends the program at once.
func catchSignals(parent context.Context) (ctx context.Context, caught func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, stopSignals...)
	var first atomic.Value
	go func() {
		select {
		case s := <-signals:
			first.Store(s)
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
	}()
	caught = func() os.Signal {
		s, _ := first.Load().(os.Signal)
		return s
	}
	stop = func() {
		signal.Stop(signals)
		cancel()
	}
	return ctx, caught, stop
}

// An interrupted is the error of a command that a signal ended.
type interrupted struct {
	signal os.Signal
	next   string // how to continue
}

func (e interrupted) Error() string { return fmt.Sprintf("%v: stopped; %s", e.signal, e.next) }

// exitCode returns 128 plus the signal's number, as shells do.
func (e interrupted) exitCode() int {
	if s, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitFailed
}
