package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

const (
	// lineEvery is how often progress is printed without a terminal.
	lineEvery = 10 * time.Second
	// barAfter is how long a task runs before it gets a bar, so that short tasks need none.
	barAfter = 400 * time.Millisecond
)

// A Progress shows on stderr how much of a task is done: on a terminal a bar with
// rate and time left, which disappears at the end; elsewhere a line now and then;
// nothing with --quiet. Its methods may be called from several goroutines.
type Progress struct {
	name, unit string // unit is a plural such as "trajectories"; "B" means bytes
	total      int64

	mu       sync.Mutex
	done     int64
	finished bool
	started  time.Time
	printed  time.Time
	now      func() time.Time // the clock, which tests replace
	lines    io.Writer        // where lines go; nil on a terminal, or when quiet
	terminal io.Writer        // where the bar goes; nil without a terminal, or when quiet
	bars     *mpb.Progress    // nil until the bar is shown
	bar      *mpb.Bar
}

// StartProgress begins to show a task of total units; total is 0 if unknown.
func StartProgress(w io.Writer, quiet bool, name, unit string, total int64) *Progress {
	p := &Progress{name: escaped(name), unit: unit, total: total, now: time.Now}
	p.started = p.now()
	p.printed = p.started
	switch f := Screen(w); {
	case quiet:
	case f != nil:
		p.terminal = f // a bar moves the cursor, so it needs a terminal
	default:
		p.lines = w
	}
	return p
}

// open shows the bar, whose rate and time left count from the beginning of the task.
func (p *Progress) open() {
	counters, speed := decor.CountersNoUnit("%d/%d "+p.unit, decor.WCSyncSpace), decor.AverageSpeed(0, "%.1f/s", decor.WCSyncSpace)
	if p.unit == "B" {
		counters = decor.CountersKiloByte("% .1f / % .1f", decor.WCSyncSpace)
		speed = decor.AverageSpeed(decor.SizeB1000(0), "% .1f", decor.WCSyncSpace)
	}
	p.bars = mpb.New(mpb.WithOutput(p.terminal), mpb.WithWidth(64))
	p.bar = p.bars.AddBar(p.total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(p.name, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(counters, speed, decor.Any(func(s decor.Statistics) string {
			return timeLeft(s.Current, s.Total, time.Since(p.started))
		}, decor.WCSyncSpace)))
	p.bar.DecoratorAverageAdjust(p.started)
}

// Set says that done of total units are done.
func (p *Progress) Set(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(done, total)
}

// Add says that n more units are done.
func (p *Progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(p.done+n, p.total)
}

// AtEnd reports whether the task is complete.
func (p *Progress) AtEnd() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done >= p.total
}

// Again shows the same task anew, for instance after other lines were printed.
func (p *Progress) Again() *Progress {
	again := &Progress{name: p.name, unit: p.unit, now: p.now, started: p.started, printed: p.printed, lines: p.lines, terminal: p.terminal}
	again.Set(p.done, p.total)
	return again
}

// update notes how much is done and, now and then, shows it. p.mu is locked.
func (p *Progress) update(done, total int64) {
	p.done, p.total = done, total
	now := p.now()
	switch {
	case p.lines != nil && now.Sub(p.printed) >= lineEvery:
		p.printed = now
		p.printLine()
	case p.terminal != nil && !p.finished && now.Sub(p.started) >= barAfter:
		if p.bar == nil {
			p.open()
		}
		p.bar.SetTotal(total, false)
		p.bar.SetCurrent(done)
	}
}

// Finish removes the bar or prints the last line. It may be called more than
// once, so that a deferred call covers returns with an error.
func (p *Progress) Finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	p.finished = true
	if p.bar != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
	// While no line is printed, printed is started. A task that was too short for a line needs no last line.
	if p.lines != nil && p.printed != p.started {
		p.printLine()
	}
}

// printLine prints on one line how much is done, the rate and the time left.
func (p *Progress) printLine() {
	seconds := p.now().Sub(p.started).Seconds()
	line := p.name + ": "
	switch {
	case p.total <= 0:
		line += quantity(p.done, p.unit)
	case p.unit == "B":
		line += fmt.Sprintf("%.1f of %s", float64(p.done)/1e6, quantity(p.total, p.unit))
	default:
		line += fmt.Sprintf("%d of %s", p.done, quantity(p.total, p.unit))
	}
	if p.done > 0 && seconds > 0 {
		rate := float64(p.done) / seconds
		if p.unit == "B" {
			line += fmt.Sprintf(", %.1f MB/s", rate/1e6)
		} else {
			line += fmt.Sprintf(", %.1f/s", rate)
		}
		if left := timeLeft(p.done, p.total, p.now().Sub(p.started)); left != "" {
			line += ", " + left
		}
	}
	fmt.Fprintln(p.lines, line)
}

// timeLeft estimates how long the rest of a task takes. It is "" while too little is
// done: nothing, or only the first of many sequences that run side by side.
func timeLeft(done, total int64, passed time.Duration) string {
	if done <= 0 || done >= total || 20*done < total || passed <= 0 {
		return ""
	}
	left := time.Duration(float64(total-done) / float64(done) * float64(passed))
	return fmt.Sprintf("%s left", left.Round(time.Second))
}

func quantity(n int64, unit string) string {
	if unit == "B" {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// A Download shows each step of a download as its own progress.
type Download struct {
	Stderr io.Writer
	Quiet  bool

	step string
	bar  *Progress
}

// Show shows how far a step is, in bytes; total is 0 if unknown.
func (d *Download) Show(step string, done, total int64) {
	if d.bar == nil || step != d.step {
		d.Finish()
		d.step = step
		d.bar = StartProgress(d.Stderr, d.Quiet, step, "B", total)
	}
	d.bar.Set(done, total)
}

// Finish removes what Show displays.
func (d *Download) Finish() {
	if d.bar != nil {
		d.bar.Finish()
	}
}
