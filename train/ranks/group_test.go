package ranks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onering/models"
	"onering/runtime/mpi"
	"onering/train/learn"
)

// all runs f on each of n ranks and returns their errors. It fails the test if a rank
// does not end.
func all(t *testing.T, n int, f func(g *Group) error) []error {
	t.Helper()
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i, transport := range Local(n) {
		wait.Go(func() { errs[i] = f(New(transport)) })
	}
	ended := make(chan struct{})
	go func() { wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the ranks wait for each other")
	}
	return errs
}

// well fails the test unless all ranks end without an error.
func well(t *testing.T, n int, f func(g *Group) error) {
	t.Helper()
	for r, err := range all(t, n, f) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// draw returns numbers of very different sizes, so that the order of a sum shows.
func draw(rank, n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(rank), 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(r.Uint32()&0x83ffffff + 0x3c000000) // of 2^-7 to 1
	}
	return x
}

// Sums are added in the order of the ranks, to the bit, and the number of sent bytes is as
// predicted.
func TestSum(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, size := range []int{0, 1, n, 1000, []int{0, 0, atOnce + 3}[n%3]} {
			want := draw(0, size)
			for r := 1; r < n; r++ {
				for i, v := range draw(r, size) {
					want[i] += v
				}
			}
			half := size / 2 // uneven parts of two buckets, one of which may be empty
			buckets := [][]int{make([]int, n+1), make([]int, n+1)}
			for r := range n + 1 {
				buckets[0][r], buckets[1][r] = half*r*r/(n*n), half+(size-half)*r/n
			}
			well(t, n, func(g *Group) error {
				x := draw(g.Rank(), size)
				for _, b := range buckets {
					before := slices.Clone(x)
					if err := g.SumParts(x, b); err != nil {
						return err
					}
					from, to := b[g.Rank()], b[g.Rank()+1]
					if n > 1 && !slices.Equal(x[from:to], want[from:to]) {
						return errors.New("another sum of a part")
					}
					if !slices.Equal(x[:from], before[:from]) || !slices.Equal(x[to:], before[to:]) {
						return errors.New("elements of others have changed")
					}
					at := slices.Clone(b)
					for i := range at {
						at[i] *= 4
					}
					if err := g.Spread(models.Bytes(x), at); err != nil {
						return err
					}
				}
				if !slices.Equal(x, want) {
					return errors.New("parts are not where they belong")
				}
				predicted := Volume(g.Rank(), n, buckets, func(from, to int) int64 { return 4 * int64(to-from) })
				if sent := g.Sent(); sent != predicted {
					return fmt.Errorf("sent %d bytes, predicted %d", sent, predicted)
				}
				return nil
			})
		}
	}
}

// TestCollectScatter: the first rank gets the parts of all ranks, and each rank gets its own
// part from the first.
func TestCollectScatter(t *testing.T) {
	bounds := []int{0, 3, 3, 10}
	well(t, 3, func(g *Group) error {
		x := make([]float32, 10)
		for i := bounds[g.Rank()]; i < bounds[g.Rank()+1]; i++ {
			x[i] = float32(i)
		}
		own := slices.Clone(x)
		if err := g.Collect(x, bounds); err != nil {
			return err
		}
		if g.First() && !slices.Equal(x, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			return fmt.Errorf("collected %v", x)
		}
		if !g.First() {
			clear(x)
		}
		if err := g.Scatter(x, bounds); err != nil {
			return err
		}
		if from, to := bounds[g.Rank()], bounds[g.Rank()+1]; !slices.Equal(x[from:to], own[from:to]) {
			return fmt.Errorf("got %v", x)
		}
		return nil
	})
}

func TestGatherAndShare(t *testing.T) {
	const blob = 5 << 20
	for n := 1; n <= 4; n++ {
		well(t, n, func(g *Group) error {
			text := strings.Repeat("x", g.Rank()*g.Rank()*blob/2)
			texts, err := g.Gather([]byte(text))
			if err != nil {
				return err
			}
			for r, b := range texts {
				if len(b) != r*r*blob/2 {
					return fmt.Errorf("rank %d gave %d bytes", r, len(b))
				}
			}
			told, err := Tell(g, fmt.Sprint("of rank ", g.Rank()))
			if err != nil || told != "of rank 0" {
				return fmt.Errorf("told %q, %v", told, err)
			}
			if yes, err := Tell(g, g.First()); !yes || err != nil {
				return fmt.Errorf("decided %v, %v", yes, err)
			}
			owner := []int{n - 1, 0, 0, n - 1, n / 2}
			want, got := make([][]float64, 5), make([][]float64, 5)
			for i := range want {
				for k := range i {
					want[i] = append(want[i], float64(10*i+k))
				}
				got[i] = make([]float64, i)
				if owner[i] == g.Rank() {
					got[i] = want[i]
				}
			}
			if err := g.Share(owner, got, [][]float64{{}}); err != nil {
				return err
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					return fmt.Errorf("row %d: %v", i, got[i])
				}
			}
			return nil
		})
	}
}

