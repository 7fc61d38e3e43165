// Package live follows a run while it is in progress: it keeps report.html and the event
// files for TensorBoard up to date, and gives the figures to a program of the user's, such
// as one for Weights & Biases, MLflow or trackio.
package live

import (
	"log/slog"
	"path/filepath"
	"time"

	"onering/report"
	"onering/train/metrics"
)

// pageInterval is the shortest time between two writes of report.html. A write takes a
// fraction of a second, of a run with hundreds of MB of rollouts a second.
const pageInterval = 30 * time.Second

// A Reporter keeps report.html and tensorboard/ in the folder of a run that it observes up
// to date.
type Reporter struct {
	metrics.Unobserved
	dir         string
	records     int // since the Reporter was made
	mirror      *mirror
	pageWritten time.Time // when the page was last written
	warned      bool      // an error was logged
}

// NewReporter returns a Reporter for the run in the folder dir.
func NewReporter(dir string) *Reporter {
	return &Reporter{dir: dir, mirror: &mirror{run: dir}, pageWritten: time.Now()}
}

// Record implements metrics.Observer.
func (r *Reporter) Record(metrics.Record) {
	r.records++
	r.update(time.Since(r.pageWritten) >= pageInterval)
}

// Finish updates the page and the event files a last time. Call it when the run has
// ended, because the last evaluation comes after the last round.
func (r *Reporter) Finish() {
	if r.records > 0 { // before the first record, the folder may belong to another process
		r.update(true)
	}
}

// update brings the event files up to date, and also the page if page is true. It
// logs the first error and continues: a report that fails must not end the run.
func (r *Reporter) update(page bool) {
	err := r.mirror.Update()
	if err == nil && page {
		err = r.writePage()
		r.pageWritten = time.Now()
	}
	if err != nil && !r.warned {
		slog.Warn("the run continues without a report", "error", err)
		r.warned = true
	}
}

// writePage writes report.html.
func (r *Reporter) writePage() error {
	run, err := report.ReadRun(r.dir)
	if err != nil {
		return err
	}
	return report.WriteFile(filepath.Join(r.dir, "report.html"), []*report.Run{run}, report.Options{})
}
