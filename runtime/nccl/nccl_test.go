//go:build linux

package nccl

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// These are the roles of a process in the tests.
const (
	rankVariable = "ONERING_NCCL_TEST_RANK" // R of N
	idVariable   = "ONERING_NCCL_TEST_ID"
	dieVariable  = "ONERING_NCCL_TEST_DIES" // Rank 1 dies before it sends.
)

func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) == "" {
		os.Exit(m.Run())
	}
	var rank, size int
	fmt.Sscanf(os.Getenv(rankVariable), "%d of %d", &rank, &size)
	if err := beRank(rank, size); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func stay() error { return nil }

// fake compiles testdata/fake.c.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	if out, err := exec.Command("cc", append(flags, "-shared", "-fPIC", "-o", path, "testdata/fake.c")...).CombinedOutput(); err != nil {
		t.Skipf("cc cannot compile a library: %v\n%s", err, out)
	}
	return path
}

// content is the message that one rank sends another.
func content(from, to, i int) []byte {
	draw := rand.New(rand.NewPCG(uint64(100*from+to), uint64(i)))
	b := make([]byte, 1+draw.IntN(200000)) // The message takes several pieces of the library.
	for i := range b {
		b[i] = byte(draw.Uint32())
	}
	return b
}

func move(peer int, b []byte) Move {
	return Move{Peer: peer, At: unsafe.Pointer(unsafe.SliceData(b)), Bytes: len(b)}
}

// beRank exchanges messages of many lengths with every rank, including itself, and gathers.
func beRank(rank, size int) error {
	l, err := Open(os.Getenv(Variable), nil, stay)
	if err != nil {
		return err
	}
	id, _ := hex.DecodeString(os.Getenv(idVariable))
	c, err := l.Join(id, rank, size)
	if err != nil {
		return err
	}
	if os.Getenv(dieVariable) != "" {
		if rank == 1 {
			os.Exit(3)
		}
		time.AfterFunc(100*time.Millisecond, c.Abort)
	}
	for i := range 3 {
		var out, in []Move
		var want, got [][]byte
		for r := range size {
			out = append(out, move(r, content(rank, r, i)), move(r, content(rank, r, 100+i)))
			for _, b := range [][]byte{content(r, rank, i), content(r, rank, 100+i)} {
				want, got = append(want, b), append(got, make([]byte, len(b)))
				in = append(in, move(r, got[len(got)-1]))
			}
		}
		if err := c.Exchange(out, in); err != nil {
			return err
		}
		for k := range want {
			if !bytes.Equal(want[k], got[k]) {
				return fmt.Errorf("message %d of rank %d came wrong", i, k/2)
			}
		}
		const part = 70001
		all := make([]byte, size*part)
		for k := range part {
			all[rank*part+k] = byte(rank + k + i)
		}
		if err := c.Gather(unsafe.Pointer(unsafe.SliceData(all)), part); err != nil {
			return err
		}
		for k, b := range all {
			if b != byte(k/part+k%part+i) {
				return fmt.Errorf("byte %d of what was gathered is %d", k, b)
			}
		}
	}
	if err := errors.Join(c.Check(), c.Close()); err != nil {
		return err
	}
	if err := c.Exchange(nil, nil); !errors.Is(err, errAborted) || !errors.Is(c.Check(), errAborted) {
		return fmt.Errorf("after Close: %v", err)
	}
	c.Abort() // harms nothing
	return nil
}

// processes runs ranks as processes and returns the output of each.
func processes(t *testing.T, library string, n int, env ...string) []string {
	t.Helper()
	l, err := Open(library, nil, stay)
	if err != nil {
		t.Fatal(err)
	}
	id, err := l.ID()
	if err != nil {
		t.Fatal(err)
	}
	said := make([]string, n)
	var wait sync.WaitGroup
	for r := range n {
		wait.Go(func() {
			c := exec.Command(os.Args[0])
			c.Env = append(append(os.Environ(), Variable+"="+library, idVariable+"="+hex.EncodeToString(id), fmt.Sprintf("%s=%d of %d", rankVariable, r, n)), env...)
			out, err := c.CombinedOutput()
			if said[r] = string(out); err != nil {
				said[r] += err.Error()
			}
		})
	}
	wait.Wait()
	return said
}

// TestProcesses: ranks that are processes receive the messages that the others sent.
func TestProcesses(t *testing.T) {
	library := fake(t)
	for _, n := range []int{1, 2, 4} {
		for r, said := range processes(t, library, n) {
			if said != "" {
				t.Errorf("rank %d of %d: %s", r, n, said)
			}
		}
	}
}

// TestDies: Abort ends the calls of a rank that waits for a rank that has died.
func TestDies(t *testing.T) {
	for r, said := range processes(t, fake(t), 3, dieVariable+"=1") {
		if want := errAborted.Error(); r != 1 && !strings.Contains(said, want) || r == 1 && !strings.Contains(said, "exit status 3") {
			t.Errorf("rank %d: %s", r, said)
		}
	}
}

// TestRefuses: an error of a library names its path and repeats its own words.
func TestRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.so")
	if _, err := Open(missing, nil, stay); err == nil || !strings.Contains(err.Error(), strconv.Quote(missing)) || !strings.Contains(err.Error(), "cannot open shared object file") {
		t.Errorf("without a file: %v", err)
	}
	if _, err := Open(fake(t, "-DWITHOUT_ABORT"), nil, stay); err == nil || !strings.Contains(err.Error(), "it lacks the function ncclCommAbort") {
		t.Errorf("without a function: %v", err)
	}
	path := fake(t, "-DFAIL_ID", "-DFAIL_INIT=0", "-DVERSION=23001")
	l, err := Open(path, nil, stay)
	if err != nil || l.Version != "2.30.1" {
		t.Fatalf("%+v, %v", l, err)
	}
	const want = "NCCL 2.30.1: %s: unhandled system error (code 2); NCCL_DEBUG=WARN in the environment says more"
	if _, err := l.ID(); fmt.Sprint(err) != fmt.Sprintf(want, "making an id for the ranks") {
		t.Errorf("%v", err)
	}
	if _, err := l.Join(make([]byte, 128), 0, 1); fmt.Sprint(err) != fmt.Sprintf(want, "joining the other ranks") {
		t.Errorf("%v", err)
	}
	if _, err := l.Join([]byte("short"), 0, 1); err == nil {
		t.Error("a short id is taken")
	}
	if l, err = Open(path, nil, func() error { return errors.New("no such GPU") }); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Join(make([]byte, 128), 0, 1); fmt.Sprint(err) != "no such GPU" {
		t.Errorf("%v", err)
	}
}