// All ranks return an error of the same rank, the worst one, and each rank can read its
// own part of the error.
func TestAgreeOn(t *testing.T) {
	update := &learn.UpdateError{Err: errors.New("half")}
	for _, tt := range []struct {
		errs []error
		want string
		is   func(error) bool
	}{
		{errs: []error{nil, nil, nil}},
		{[]error{nil, context.Canceled, nil}, "context canceled", func(err error) bool { return errors.Is(err, context.Canceled) }},
		{[]error{nil, context.Canceled, errors.New("broken")}, "broken", func(err error) bool { return !errors.Is(err, context.Canceled) }},
		{[]error{errors.New("broken"), nil, update}, "half", func(err error) bool { var u *learn.UpdateError; return errors.As(err, &u) }},
		{[]error{errors.New("one"), errors.New("two"), errors.New("three")}, "one", func(error) bool { return true }},
	} {
		for r, err := range all(t, 3, func(g *Group) error { return g.AgreeOn(tt.errs[g.Rank()]) }) {
			if (err == nil) != (tt.want == "") || err != nil && (!strings.HasSuffix(err.Error(), tt.want) || !tt.is(err)) {
				t.Errorf("%v: rank %d returns %v", tt.errs, r, err)
			}
		}
	}
	for r, err := range all(t, 3, func(g *Group) error { return g.Same("data", []string{"a", "a", "b"}[g.Rank()]) }) {
		var differ *DifferError
		if !errors.As(err, &differ) || differ.Rank != 2 || differ.Thing != "data" {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	well(t, 3, func(g *Group) error {
		out, err := g.Agree([]byte{0, 3, 2}[g.Rank()])
		if out != 3 {
			return fmt.Errorf("agreed on %v", out)
		}
		return err
	})
}

// TestContext: the end of one rank's context ends all ranks, and no rank waits at the end
// for another that was never told to stop.
func TestContext(t *testing.T) {
	for _, stops := range []bool{true, false} {
		well(t, 4, func(g *Group) error {
			parent, stop := context.WithCancel(context.Background())
			defer stop()
			ctx, end := g.Context(parent)
			defer end()
			if !stops {
				return g.AgreeOn(ctx.Err())
			}
			if g.Rank() == 2 {
				stop()
			}
			<-ctx.Done()
			return nil
		})
	}
}

// When a rank ends all ranks, each waiting rank gets its error; the group is lost, and a
// rank can still finish alone.
func TestLost(t *testing.T) {
	reason := errors.New("gone")
	for r, err := range all(t, 3, func(g *Group) error {
		if g.Rank() == 1 {
			g.Abort(reason)
			return nil
		}
		if err := g.SumParts(make([]float32, 10), []int{0, 3, 6, 10}); !errors.Is(err, reason) || !errors.Is(g.Lost(), reason) {
			return fmt.Errorf("sum: %v, lost: %v", err, g.Lost())
		}
		if err := g.AgreeOn(nil); !errors.Is(err, reason) {
			return fmt.Errorf("agreed: %v", err)
		}
		if !g.LeaveLost() || g.LeaveLost() {
			return errors.New("it leaves once")
		}
		yes, err := Tell(g, true)
		if !yes || g.Size() != 1 {
			return errors.New("it has not left")
		}
		return errors.Join(err, g.AgreeOn(nil))
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A process alone is the only rank.
func TestAlone(t *testing.T) {
	g := Alone()
	x := []float32{1, 2}
	all, err := g.Gather([]byte("own"))
	if g.Rank() != 0 || g.Size() != 1 || !g.First() || !reflect.DeepEqual(all, [][]byte{[]byte("own")}) {
		t.Errorf("rank %d of %d, gathered %q", g.Rank(), g.Size(), all)
	}
	err = errors.Join(err, g.SumParts(x, []int{0, 2}), g.Spread(models.Bytes(x), []int{0, 8}), g.Share(nil), g.Same("data", "x"), g.AgreeOn(nil), g.Close())
	if err != nil || !slices.Equal(x, []float32{1, 2}) {
		t.Errorf("%v, %v", x, err)
	}
	if g.LeaveLost() {
		t.Error("it has lost nobody")
	}
	g.Abort(nil)
	ctx, end := g.Context(context.Background())
	if end(); ctx.Err() == nil {
		t.Error("the context goes on")
	}
}

// TestEndOfLostRanks: a rank without an error of its own ends the others with the reason why they are lost.
func TestEndOfLostRanks(t *testing.T) {
	for _, own := range []error{nil, errors.New("own")} {
		ranks := Local(2)
		g := New(ranks[0])
		g.world = new(mpi.World) // as Join has it
		lost := errors.New("lost")
		g.lose(lost)
		want := lost
		if own != nil {
			want = own
		}
		if err := g.End(own); !errors.Is(err, want) {
			t.Errorf("End(%v) = %v, want %v", own, err, want)
		}
		if err := ranks[1].Ended(); !errors.Is(err, want) {
			t.Errorf("End(%v) aborts with %v, want %v", own, err, want)
		}
	}
}
