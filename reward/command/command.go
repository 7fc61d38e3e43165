// Package command is the reward of a program that the user writes in any language. The
// program is started once for each worker, reads a JSON object for each group from its
// standard input, one on each line, and writes an answer per group to its standard
// output, in any order. Package external has the shapes.
package command

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"onering/internal/process"
	"onering/internal/remote"
	"onering/reward"
	"onering/reward/external"
)

func init() {
	reward.Register("command", func() reward.Reward {
		return &Program{Workers: 1, InFlight: 4, Settings: external.Default()}
	})
}

// A Program grades by processes that keep running. They are started when they are first
// needed, and again after they have died.
type Program struct {
	Command  []string `toml:"command" help:"the program and its arguments, such as [\"python3\", \"score.py\"]; required"`
	Workers  int      `toml:"workers" range:"[1,256]" help:"processes of the program that are kept running"`
	InFlight int      `toml:"in_flight" range:"[1,1024]" help:"most groups that one process has at a time, which it may answer in any order; each has the timeout once for itself and once for each that was there before it"`
	external.Settings

	mu        sync.Mutex
	workers   []*worker
	exclusive int           // number of groups that wait for a worker without other groups
	changed   chan struct{} // closed when a worker has room again
	// unanswered has the groups, by their first response, that had a process to
	// themselves and got no answer since the last answer of any.
	unanswered map[*reward.Sample]bool
}

// hopeless is the number of unanswered groups in a row after which the program is at fault
// rather than a group: from then on each group has one try and no pause, until one is answered.
const hopeless = 3

// A worker is the place of one process.
type worker struct {
	groups    int  // number of groups that it has
	exclusive bool // it takes no other group beside its only one

	mu         sync.Mutex
	process    *process.Lines // nil before the first process
	failures   int            // processes in a row that died without an answer
	restsUntil time.Time      // when the next process may start
}

// About is the reward's line in lists.
func (*Program) About() string {
	return "what a program of yours answers, which reads and writes JSON lines"
}

// Validate refuses impossible settings.
func (p *Program) Validate() error { return process.Check("command", p.Command, "score.py") }

// Ready says which part of the program is missing: the program itself, or the script that
// an interpreter is to run.
func (p *Program) Ready(context.Context) error {
	return process.Find("reward.command", p.Command)
}

// Groups implements the method that reward.Groups calls.
func (p *Program) Groups() int { return p.Workers * p.InFlight }

// Varies implements the method that reward.Varies calls: the program may give varying scores.
func (*Program) Varies() bool { return true }

// Score implements reward.Reward. A group whose attempt fails is sent again to a process
// without other groups, so that no other group can cause a second failure.
func (p *Program) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	return p.Grade(ctx, "command", group, func(ctx context.Context, try int) ([]reward.Score, error) {
		w, before, err := p.acquire(ctx, try > 0)
		if err != nil {
			return nil, err
		}
		defer p.release(w)
		scores, err := p.ask(ctx, w, before, group)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", strings.Join(p.Command, " "), err)
		}
		return scores, nil
	})
}

// acquire waits for a worker that has room, or if exclusive for one without groups. It also
// returns how many groups the worker already has.
func (p *Program) acquire(ctx context.Context, exclusive bool) (*worker, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.workers) < p.Workers {
		p.workers = append(p.workers, new(worker))
	}
	if exclusive { // while such a group waits, the others get no worker, so that one becomes free
		p.exclusive++
		defer func() { p.exclusive-- }()
	}
	for {
		if w := p.workerWithRoom(exclusive); w != nil {
			w.groups++
			w.exclusive = exclusive
			return w, w.groups - 1, nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed // release closes it and sets the field to nil
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
	}
}

// workerWithRoom returns the worker with the fewest groups that takes another, or if exclusive one without groups; nil if there
// is none. While exclusive groups wait others get no worker, since otherwise none would ever be without groups.
func (p *Program) workerWithRoom(exclusive bool) *worker {
	var best *worker
	for _, w := range p.workers {
		free := w.groups == 0 || !exclusive && !w.exclusive && w.groups < p.InFlight
		if free && (exclusive || p.exclusive == 0) && (best == nil || w.groups < best.groups) {
			best = w
		}
	}
	return best
}

func (p *Program) release(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.groups--
	w.exclusive = false
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// ask sends the group to the worker's process and reads the answer. Its time is the timeout, once for
// the group and once for each of the groups that the process had before it.
func (p *Program) ask(ctx context.Context, w *worker, before int, group []reward.Sample) ([]reward.Score, error) {
	p.mu.Lock()
	isHopeless := len(p.unanswered) >= hopeless
	p.mu.Unlock()
	grader, err := w.running(ctx, p.Command, isHopeless)
	if err != nil {
		return nil, err
	}
	id, answer, err := grader.Ask(ctx, p.Wait()*time.Duration(before+1), func(id int) []byte { return external.Encode(id, group) })
	switch {
	case err == nil:
		p.noteAnswer(w)
		return external.Decode(answer, id, len(group))
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, p.noteDeath(w, group, err)
}

// messageWords are the words of messages about graders.
var messageWords = process.Words{Kind: "grader", Unit: "group", Remedy: "timeout and in_flight say how long it has"}

// running returns the worker's process, and starts one if there is none. After one that died without an answer it pauses
// first: longer after each of the first three in a row (an answer begins the count anew), but only briefly if brief.
func (w *worker) running(ctx context.Context, command []string, brief bool) (*process.Lines, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process != nil && w.process.Running() {
		return w.process, nil
	}
	if w.process != nil && !w.process.Answered() {
		// The pauses between attempts for a group grow without bound; pauses
		// between processes need not.
		w.failures = min(w.failures+1, 3)
		if brief {
			w.failures = 1
		}
		w.restsUntil = w.process.EndedAt.Add(external.Backoff(w.failures))
	}
	w.process = nil
	if err := remote.Sleep(ctx, time.Until(w.restsUntil)); err != nil {
		return nil, err
	}
	grader, err := process.StartLines(command, messageWords)
	if err != nil {
		return nil, external.Permanent(err)
	}
	w.process = grader
	return grader, nil
}

// noteAnswer records that a worker's process works.
func (p *Program) noteAnswer(w *worker) {
	p.mu.Lock()
	clear(p.unanswered)
	p.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = 0
}

// noteDeath returns the error of a group whose process ended without an answer because of err. It is
// permanent if the program is hopeless.
func (p *Program) noteDeath(w *worker, group []reward.Sample, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.exclusive || p.InFlight == 1 { // no other group can be at fault
		if p.unanswered == nil {
			p.unanswered = map[*reward.Sample]bool{}
		}
		p.unanswered[&group[0]] = true
	}
	if len(p.unanswered) >= hopeless {
		err = external.Permanent(err)
	}
	return err
}

// Close ends the processes: each is told by the end of its input, and is killed if
// that does not help. Score starts new ones.
func (p *Program) Close() error {
	p.mu.Lock()
	workers := p.workers
	p.workers = nil
	p.mu.Unlock()
	process.StopAll(workers)
	return nil
}

// Stop ends the process, if there is one.
func (w *worker) Stop() {
	w.mu.Lock()
	grader := w.process
	w.process = nil
	w.mu.Unlock()
	if grader != nil {
		grader.Stop()
	}
}
