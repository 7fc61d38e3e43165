package mpi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs are what the ranks of a test do, by name. A rank exits with 0 if its program
// returns nil.
var programs = map[string]func(*World) error{
	"messages": messages,
	"nil":      dereference,
	"length":   otherLength,
	"left":     oneLeaves,
	"context":  contextEnds,
	"gather":   gatherAll,
	"measure": func(w *World) error {
		links, err := w.Measure(context.Background())
		if err != nil || w.Rank() > 0 || w.Size() == 1 {
			return err
		}
		for i, l := range links {
			if l.From != i || l.To != (i+1)%w.Size() || l.Latency <= 0 || l.Bandwidth <= 0 || l.Ring <= 0 {
				return fmt.Errorf("link %d: %+v", i, l)
			}
		}
		fmt.Println(links)
		return nil
	},
	"abort": func(w *World) error {
		if w.Rank() > 0 {
			w.Abort(fmt.Errorf("this is why"))
		}
		return w.Recv(context.Background(), 1, 1, nil)
	},
	"stop": func(w *World) error {
		if w.Rank() == 1 {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {}
		}
		return w.Recv(context.Background(), 1, 1, nil)
	},
	"stop0": func(w *World) error {
		if w.Rank() == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {}
		}
		return w.Recv(context.Background(), 0, 1, nil)
	},
	"kill": func(w *World) error {
		if w.Rank() == 2 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return w.Recv(context.Background(), 2, 1, nil)
	},
	"close":          func(w *World) error { return nil },
	"stop the start": func(w *World) error { return nil },
	"stop the end":   func(w *World) error { return nil },
	"leaves without a word": func(w *World) error {
		if w.Rank() == 1 {
			os.Exit(3)
		}
		return nil
	},
}

// lossy are the programs with messages that no one receives or sent, on some ranks.
var lossy = map[string]bool{"length": true, "left": true, "context": true}

func TestMain(m *testing.M) {
	name := os.Getenv("ONERING_MPI_TEST")
	if name == "" {
		os.Exit(m.Run())
	}
	o := Options{Timeout: 20 * time.Second, Version: "1"}
	if strings.HasPrefix(name, "stop") {
		o.Timeout = 3 * time.Second // a rank that is only slow is heard of before
	}
	launch, _ := Launched()
	if name == "stop the start" {
		if startTimeout = o.Timeout; launch.Rank == 1 {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	}
	if name == "version" && launch.Rank == 1 {
		o.Version = "2"
	}
	w, err := Open(context.Background(), o)
	if err == nil {
		err = programs[name](w)
	}
	if err == nil {
		if lossy[name] {
			fmt.Println("passed") // Close ends some ranks with an error, and the launcher the others
		}
		err = w.Close()
	}
	if aborted := (*AbortError)(nil); errors.As(err, &aborted) {
		w.Abort(err)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		Exit(1)
	}
	Exit(0)
}

// mpirun starts n ranks of a program and returns what they printed to stderr.
func mpirun(t *testing.T, n int, program string, env ...string) (string, error) {
	t.Helper()
	command := strings.Fields(os.Getenv("ONERING_TEST_MPIRUN"))
	if len(command) == 0 {
		version, err := exec.Command("mpirun", "--version").Output()
		if err != nil {
			t.Skipf("mpirun cannot be run (%v): install Open MPI or MPICH, or set ONERING_TEST_MPIRUN", err)
		}
		command = []string{"mpirun"}
		if bytes.Contains(version, []byte("Open MPI")) {
			command = append(command, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], append(command[1:], "-n", fmt.Sprint(n), os.Args[0])...)
	c.Env = append(append(os.Environ(), "ONERING_MPI_TEST="+program), env...)
	c.WaitDelay = time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: the ranks did not end\n%s", program, &out)
	}
	return out.String(), err
}

// TestRanks: calls that must succeed do succeed, for one rank and for several.
func TestRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	for _, program := range []string{"messages", "nil", "length", "left", "context", "gather", "measure", "close"} {
		for _, n := range []int{1, 2, 3} {
			out, err := mpirun(t, n, program)
			if lossy[program] {
				if strings.Count(out, "passed") != n {
					t.Errorf("%s with %d ranks: %v\n%s", program, n, err, out)
				}
			} else if err != nil {
				t.Errorf("%s with %d ranks: %v\n%s", program, n, err, out)
			}
		}
	}
}

// Every failure of a rank ends all ranks, with one message.
func TestEnds(t *testing.T) {
	for _, tt := range []struct{ program, want string }{
		{"abort", "this is why"},
		{"version", "rank 1 on host "},
		{"stop", "rank 1 (host "},
		{"stop0", "rank 0 (host "},
		{"kill", "signal 9"},
		{"leaves without a word", ""},
		{"stop the start", "has not started after 3s: MPI_Init waits for a rank that is stopped"},
	} {
		out, err := mpirun(t, 3, tt.program)
		if err == nil {
			t.Errorf("%s: mpirun reports success\n%s", tt.program, out)
		}
		if !strings.Contains(out, tt.want) {
			t.Errorf("%s: nobody says %q:\n%s", tt.program, tt.want, out)
		}
		// Before it kills a stopped rank 0, mpirun may continue it, and it repeats the
		// message of the rank that noticed.
		messages := map[string]bool{}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "onering: rank") {
				messages[line] = true
			}
		}
		if len(messages) > 1 {
			t.Errorf("%s: %d messages:\n%s", tt.program, len(messages), out)
		}
	}
}

