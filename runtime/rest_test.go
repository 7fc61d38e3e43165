package runtime_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"onering/runtime"
)

// TestRest: sessions compute the same while the threads of the pool rest, once and twice
// over, as before and after.
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
	t.Cleanup(func() { check(t, e.Close()) })
	const n = 256 // large enough for all threads
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
	for range 20 {
		wake, err := runtime.Rest(e)
		check(t, err)
		run()
		again, err := runtime.Rest(e)
		check(t, err)
		run()
		wake()
		run()
		again()
		run()
	}
}
