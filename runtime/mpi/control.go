package mpi

// #include "mpi.h"
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// controlTag is the tag of the messages between the threads of the ranks. Every MPI allows tags up to 32767.
const controlTag = 32000

// The kinds of messages between the threads.
const (
	beat        = "beat"  // the sender is alive
	leave       = "leave" // its rank has called Close
	noMoreBeats = "last"  // no more beats come
	abort       = "abort" // to rank 0: end the run
	ended       = "ended" // from the rank that ends the run, to the others
)

type notice struct {
	Kind string
	Rank int    `json:",omitempty"` // the rank that wanted the end
	Text string `json:",omitempty"` // the reason
}

// noticeBytes bounds a notice: libraries send it without waiting for the receiver.
const noticeBytes = 2048

const (
	// grace is how long a rank waits for rank 0 to begin the end of the run.
	grace = 2 * time.Second
	// saving is the least time that rank 0 has to save its state before all ranks end.
	saving = time.Minute
)

// A control is the part of the thread that watches the other ranks.
type control struct {
	*loop
	timeout time.Duration
	every   time.Duration // time between beats
	step    time.Duration // time between checks
	say     func(string)
	peers   []Peer

	lastTick time.Time
	lastBeat time.Time
	silence  time.Duration // time since the last sign of life of the previous rank
	sending  []*parcel     // notices under way

	// How far the end by Abort has come.
	abortBegun bool
	deadline   time.Time // when this rank ends all ranks
	line       string    // the line that it prints then; "" if it was printed

	// How far the orderly end has come.
	leaving       bool              // this rank has called Close
	toldOthers    bool              // the other ranks have been told
	leftAt        map[int]time.Time // the other ranks that have called Close
	saidLastBeat  bool
	heardLastBeat bool
}

func newControl(l *loop, o Options) *control {
	every := min(o.Timeout/10, time.Second)
	return &control{
		loop: l, timeout: o.Timeout, every: every, step: min(every/4, 50*time.Millisecond), say: o.Say,
		lastTick: time.Now(), leftAt: map[int]time.Time{},
	}
}

// know records who the other ranks are.
func (c *control) know(peers []Peer) { c.ask(func(c *control) { c.peers = peers }) }

func (c *control) name(rank int) string {
	if rank >= 0 && rank < len(c.peers) {
		return c.peers[rank].String()
	}
	return fmt.Sprintf("rank %d", rank)
}

// tick does what is due, at most once in the time c.step unless the end has begun: it reads notices, sends a beat, ends
// the run if the previous rank is silent or the time to save is over, and advances an orderly end. It reports whether
// MPI can end.
func (c *control) tick(now time.Time) (over bool) {
	passed := now.Sub(c.lastTick)
	urgent := c.abortBegun || c.leaving && passed > time.Millisecond // an end does not wait for the step
	if passed < c.step && !urgent {
		return false
	}
	c.lastTick = now
	c.reap() // notices that were sent
	c.receive(now)
	size, rank := c.w.Size(), c.w.Rank()
	next, previous := (rank+1)%size, (rank+size-1)%size
	if size > 1 && !c.saidLastBeat && now.Sub(c.lastBeat) >= c.every {
		c.send(next, notice{Kind: beat})
		c.lastBeat = now
	}
	// A pause of this process is not one of the other rank.
	c.silence += min(passed, 2*c.step)
	if size > 1 && !c.heardLastBeat && c.silence > c.timeout {
		c.abort(fmt.Sprintf("%s has given no sign of life for %v: it is stopped or hangs, or its machine or network is gone", c.name(previous), c.timeout))
		if previous == 0 { // abort told rank 0, the silent one, which will not end the run: this rank does
			c.deadline = now
		}
	}
	if c.abortBegun && !now.Before(c.deadline) {
		c.endAll()
	}
	c.endWaiting(now) // calls that wait for a rank that has left
	return c.advanceLeaving(next)
}

// advanceLeaving advances the orderly end and reports whether it is complete: this rank tells the others that it
// leaves, waits until all do, and then tells the next rank, which watches it, that no more beats come.
func (c *control) advanceLeaving(next int) bool {
	size, rank := c.w.Size(), c.w.Rank()
	if !c.leaving || c.abortBegun {
		return false
	}
	if !c.toldOthers {
		c.toldOthers = true
		for to := range size {
			if to != rank {
				c.send(to, notice{Kind: leave})
			}
		}
	}
	if len(c.leftAt) < size-1 {
		return false
	}
	if size > 1 && !c.saidLastBeat {
		c.send(next, notice{Kind: noMoreBeats})
		c.saidLastBeat = true
	}
	return size == 1 || c.heardLastBeat && len(c.sending) == 0
}