// messages sends messages of many lengths around the ring, with several tags at once,
// and checks each.
func messages(w *World) error {
	if w.Size() == 1 {
		return nil
	}
	lengths := []int{0, 1, 7, 4096, partBytes - 1, partBytes, partBytes + 1, 2 * partBytes, 3*partBytes + 5, window*partBytes + 1, 12 * partBytes}
	next, previous := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	const tags = 4
	errs := make([]error, 2*tags)
	var all sync.WaitGroup
	for tag := range tags {
		all.Go(func() {
			for i, n := range lengths {
				if err := w.Send(context.Background(), next, tag, content(w.Rank(), tag, i, n)); err != nil {
					errs[2*tag] = err
					return
				}
			}
		})
		all.Go(func() {
			for i, n := range lengths {
				b := make([]byte, n)
				if err := w.Recv(context.Background(), previous, tag, b); err != nil {
					errs[2*tag+1] = err
					return
				}
				if sha256.Sum256(b) != sha256.Sum256(content(previous, tag, i, n)) {
					errs[2*tag+1] = fmt.Errorf("message %d with tag %d came wrong", i, tag)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func content(rank, tag, i, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(rank), byte(tag), byte(i)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

// dereference panics in Go and recovers, although the library may handle signals.
func dereference(w *World) (err error) {
	for range 3 {
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			var p *hello
			p.PID++
		}()
		if v := <-done; !strings.Contains(fmt.Sprint(v), "nil pointer") {
			return fmt.Errorf("recovered %v", v)
		}
	}
	return nil
}

// otherLength sends messages that are longer and shorter than expected.
func otherLength(w *World) error {
	if w.Rank() > 1 || w.Size() == 1 {
		return nil
	}
	ctx := context.Background()
	for i, n := range [][2]int{{5, 6}, {6, 5}, {partBytes, partBytes + 1}, {partBytes, 1}, {0, 1}, {1, 0}} {
		if w.Rank() == 0 {
			sending, stop := context.WithTimeout(ctx, time.Second) // it may never be received
			w.Send(sending, 1, i, make([]byte, n[0]))
			stop()
			continue
		}
		if err := w.Recv(ctx, 0, i, make([]byte, n[1])); err == nil {
			return fmt.Errorf("%d bytes were taken where %d were expected", n[0], n[1])
		}
		if err := w.Recv(ctx, 0, i, make([]byte, n[1])); err == nil || !strings.Contains(err.Error(), "earlier call failed") {
			return fmt.Errorf("after a message of another length: %v", err)
		}
	}
	return nil
}

// oneLeaves has rank 0 leave while another waits for it. A message that rank 0 sent before still
// arrives.
func oneLeaves(w *World) error {
	ctx := context.Background()
	if w.Rank() > 1 || w.Size() == 1 {
		return nil
	}
	if w.Rank() == 0 {
		return w.Send(ctx, 1, 1, []byte("a"))
	}
	if err := w.Recv(ctx, 0, 2, make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "has left the run") {
		return fmt.Errorf("waiting for a rank that left: %v", err)
	}
	b := make([]byte, 1)
	if err := w.Recv(ctx, 0, 1, b); err != nil || b[0] != 'a' {
		return fmt.Errorf("what it sent before: %q, %v", b, err)
	}
	return nil
}

// contextEnds ends the wait for one tag; other tags continue.
func contextEnds(w *World) error {
	if w.Size() == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	next, previous := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	if err := w.Recv(ctx, previous, 1, make([]byte, 3*partBytes)); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a wait whose context ends: %v", err)
	}
	if err := w.Recv(context.Background(), previous, 1, nil); err == nil {
		return errors.New("the tag can still be used")
	}
	go w.Send(context.Background(), next, 2, []byte{byte(w.Rank())})
	b := make([]byte, 1)
	if err := w.Recv(context.Background(), previous, 2, b); err != nil || int(b[0]) != previous {
		return fmt.Errorf("another tag: %v, %v", b, err)
	}
	if err := w.Send(context.Background(), w.Rank(), 3, nil); err == nil {
		return errors.New("a message to oneself is taken")
	}
	return nil
}

// gatherAll checks Gather and the ranks' knowledge of each other.
func gatherAll(w *World) error {
	all, err := Gather(context.Background(), w, fmt.Sprint("rank ", w.Rank()))
	if err != nil {
		return err
	}
	for i, b := range all {
		if b != fmt.Sprint("rank ", i) {
			return fmt.Errorf("rank %d gave %q", i, b)
		}
	}
	if len(w.Peers()) != w.Size() || w.Peers()[w.Rank()].PID != os.Getpid() || w.LocalSize() != w.Size() || w.LocalRank() != w.Rank() {
		return fmt.Errorf("peers %v, local rank %d of %d", w.Peers(), w.LocalRank(), w.LocalSize())
	}
	return nil
}
