package mpi

// #include "mpi.h"
// #include <stdlib.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A route identifies messages that keep their order.
type route struct {
	peer, tag int
	receive   bool
}

func (r route) String() string {
	if r.receive {
		return fmt.Sprintf("receiving from rank %d (tag %d)", r.peer, r.tag)
	}
	return fmt.Sprintf("sending to rank %d (tag %d)", r.peer, r.tag)
}

// A message is a call of Send or Recv. It goes as parts of partBytes and a last one that
// is shorter, perhaps empty: its length marks the end of the message.
type message struct {
	route
	size      int
	parcel    *parcel
	posted    int        // parts that were started
	done      int        // how many of these are done, in order
	lastMoved time.Time  // when the message began, or last made progress
	result    chan error // gets one value
	over      C.int      // result has its value; see onering_mpi_linger
	ended     bool       // set by endMessage, so that result gets one value
	abandoned bool       // nobody waits any more, so the thread frees its parcel
}

func (m *message) parts() int { return parts(m.size) }

// part returns the i-th part and its bytes.
func (m *message) part(i int) (p *C.onering_part, at unsafe.Pointer, size int) {
	return &m.parcel.parts[i%window], unsafe.Add(m.parcel.bytes, i*partBytes), min(m.size-i*partBytes, partBytes)
}

// A loop is the thread that calls the library, with the requests of other threads.
type loop struct {
	w       *World
	control *control

	mu     sync.Mutex
	queue  []*message       // messages to begin
	drop   []*message       // messages that nobody waits for any more
	asks   []func(*control) // requests of Abort and Close
	ending error            // why calls fail
	over   chan struct{}    // closed once ending is set

	posting    map[route][]*message // the first has parts to start, the others wait for it
	active     []*message           // messages with parts under way
	lostRoutes map[route]error      // routes whose messages no longer match

	lingering atomic.Int32 // callers that look for the end of their message

	finished chan struct{} // closed at the end of MPI
	closing  error         // the result of ending MPI; read after finished
}

func newLoop(w *World, o Options) *loop {
	l := &loop{w: w, over: make(chan struct{}), finished: make(chan struct{}), posting: map[route][]*message{}, lostRoutes: map[route]error{}}
	l.control = newControl(l, o)
	return l
}

// A move is the data that a message sends or receives.
type move struct {
	route
	bytes []byte
}

// move gives messages to the thread and waits for them.
func (l *loop) move(ctx context.Context, moves ...move) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	messages := make([]*message, len(moves))
	for i, x := range moves {
		m := &message{route: x.route, size: len(x.bytes), parcel: l.w.store.get(len(x.bytes)), result: make(chan error, 1)}
		if !x.receive {
			copy(m.parcel.slice(m.size), x.bytes)
		}
		messages[i] = m
	}
	l.mu.Lock()
	l.queue = append(l.queue, messages...)
	l.mu.Unlock()
	C.onering_mpi_wake()
	for i, m := range messages {
		if err := l.wait(ctx, m); err != nil {
			l.mu.Lock()
			l.drop = append(l.drop, messages[i:]...)
			l.mu.Unlock()
			C.onering_mpi_wake()
			return err
		}
		if m.receive {
			copy(moves[i].bytes, m.parcel.slice(m.size))
		}
		l.w.store.put(m.parcel)
	}
	return nil
}

