// Package mpi moves bytes between the ranks of a run that mpirun, mpiexec or srun started. The MPI library is opened
// by name at run time: a plain start loads none, and the program is built without one.
//
// One locked thread calls the library (loop.go). It also sends signs of life from each rank to the next (control.go):
// a rank watches the previous one, and a rank that is stopped, hangs in the library or is gone ends all ranks with
// one message. A rank that computes for long while others wait for it is not a failure.
package mpi

// #include <stdlib.h>
// #include "mpi.h"
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Options are the arguments of Open.
type Options struct {
	// Library is the path of the MPI library; "" uses the variable ONERING_MPI, or finds the launcher's library.
	Library string
	// Version is onering's; ranks of another version are refused.
	Version string
	// Timeout is how long a rank may give no sign of life, and how long MPI may take to
	// end and, if that is more than 15 seconds, to start. 0 is defaultTimeout.
	Timeout time.Duration
	// Say receives the reason why all ranks end, on one rank. Nil writes to stderr.
	Say func(text string)
}

// defaultTimeout is how long a rank may give no sign of life.
const defaultTimeout = time.Minute

// startTimeout is the least time that MPI may take to start: ranks do not start at once. Tests shorten it.
var startTimeout = 15 * time.Second

// A Peer is a rank of the run.
type Peer struct {
	Rank      int    `json:"rank"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	LocalRank int    `json:"local_rank"` // number among the ranks of its host
}

func (p Peer) String() string { return fmt.Sprintf("rank %d (host %s, pid %d)", p.Rank, p.Host, p.PID) }

// An AbortError is the error of a rank's calls once a rank has ended the run. Its text
// has been printed, so nobody needs to print it again.
type AbortError struct {
	Rank int // the rank that ended the run
	Err  error
}

func (e *AbortError) Error() string { return fmt.Sprintf("rank %d ended the run: %v", e.Rank, e.Err) }

func (e *AbortError) Unwrap() error { return e.Err }

// A World is this process as one of the ranks of a run. Its methods may be called by several goroutines at once.
type World struct {
	// CPUs is how many CPUs this process may use: GOMAXPROCS before Open, which raises it.
	CPUs int

	library Library
	self    C.onering_world
	peers   []Peer
	version string
	loop    *loop
	store   store
}

// Open opens the library, starts MPI and waits until all ranks have done so. It refuses a run whose ranks have
// different libraries or versions of onering, or whose library belongs to another MPI than the launcher. A process
// calls it once, before anything slow, since the other ranks wait.
func Open(ctx context.Context, o Options) (*World, error) {
	launch, ok := Launched()
	if !ok {
		return nil, errors.New("mpi: this process was not started by a launcher of MPI: start it with mpirun -n N onering …")
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Say == nil {
		o.Say = func(text string) { fmt.Fprintln(os.Stderr, text) }
	}
	w, err := start(ctx, o, launch)
	if err != nil {
		return nil, err
	}
	if err := w.introduce(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// start opens the library and starts the thread that calls it.
func start(ctx context.Context, o Options, launch launch) (*World, error) {
	if o.Library == "" {
		o.Library = os.Getenv("ONERING_MPI")
	}
	for k, v := range quiet { // so that libraries below MPI handle no signals
		if _, set := os.LookupEnv(k); !set {
			os.Setenv(k, v)
		}
	}
	C.onering_signals_save() // libraries below MPI may handle signals once they are loaded
	lib, err := open(o.Library, launch)
	C.onering_signals_repair() // puts Go's handlers back
	if err != nil {
		return nil, err
	}
	// The thread is in the library most of the time, and callers may be too: computation
	// needs processors beyond those two.
	cpus := goruntime.GOMAXPROCS(0)
	goruntime.GOMAXPROCS(max(cpus, 4))
	w := &World{library: lib, version: o.Version, store: store{free: map[int][]*parcel{}}, CPUs: cpus}
	started := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		err := w.init()
		if err == nil {
			w.loop = newLoop(w, o)
		}
		started <- err
		if err == nil {
			w.loop.serve()
		}
	}()
	within := max(o.Timeout, startTimeout)
	select {
	case err = <-started:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(within):
		return nil, fmt.Errorf("mpi: %s has not started after %v: MPI_Init waits for a rank that is stopped or did "+
			"not come so far, or for a network; a longer distributed.timeout gives it more time", lib.Name, within)
	}
	if err != nil {
		return nil, err
	}
	if n := int(w.self.size); launch.Size > 0 && n != launch.Size {
		return nil, fmt.Errorf("mpi: %s started %d ranks, but %s (%s) sees %d: the library and the launcher are of "+
			"two installations; name the launcher's library in ONERING_MPI%s", launch.Launcher, launch.Size, lib.Name, lib.Path, n, remedy(launch))
	}
	return w, nil
}

// remedy is what else helps if a launcher and a library do not fit.
func remedy(l launch) string {
	if l.Launcher == "srun" || l.Launcher == "srun without PMI" {
		return ", or start with srun --mpi=pmix (or pmi2; srun --mpi=list shows which there are)"
	}
	return ""
}

// quiet are variables that keep libraries below MPI from handling signals.
var quiet = map[string]string{
	"UCX_ERROR_SIGNALS":        "", // for UCX: SIGSEGV and others
	"UCX_WARN_UNUSED_ENV_VARS": "n",
	"IPATH_NO_BACKTRACE":       "1",
	"HFI_NO_BACKTRACE":         "1",
}

// init starts MPI on the calling thread.
func (w *World) init() error {
	C.onering_mpi_use(C.int(w.library.Kind))
	code := C.onering_mpi_init(&w.self)
	C.onering_signals_repair()
	if code != 0 {
		return fmt.Errorf("mpi: %s (%s) does not start: %s", w.library.Name, w.library.Path, text(code))
	}
	if w.self.threads == 0 {
		return fmt.Errorf("mpi: %s (%s) is built without threads (MPI_THREAD_FUNNELED), and onering has several", w.library.Name, w.library.Path)
	}
	return nil
}

// helloTag is the tag of the messages of broadcast and Gather; callers have tags 0 to 9999.
const helloTag = 10001

// A hello is what a rank tells rank 0 about itself at the start.
type hello struct {
	Peer
	Library, Version string
}

// introduce tells all ranks who the others are, by way of rank 0. That ends a run whose ranks have other libraries or versions.
func (w *World) introduce(ctx context.Context) error {
	own := hello{Peer{w.Rank(), C.GoString(&w.self.host[0]), os.Getpid(), w.LocalRank()}, w.library.Name, w.version}
	all, err := Gather(ctx, w, own)
	if err != nil {
		return fmt.Errorf("mpi: meeting the other ranks: %w", err)
	}
	var peers []byte
	if w.Rank() == 0 {
		for _, h := range all {
			w.peers = append(w.peers, h.Peer)
			if h.Library != own.Library { // Abort does not return
				w.Abort(fmt.Errorf("rank %d on host %s has %s, rank 0 on host %s has %s: install the same MPI on all hosts",
					h.Rank, h.Host, h.Library, own.Host, own.Library))
			}
			if h.Version != own.Version {
				w.Abort(fmt.Errorf("rank %d on host %s is onering %s, rank 0 on host %s is %s: install the same onering on all hosts",
					h.Rank, h.Host, h.Version, own.Host, own.Version))
			}
		}
		if peers, err = json.Marshal(w.peers); err != nil {
			return err
		}
	}
	if peers, err = w.broadcast(ctx, peers); err == nil {
		err = json.Unmarshal(peers, &w.peers)
	}
	if err != nil {
		return fmt.Errorf("mpi: meeting the other ranks: %w", err)
	}
	w.loop.control.know(w.peers)
	return nil
}

// Rank returns this rank's number, from 0.
func (w *World) Rank() int { return int(w.self.rank) }

// Size returns the number of ranks.
func (w *World) Size() int { return int(w.self.size) }

// LocalRank returns this rank's number among those of its host, from 0.
func (w *World) LocalRank() int { return int(w.self.local) }

// LocalSize returns the number of ranks on this host.
func (w *World) LocalSize() int { return int(w.self.local_size) }

// Library returns the library that was opened.
func (w *World) Library() Library { return w.library }

// CUDAAware reports whether the library says that it takes pointers to the memory of CUDA devices.
func (w *World) CUDAAware() bool { return w.self.cuda != 0 }

// Peers returns all ranks in order.
func (w *World) Peers() []Peer { return w.peers }

// Send sends b to a rank and returns when b may be used again. Messages of one pair of
// ranks and one tag keep their order. When ctx ends it returns at once; the message may
// still arrive, and no more messages can be sent with that tag.
func (w *World) Send(ctx context.Context, to, tag int, b []byte) error {
	if err := w.check(to, tag); err != nil {
		return err
	}
	return w.loop.move(ctx, move{route{to, tag, false}, b})
}

// Recv fills b with the next message from a rank. After a message of another length, and
// after ctx ended, it returns an error and no more messages can be received with that tag.
func (w *World) Recv(ctx context.Context, from, tag int, b []byte) error {
	if err := w.check(from, tag); err != nil {
		return err
	}
	return w.loop.move(ctx, move{route{from, tag, true}, b})
}

// atOnce is how many bytes Exchange moves between two ranks at a time.
const atOnce = 4 << 20

// Exchange sends out[r] to each rank r and fills in[r] with the bytes that r sends to this rank. An empty slice means
// no message. All Sends and Recvs run at the same time; longer slices go in several messages.
func (w *World) Exchange(ctx context.Context, tag int, out, in [][]byte) error {
	for first := 0; ; first += atOnce {
		var moves []move
		for i := 1; i < w.Size(); i++ {
			// Neighbours first, so that not all ranks begin with the same one.
			to, from := (w.Rank()+i)%w.Size(), (w.Rank()-i+w.Size())%w.Size()
			if b := out[to]; first < len(b) {
				moves = append(moves, move{route{to, tag, false}, b[first:min(first+atOnce, len(b))]})
			}
			if b := in[from]; first < len(b) {
				moves = append(moves, move{route{from, tag, true}, b[first:min(first+atOnce, len(b))]})
			}
		}
		if len(moves) == 0 {
			return nil
		}
		if err := w.check((w.Rank()+1)%w.Size(), tag); err != nil { // the tag may be wrong; this peer stands for all
			return err
		}
		if err := w.loop.move(ctx, moves...); err != nil {
			return err
		}
	}
}

func (w *World) check(peer, tag int) error {
	if peer < 0 || peer >= w.Size() || peer == w.Rank() {
		return fmt.Errorf("mpi: no message goes between rank %d and rank %d of %d", w.Rank(), peer, w.Size())
	}
	if tag < 0 || tag >= controlTag {
		return fmt.Errorf("mpi: tag %d is not between 0 and %d", tag, controlTag-1)
	}
	return nil
}

// Ended returns when a rank has ended the run, with the reason, or after Close.
func (w *World) Ended() error {
	<-w.loop.over
	return w.loop.reason()
}

// Abort ends all ranks and does not return. Rank 0 prints the message that reaches it first, and the calls of all
// ranks end with it as an *AbortError. Rank 0 then has a minute, or the timeout if that is longer, to save its state,
// until it calls Abort too. A rank without signs of life ends the run in the same way.
func (w *World) Abort(err error) {
	w.loop.ask(func(c *control) {
		c.abort(err.Error())
		if w.Rank() == 0 {
			c.deadline = time.Now() // it has saved what it wanted to
		}
	})
	time.Sleep(2 * grace)
	if w.loop.reason() == nil { // the library keeps the thread
		w.loop.control.say(err.Error())
		os.Exit(1)
	}
	select {} // the thread ends the process
}

// Close ends this rank in order: it waits until all ranks have called it and ends MPI. A
// library that does not end within the timeout ends the process.
func (w *World) Close() error {
	l := w.loop
	l.ask(func(c *control) { c.leaving = true })
	<-l.over
	select {
	case <-l.finished:
		return l.closing
	default:
		return l.reason()
	}
}

// mustSignOff is set if an ended library must still sign off from the launcher; see Exit.
var mustSignOff atomic.Bool

// Exit is os.Exit for a process that may have closed a World. MPICH, from version 4.2 on, signs off from the launcher
// only when C's exit runs, which os.Exit does not call: to the launcher it would look like a crash.
func Exit(code int) {
	if mustSignOff.Load() {
		time.AfterFunc(2*grace, func() { os.Exit(code) }) // exit functions of another library may hang
		C.exit(C.int(code))
	}
	os.Exit(code)
}

// text is the library's text for a code.
func text(code C.int) string {
	t := C.onering_mpi_text(code)
	defer C.free(unsafe.Pointer(t))
	return C.GoString(t)
}