// endWaiting ends the calls that wait for a rank that has left: its earlier messages arrive within a second.
func (c *control) endWaiting(now time.Time) {
	if len(c.leftAt) == 0 {
		return
	}
	for _, m := range slices.Clone(c.active) {
		at, gone := c.leftAt[m.peer]
		if gone && !m.ended && now.Sub(at) > time.Second && now.Sub(m.lastMoved) > time.Second {
			c.loseRoute(m, fmt.Errorf("mpi: %v: %s has left the run", m.route, c.name(m.peer)))
		}
	}
}

// abort ends the run because of an error of this rank. Rank 0 tells the others and has
// time to save its state; another rank tells rank 0.
func (c *control) abort(why string) {
	if c.abortBegun {
		return
	}
	if rank := c.w.Rank(); rank > 0 {
		c.beginAbort(rank, why, time.Now().Add(grace))
		c.send(0, notice{abort, rank, why})
		return
	}
	c.announce(0, why)
}

// announce prints on rank 0 why the run ends and tells the other ranks.
func (c *control) announce(rank int, why string) {
	if c.abortBegun {
		return
	}
	c.beginAbort(rank, why, time.Now().Add(max(saving, c.timeout)))
	c.say(c.line)
	c.line = ""
	for to := 1; to < c.w.Size(); to++ {
		c.send(to, notice{ended, rank, why})
	}
}

// beginAbort ends the calls of this rank with the reason why a rank ends the run. At the deadline this rank ends all ranks.
func (c *control) beginAbort(rank int, why string, deadline time.Time) {
	c.abortBegun, c.deadline = true, deadline
	c.line = fmt.Sprintf("onering: %s of %d: %s", c.name(rank), c.w.Size(), why)
	c.fail(&AbortError{rank, errors.New(why)})
}

// endAll prints the reason, unless it was printed, waits a little for notices under way, and ends all ranks by MPI_Abort.
func (c *control) endAll() {
	if c.line != "" {
		c.say(c.line)
	}
	for began := time.Now(); len(c.sending) > 0 && time.Since(began) < 300*time.Millisecond; time.Sleep(time.Millisecond) {
		c.reap()
	}
	watchdog(grace, c.say, "onering: MPI_Abort does not end this process: it ends itself")
	C.onering_mpi_abort(1)
	os.Exit(1) // if MPI_Abort returns
}

// watchdog ends this process after a time, unless the returned function is called.
func watchdog(after time.Duration, say func(string), why string) (stop func()) {
	t := time.AfterFunc(after, func() {
		say(why)
		os.Exit(1)
	})
	return func() { t.Stop() }
}

// receive reads all notices of other ranks' threads that have arrived, and handles them.
func (c *control) receive(now time.Time) {
	for {
		var found, from, size C.int
		if code := C.onering_mpi_probe(controlTag, &found, &from, &size); code != 0 || found == 0 {
			return
		}
		p := c.w.store.get(int(size))
		part := &p.parts[0]
		C.onering_mpi_receive(part, p.bytes, size, from, controlTag)
		for part.done == 0 { // the notice has arrived already
			C.onering_mpi_test(part)
		}
		var n notice
		err := json.Unmarshal(p.slice(int(size)), &n)
		c.w.store.put(p)
		if err != nil {
			c.abort(fmt.Sprintf("%s sent %d bytes that are no notice: %v", c.name(int(from)), int(size), err))
			continue
		}
		c.hear(int(from), n, now)
	}
}

// hear handles a notice. Any from the previous rank is a sign of life.
func (c *control) hear(from int, n notice, now time.Time) {
	if size := c.w.Size(); from == (c.w.Rank()+size-1)%size {
		c.silence = 0
	}
	switch n.Kind {
	case leave:
		c.leftAt[from] = now
	case noMoreBeats:
		c.heardLastBeat = true
	case abort: // to rank 0, from a rank that wants to end the run
		c.announce(n.Rank, n.Text)
	case ended: // from rank 0, which ends the run
		c.beginAbort(n.Rank, n.Text, now.Add(max(saving, c.timeout)+2*grace)) // rank 0 ends all ranks before that
		c.line = ""                                                           // rank 0 has printed it
	}
}

// send sends a notice without waiting.
func (c *control) send(to int, n notice) {
	n.Text = n.Text[:min(len(n.Text), noticeBytes/2)]
	line, err := json.Marshal(n)
	if err != nil || len(line) > noticeBytes {
		line = []byte(`{"Kind":"` + n.Kind + `"}`)
	}
	p := c.w.store.get(len(line))
	copy(p.slice(len(line)), line)
	C.onering_mpi_send(&p.parts[0], p.bytes, C.int(len(line)), C.int(to), controlTag)
	c.sending = append(c.sending, p)
}

// reap completes sent notices and frees their memory.
func (c *control) reap() {
	c.sending = slices.DeleteFunc(c.sending, func(p *parcel) bool {
		part := &p.parts[0]
		C.onering_mpi_test(part)
		if part.done != 0 {
			c.w.store.put(p)
		}
		return part.done != 0
	})
}