// wait waits for the end of a message. At first it polls for a while: waking up takes longer than most messages.
func (l *loop) wait(ctx context.Context, m *message) error {
	if l.lingering.Add(1) <= mostLinger {
		C.onering_mpi_linger(&m.over, C.int64_t(lingerFor))
	}
	l.lingering.Add(-1)
	select {
	case err := <-m.result:
		return err
	case <-l.over:
		return l.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask lets the thread do something.
func (l *loop) ask(f func(*control)) {
	l.mu.Lock()
	l.asks = append(l.asks, f)
	l.mu.Unlock()
	C.onering_mpi_wake()
}

// reason is why calls fail.
func (l *loop) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending
}

// fail makes all calls fail, now and later. The first reason counts.
func (l *loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending == nil {
		l.ending = err
		close(l.over)
	}
}

const (
	// spinFor is how long the thread tests without a pause after something moved or was asked for: longer than a part
	// takes, and longer than waking on an idle core. lingerFor is how long a caller polls for the end of its message:
	// longer than a short message takes. Both yield to other threads.
	spinFor   = time.Millisecond
	lingerFor = 100 * time.Microsecond
	// mostLinger bounds how many callers poll at the same time.
	mostLinger = 2
	// While no message moves, the thread sleeps for this part of the time that it has waited, within these bounds: it
	// always waits for something, such as another rank's notice, and each check takes time from computation.
	dozePart     = 128
	shortestDoze = 20 * time.Microsecond
	longestDoze  = 10 * time.Millisecond
)

// serve moves messages until all ranks have left. In each turn it takes over what callers ask for, lets control do
// what is due, and waits until the oldest part of a message is done: it tests without a pause while messages move, and
// with longer and longer pauses (doze) once none does.
func (l *loop) serve() {
	lastMoved := time.Now()
	var oldest []*C.onering_part
	for {
		l.mu.Lock()
		toBegin, toAbandon, asks := l.queue, l.drop, l.asks
		l.queue, l.drop, l.asks = nil, nil, nil
		l.mu.Unlock()
		for _, m := range toAbandon { // before its route is used again
			l.abandon(m)
		}
		for _, m := range toBegin {
			l.beginMessage(m)
		}
		for _, ask := range asks {
			ask(l.control)
		}
		now := time.Now()
		if l.control.tick(now) {
			l.finish()
			return
		}
		oldest = oldest[:0]
		for _, m := range l.active {
			p, _, _ := m.part(m.done)
			oldest = append(oldest, p)
		}
		if len(toBegin) > 0 {
			lastMoved = now
		}
		spin, doze := time.Duration(0), min(max(now.Sub(lastMoved)/dozePart, shortestDoze), longestDoze)
		if now.Sub(lastMoved) < spinFor {
			spin = spinFor
		}
		if len(oldest) == 0 {
			doze = l.control.step
		}
		if C.onering_mpi_wait(unsafe.SliceData(oldest), C.int(len(oldest)), C.int64_t(spin), C.int64_t(doze)) > 0 {
			lastMoved = time.Now()
			l.collect(lastMoved)
		}
	}
}

// beginMessage starts a message once those before it on its route have started all their parts.
func (l *loop) beginMessage(m *message) {
	if err := l.lostRoutes[m.route]; err != nil {
		l.endMessage(m, err)
		return
	}
	m.lastMoved = time.Now()
	l.posting[m.route] = append(l.posting[m.route], m)
	if len(l.posting[m.route]) == 1 {
		l.postParts(m.route)
	}
}

// postParts starts parts of the messages of a route, of each as many as the window allows: the next message begins
// once all parts of the one before have started.
func (l *loop) postParts(r route) {
	for len(l.posting[r]) > 0 {
		m := l.posting[r][0]
		if m.posted == 0 {
			l.active = append(l.active, m)
		}
		for ; m.posted < m.parts() && m.posted-m.done < window; m.posted++ {
			p, at, size := m.part(m.posted)
			if r.receive {
				C.onering_mpi_receive(p, at, partBytes, C.int(r.peer), C.int(r.tag))
			} else {
				C.onering_mpi_send(p, at, C.int(size), C.int(r.peer), C.int(r.tag))
			}
			// a failed call counts as a part that is done, with the error
		}
		if m.posted < m.parts() { // collect continues when a part is done
			return
		}
		l.posting[r] = l.posting[r][1:]
	}
	delete(l.posting, r)
}

// collect completes the oldest part of each message, if it is done, and starts others.
func (l *loop) collect(now time.Time) {
	for _, m := range slices.Clone(l.active) { // which postParts appends to
		p, _, size := m.part(m.done)
		if p.done == 0 {
			continue
		}
		m.lastMoved = now
		m.done++
		switch {
		case p.code != 0:
			l.loseRoute(m, fmt.Errorf("mpi: %v: %s", m.route, text(p.code)))
		case m.receive && int(p.size) != size:
			l.loseRoute(m, fmt.Errorf("mpi: %v: the message is not of the %d bytes that are expected", m.route, m.size))
		case m.done == m.parts():
			l.endMessage(m, nil)
		default:
			if q := l.posting[m.route]; len(q) > 0 && q[0] == m { // the first of its route has parts to start
				l.postParts(m.route)
			}
		}
	}
	l.active = slices.DeleteFunc(l.active, func(m *message) bool {
		idle := m.done == m.posted // it is complete, or its route is lost, so that no more parts start
		if idle && m.abandoned {
			l.w.store.put(m.parcel) // abandon could not while parts were under way
		}
		return idle
	})
}

// endMessage gives the caller of a message its result.
func (l *loop) endMessage(m *message, err error) {
	if !m.ended {
		m.ended = true
		m.result <- err
		C.onering_mpi_over(&m.over)
	}
}

// loseRoute ends a message with an error, and with it all messages of its route, whose parts no longer match.
func (l *loop) loseRoute(m *message, err error) {
	l.endMessage(m, err)
	r := m.route
	if l.lostRoutes[r] == nil {
		l.lostRoutes[r] = fmt.Errorf("mpi: %v: not possible after an earlier call failed: %w", r, err)
	}
	for _, other := range l.posting[r] {
		l.endMessage(other, l.lostRoutes[r])
	}
	delete(l.posting, r)
}

// abandon takes over a message whose caller has returned early with an error.
func (l *loop) abandon(m *message) {
	m.abandoned = true
	if !m.ended {
		l.loseRoute(m, errors.New("its caller has given up"))
	}
	if m.posted == m.done {
		l.w.store.put(m.parcel)
	}
}

// finish ends MPI in order, unless messages are left over, and makes all calls fail. A watchdog ends the process if
// the library does not return.
func (l *loop) finish() {
	for _, m := range l.active {
		l.endMessage(m, errors.New("mpi: this rank has left the run"))
		for i := m.done; m.receive && i < m.posted; i++ {
			p, _, _ := m.part(i)
			C.onering_mpi_cancel(p)
		}
	}
	if len(l.lostRoutes) > 0 { // some libraries would then end the process in MPI_Finalize
		l.fail(errors.New("mpi: messages are left over that nobody receives or sent: MPI does not end in order"))
		return
	}
	stop := watchdog(l.control.timeout, l.control.say, fmt.Sprintf("mpi: %s has not ended after %v (MPI_Finalize): this process ends itself",
		l.w.library.Name, l.control.timeout))
	if code := C.onering_mpi_finalize(); code != 0 {
		l.closing = fmt.Errorf("mpi: %s does not end in order: error %d", l.w.library.Name, int(code))
	}
	stop()
	mustSignOff.Store(l.w.library.Kind != openMPI) // from the launcher, in Exit
	close(l.finished)
	l.fail(errors.New("mpi: this rank has left the run"))
}
