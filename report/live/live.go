// Package live keeps the report of a run up to date while the run goes on.
package live

import (
	"log/slog"
	"path/filepath"
	"time"

	"onering/report"
	"onering/report/tensorboard"
	"onering/train"
	"onering/train/metrics"
)

// pageEvery is how often report.html is written at most. Writing it takes a
// fraction of a second.
const pageEvery = 30 * time.Second

// A Reporter keeps report.html and tensorboard/ in a run folder up to date. It is
// an observer of the run that passes everything on to the next one.
type Reporter struct {
	train.Observer
	dir     string
	rounds  int // finished while the Reporter watched
	mirror  *tensorboard.Mirror
	written time.Time // when the page was
	warned  bool
}

// NewReporter returns a Reporter of the run in the folder dir.
func NewReporter(dir string, next train.Observer) *Reporter {
	return &Reporter{Observer: next, dir: dir, mirror: tensorboard.NewMirror(dir), written: time.Now()}
}

// Round implements train.Observer.
func (r *Reporter) Round(record metrics.Record) {
	r.Observer.Round(record)
	r.rounds++
	r.update(time.Since(r.written) >= pageEvery)
}

// Finish writes everything a last time. Call it when the run has ended: the last
// evaluation and the last checkpoint come after the last round.
func (r *Reporter) Finish() {
	if r.rounds > 0 { // without a round the folder may be another process's
		r.update(true)
	}
}

// update brings the event files up to date, and the page if asked to. An error
// is only logged, and only once: what shows a run must not end it.
func (r *Reporter) update(page bool) {
	err := r.mirror.Update()
	if err == nil && page {
		err = r.writePage()
		r.written = time.Now()
	}
	if err != nil && !r.warned {
		slog.Warn("the run continues without a report", "error", err)
		r.warned = true
	}
}

func (r *Reporter) writePage() error {
	run, err := report.ReadRun(r.dir)
	if err != nil {
		return err
	}
	return report.WriteFile(filepath.Join(r.dir, "report.html"), []*report.Run{run}, report.Options{})
}
