package report

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/BurntSushi/toml"

	"onering/internal/cli"
	"onering/train/metrics"
)

// A Live shows a run while it is in progress: on the terminal and in log.txt, as
// report.html and tensorboard/, and through a program of the user. Observers may be added.
type Live struct {
	metrics.Observers
	terminal *terminal
	page     *reporter // nil without one
	sink     *sink     // nil without a program
	leave    func()    // restores the log
}

// Watch begins to show a run on the terminal, and collects log messages for log.txt. With
// quiet the terminal shows only the log.
func (l *Live) Watch(stderr io.Writer, quiet bool) {
	l.terminal = &terminal{stderr: stderr, quiet: quiet, log: new(cli.LogFile)}
	l.leave = l.terminal.log.Join()
	l.Observers = append(l.Observers, l.terminal)
}

// KeepPage keeps report.html and tensorboard/ in the run folder dir up to date.
func (l *Live) KeepPage(dir string) {
	l.page = &reporter{dir: dir, mirror: &mirror{run: dir}, pageWritten: time.Now()}
	l.Observers = append(l.Observers, l.page)
}

// ShowSamples shows a response on the terminal after the first round, and then after each so many.
func (l *Live) ShowSamples(every int) { l.terminal.every = every }

// Start opens log.txt in the run folder dir. If program is not empty, Start starts it;
// the program receives the figures of a run with this configuration.
func (l *Live) Start(dir string, program []string, config []byte) error {
	l.terminal.dir = dir
	if err := l.terminal.log.Open(filepath.Join(dir, "log.txt")); err != nil || len(program) == 0 {
		return err
	}
	var resolved map[string]any
	if err := toml.Unmarshal(config, &resolved); err != nil {
		return err
	}
	s, err := startSink(program, dir, resolved, slog.Default())
	if err == nil {
		l.sink, l.Observers = s, append(l.Observers, s)
	}
	return err
}

// Finish shows the result of a run that has ended, early if failure is not nil.
func (l *Live) Finish(summary any, failure error) {
	l.terminal.close()
	if l.page != nil {
		l.page.Finish()
	}
	if l.sink != nil {
		l.sink.Finish(summary, failure)
	}
}

// Close ends what Watch and Start began.
func (l *Live) Close() {
	if l.terminal != nil {
		l.terminal.close()
		l.leave()
	}
}

// pageInterval is the shortest time between two writes of report.html. A write takes a
// fraction of a second, or a second for a run with hundreds of MB of rollouts.
const pageInterval = 30 * time.Second

// A reporter keeps report.html and tensorboard/ in the folder of a run that it observes up to date.
type reporter struct {
	metrics.Unobserved
	dir         string
	records     int // number of records since the reporter was made
	mirror      *mirror
	pageWritten time.Time // when the page was last written
	warned      bool      // an error was logged already
}

// Record implements metrics.Observer.
func (r *reporter) Record(metrics.Record) {
	r.records++
	r.update(time.Since(r.pageWritten) >= pageInterval)
}

// Finish updates the page and the event files a last time. Call it when the run has
// ended, because the last evaluation comes after the last round.
func (r *reporter) Finish() {
	if r.records > 0 { // without a record, the folder may still belong to another process
		r.update(true)
	}
}

// update brings the event files up to date, and also the page if page is true. It
// logs the first error and continues: a report that fails must not end the run.
func (r *reporter) update(page bool) {
	err := r.mirror.Update()
	if err == nil && page {
		var run *Run
		if run, err = ReadRun(r.dir); err == nil {
			err = WriteFile(filepath.Join(r.dir, "report.html"), []*Run{run}, Options{})
		}
		r.pageWritten = time.Now()
	}
	if err != nil && !r.warned {
		slog.Warn("the run continues without a report", "error", err)
		r.warned = true
	}
}

// A terminal shows on the user's terminal how a run goes: a progress bar for the current
// phase, and a line for each result. It implements metrics.Observer.
type terminal struct {
	metrics.Unobserved
	stderr io.Writer
	quiet  bool
	log    *cli.LogFile
	bar    *cli.Progress
	dir    string // the run folder
	every  int    // rounds between two responses that are shown; 0 shows none
}

// Begin implements metrics.Observer.
func (w *terminal) Begin(phase, units string, total int) {
	w.close()
	w.bar = cli.StartProgress(w.stderr, w.quiet, phase, units, int64(total))
}

// Advance implements metrics.Observer.
func (w *terminal) Advance(n int) {
	if w.bar != nil {
		w.bar.Add(int64(n))
	}
}

// Record implements metrics.Observer. It shows a response of the round.
func (w *terminal) Record(r metrics.Record) {
	round := int(r.Float("round"))
	if r.Get("kind") != "round" || w.every < 1 || (round-1)%w.every != 0 {
		return
	}
	list, err := readSamples(w.dir, round, 1)
	if err != nil {
		slog.Warn("no response is shown", "reason", err)
	} else if len(list) > 0 {
		w.Say(glance(&list[0], round))
	}
}

// Say implements metrics.Observer. It prints a line and adds it to the log file. An
// unfinished bar continues below the line.
func (w *terminal) Say(line string) {
	bar := w.bar
	w.close()
	w.log.Print(line)
	if !w.quiet {
		fmt.Fprintln(w.stderr, line)
	}
	if bar != nil && !bar.AtEnd() {
		w.bar = bar.Again()
	}
}

func (w *terminal) close() {
	if w.bar != nil {
		w.bar.Finish()
		w.bar = nil
	}
}
