package cmd

import (
	"log/slog"
	"os/exec"

	"github.com/BurntSushi/toml"

	"onering/report/live"
	"onering/train/metrics"
	"onering/train/rl"
)

// A sinkFeed passes the events of a run on to the next observer, and has the program
// of output.sink given the metrics.
type sinkFeed struct {
	rl.Observer
	command []string
	sink    *live.Sink // nil before start
}

// newSinkFeed returns a sinkFeed that start may start; it checks that the program can
// be found.
func newSinkFeed(command []string, next rl.Observer) (*sinkFeed, error) {
	if len(command) > 0 {
		if _, err := exec.LookPath(command[0]); err != nil {
			return nil, usagef("output.sink: %v; name a program that is there, or leave output.sink out", err)
		}
	}
	return &sinkFeed{Observer: next, command: command}, nil
}

// start starts the program, if there is one, for the run in the folder dir and gives
// it the configuration, the text of a run file.
func (f *sinkFeed) start(dir string, text []byte, log *slog.Logger) (err error) {
	if len(f.command) == 0 {
		return nil
	}
	var resolved map[string]any
	if err := toml.Unmarshal(text, &resolved); err != nil {
		return err
	}
	f.sink, err = live.StartSink(f.command, dir, resolved, log)
	return err
}

// finish ends the program's input with the summary and waits for the program.
func (f *sinkFeed) finish(summary any, err error) {
	if f.sink != nil {
		f.sink.Finish(summary, err)
	}
}

func (f *sinkFeed) update() {
	if f.sink != nil {
		f.sink.Update()
	}
}

// Begin implements rl.Observer.
func (f *sinkFeed) Begin(phase, units string, total int) {
	f.Observer.Begin(phase, units, total)
	f.update()
}

// Round implements rl.Observer.
func (f *sinkFeed) Round(r metrics.Record) {
	f.Observer.Round(r)
	f.update()
}

// Evaluated implements rl.Observer.
func (f *sinkFeed) Evaluated(e rl.Evaluation) {
	f.Observer.Evaluated(e)
	f.update()
}

// Advance implements rl.Observer.
func (f *sinkFeed) Advance(n int) {
	f.Observer.Advance(n)
	f.update()
}
