package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"onering/runtime"
)

// TestRest: sessions compute the same while the threads of the pool rest, once and twice
// over, as before and after, whichever rest ends first.
func TestRest(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		inChild(t, "TestRest")
		return
	}
	for _, threads := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) { restAndRun(t, threads) })
	}
}

func restAndRun(t *testing.T, threads int) {
	e, err := runtime.Open(context.Background(), runtime.Options{Threads: threads})
	check(t, err)
	defer func() { check(t, e.Close()) }()
	restAndRunOn(t, e)
}

func restAndRunOn(t *testing.T, e *runtime.Env) {
	t.Helper()
	const n = 256 // The product is large enough to use all threads.
	x, c, got := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	for i := range x {
		x[i], c[i] = float32(i%7), float32(i%3)
	}
	square := func(data []float32) *runtime.Value { return value(t, data, n, n) }
	b := bind(t, e, gemm(), map[string]*runtime.Value{"x": square(x), "w": square(x), "c": square(c)}, map[string]*runtime.Value{"y": square(got)})
	check(t, b.Run())
	want := slices.Clone(got)
	run := func() {
		t.Helper()
		clear(got)
		check(t, b.Run())
		equal(t, got, want)
	}
	for i := range 20 {
		wake, err := e.Rest()
		check(t, err)
		run()
		again, err := e.Rest()
		check(t, err)
		run()
		first, second := wake, again
		if i%2 == 1 { // The rests end in reverse order, as deferred calls do.
			first, second = again, wake
		}
		first()
		first() // A second call has no effect.
		run()
		second()
		run()
	}
}

// TestRestsAtOnce: rests of several goroutines and two Envs begin and end in any order
// while a session of the pool runs, and an Env that is closed in the middle ends its rests.
func TestRestsAtOnce(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		inChild(t, "TestRestsAtOnce")
		return
	}
	for _, threads := range []int{2, 3} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) { restAtOnce(t, runtime.Options{Threads: threads}) })
	}
}

func restAtOnce(t *testing.T, o runtime.Options) {
	a, err := runtime.Open(context.Background(), o)
	check(t, err)
	b, err := runtime.Open(context.Background(), o)
	check(t, err)
	var group sync.WaitGroup
	for i, e := range []*runtime.Env{a, b, a} {
		group.Go(func() {
			for j := range 200 {
				wake, err := e.Rest()
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration((i+j)%3) * 100 * time.Microsecond)
				wake()
			}
		})
	}
	restAndRunOn(t, a)
	group.Wait()
	ofA, err := a.Rest()
	check(t, err)
	ofB, err := b.Rest()
	check(t, err)
	check(t, a.Close())
	again, err := b.Rest()
	check(t, err)
	ofA()
	again()
	ofB()
	if _, err := a.Rest(); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Rest on a closed Env: %v", err)
	}
	check(t, b.Close())
}
