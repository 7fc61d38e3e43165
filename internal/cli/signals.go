package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// SurviveClosedPipes lets the program continue to its end when a reader of its output
// goes away, which is not an error of the command.
func SurviveClosedPipes(output ...io.Writer) {
	pipe := make(chan os.Signal, 1) // signal.Ignore would be inherited by plugins
	signal.Notify(pipe, syscall.SIGPIPE)
	for _, w := range output {
		if v, ok := w.(*Visible); ok {
			v.deaf = true
		}
	}
}

// CatchSignals returns a context that SIGINT, SIGTERM, SIGHUP or SIGUSR1 cancels, so that a
// run ends between two steps, and a function that returns the signal that came, or
// nil. The second signal is not handled: it ends the program at once.
func CatchSignals(parent context.Context) (ctx context.Context, caught func() os.Signal, stop func()) {
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

// An Interrupted is the error of a command that a signal ended.
type Interrupted struct {
	Signal os.Signal
	Next   string // how to continue the run
}

// Error implements error.
func (e Interrupted) Error() string { return fmt.Sprintf("%v: stopped; %s", e.Signal, e.Next) }

// ExitCode returns 128 plus the signal's number, as shells do.
func (e Interrupted) ExitCode() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}
