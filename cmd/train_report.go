package cmd

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"onering/report"
	"onering/report/tensorboard"
	"onering/train"
	"onering/train/metrics"
)

// reportEvery is how often report.html is written during a run, at the end of a
// round: writing it takes a fraction of a second.
const reportEvery = 30 * time.Second

// A reporter keeps report.html and tensorboard/ of a run folder up to date. It
// stands between the trainer and the observer that shows progress.
type reporter struct {
	train.Observer
	dir     string
	rounds  int // seen
	mirror  *tensorboard.Mirror
	written time.Time
	warned  bool
}

// withReports returns observer, with reports unless --report=false, and what
// writes them a last time when the run has ended: the last evaluation and the
// last checkpoint come after the last round.
func withReports(c *cobra.Command, observer train.Observer, config train.Config) (_ train.Observer, finish func()) {
	if on, err := c.Flags().GetBool("report"); err != nil || !on {
		return observer, func() {}
	}
	dir := config.Output.Dir
	r := &reporter{Observer: observer, dir: dir, mirror: tensorboard.NewMirror(dir), written: time.Now()}
	return r, func() {
		if r.rounds > 0 { // else the folder may be another process's
			r.update(true)
		}
	}
}

// Round implements train.Observer.
func (r *reporter) Round(record metrics.Record) {
	r.Observer.Round(record)
	r.rounds++
	r.update(time.Since(r.written) >= reportEvery)
}

// update brings the event file up to date, and the page where it is due.
func (r *reporter) update(page bool) {
	err := r.mirror.Update()
	if err == nil && page {
		err = r.write()
		r.written = time.Now()
	}
	// What shows a run must not end it.
	if err != nil && !r.warned {
		slog.Warn("the run goes on without a report", "error", err)
		r.warned = true
	}
}

func (r *reporter) write() error {
	run, err := report.ReadRun(r.dir)
	if err != nil {
		return err
	}
	return writeReport(filepath.Join(r.dir, "report.html"), []*report.Run{run}, report.Options{})
}
