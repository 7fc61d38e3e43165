package ranks

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"onering/runtime/mpi"
	"onering/train/learn"
)

// A Group is this process among the ranks of a run. All ranks call the same methods in
// the same order; a call returns when all ranks have made it, or with an error when a
// rank is gone. In a Group of one rank they do nothing.
//
// No context ends a wait: a rank that left early would leave the others waiting.
type Group struct {
	wire
	received []float32     // room for the other ranks' elements in add
	world    *mpi.World    // the World that Join has opened, or nil
	timeout  time.Duration // the timeout of Join
	links
}

var _ learn.Ranks = (*Group)(nil)

// New returns the group that a transport connects.
func New(t Transport) *Group { return &Group{wire: wire{t: t}} }

// Alone returns the Group of a process that is the only rank.
func Alone() *Group { return New(Local(1)[0]) }

// Gather returns what each rank gives, by rank. Each rank first sends firstBytes bytes, the length of what it gives and as
// much of it as fits, and then the rest.
func (g *Group) Gather(own []byte) ([][]byte, error) {
	all := make([][]byte, g.Size())
	all[g.Rank()%len(all)] = own // a rank that has left keeps its number in a group of one
	if g.Size() == 1 {
		return all, nil
	}
	first := make([]byte, firstBytes)
	binary.LittleEndian.PutUint64(first, uint64(len(own)))
	rest := own[copy(first[8:], own):]
	firsts := make([]byte, firstBytes*len(all))
	firstOf := func(r int) []byte { return firsts[firstBytes*r:][:firstBytes] }
	if err := g.exchange(tagSize, func(int) []byte { return first }, firstOf); err != nil {
		return nil, err
	}
	rests := make([][]byte, len(all))
	for r := range all {
		if r == g.Rank() {
			continue
		}
		n := binary.LittleEndian.Uint64(firstOf(r))
		if n > mostBytes {
			return nil, fmt.Errorf("ranks: rank %d announces %d bytes", r, n)
		}
		all[r] = make([]byte, n)
		rests[r] = all[r][copy(all[r], firstOf(r)[8:]):]
	}
	return all, g.exchange(tagBlob, func(int) []byte { return rest }, func(r int) []byte { return rests[r] })
}

// GatherAll returns what each rank gives, by rank: a value that package gob can carry. A
// rank that has failed gives its error, and then all return one, as AgreeOn does.
func GatherAll[T any](g *Group, own T, err error) ([]T, error) {
	if g.Size() == 1 {
		return []T{own}, err
	}
	var b bytes.Buffer
	if err == nil {
		err = gob.NewEncoder(&b).Encode(own)
	}
	texts, err := g.agreed(b.Bytes(), err)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for rank, text := range texts {
		if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&all[rank]); err != nil {
			return nil, fmt.Errorf("ranks: what rank %d has sent: %w", rank, err)
		}
	}
	return all, nil
}

// FromFirst calls f on the first rank and returns what that returns on every rank.
func FromFirst[T any](g *Group, f func() (T, error)) (x T, err error) {
	if g.First() {
		x, err = f()
	}
	all, err := GatherAll(g, x, err)
	if err == nil {
		x = all[0]
	}
	return x, err
}

const (
	// mostBytes bounds the size that a rank may claim to send.
	mostBytes = 1 << 36
	// firstBytes is the message that says how much a rank gives, and has the first of it: mostly all.
	firstBytes = 256
)

// Tell gives every rank the value of the first.
func Tell[T any](g *Group, own T) (first T, err error) {
	all, err := GatherAll(g, own, nil)
	if err == nil {
		first = all[0]
	}
	return first, err
}

// A RankError is the error of another rank.
type RankError struct {
	Rank int
	Text string
	kind byte
}

func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }

// Unwrap returns the kind of the other rank's error: context.Canceled if it was told to
// stop, a *learn.UpdateError if an update failed halfway.
func (e *RankError) Unwrap() error {
	switch e.kind {
	case stopped:
		return context.Canceled
	case half:
		return &learn.UpdateError{Err: errors.New(e.Text)}
	}
	return nil
}

// Kinds of errors; the largest of all ranks counts.
const (
	fine = iota
	stopped
	failed
	half
)

func kindOf(err error) byte {
	switch {
	case errors.As(err, new(*learn.UpdateError)):
		return half
	case errors.Is(err, context.Canceled):
		return stopped
	}
	return failed
}

// AgreeOn returns nil if all ranks give nil, else the error of one rank, the same on all:
// on that rank, and where the text is equal, the own error, and on others a *RankError.
func (g *Group) AgreeOn(own error) error {
	_, err := g.agreed(nil, own)
	return err
}

// agreed returns what each rank gives, by rank, or what AgreeOn returns of their errors. A rank sends one message: a
// byte for the kind of its error, and behind it what it gives, or the text of the error. The worst kind counts.
func (g *Group) agreed(give []byte, own error) ([][]byte, error) {
	if g.Size() == 1 {
		return [][]byte{give}, own
	}
	if err := g.Lost(); err != nil {
		if own == nil {
			own = err
		}
		return nil, own
	}
	message := append([]byte{fine}, give...)
	if own != nil {
		message = append([]byte{kindOf(own)}, own.Error()...)
	}
	all, err := g.Gather(message)
	if err != nil {
		return nil, errors.Join(own, err)
	}
	worst := 0
	for r, message := range all {
		if message[0] > all[worst][0] {
			worst = r
		}
	}
	kind, text := all[worst][0], string(all[worst][1:])
	switch {
	case kind == fine:
		for r := range all {
			all[r] = all[r][1:]
		}
		return all, nil
	case own != nil && own.Error() == text: // with its type, which a text lacks
		return nil, own
	}
	return nil, &RankError{worst, text, kind}
}

// Agree implements learn.Ranks.
func (g *Group) Agree(own byte) (byte, error) {
	words := make([]byte, g.Size())
	words[g.Rank()] = own
	err := g.exchange(tagBlob, func(int) []byte { return words[g.Rank():][:1] }, func(r int) []byte { return words[r:][:1] })
	return slices.Max(words), err
}

// Same returns an error on every rank unless all have the same text about a thing. The error names the first
// rank whose text differs from the first rank's, and the first line that differs.
func (g *Group) Same(thing, text string) error {
	all, err := g.Gather([]byte(text))
	if err != nil {
		return err
	}
	for r, other := range all {
		if string(other) != string(all[0]) {
			x := &DifferError{Thing: thing, Rank: r}
			x.Other, x.First = firstDifference(string(other), string(all[0]))
			return x
		}
	}
	return nil
}

// firstDifference returns the first lines that differ in two texts.
func firstDifference(a, b string) (lineOfA, lineOfB string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	i := 0
	for i < min(len(x), len(y))-1 && x[i] == y[i] {
		i++
	}
	return shortened(x[i]), shortened(y[i])
}

// shortened returns at most 200 bytes of a text.
func shortened(text string) string {
	if len(text) <= 200 {
		return text
	}
	return strings.ToValidUTF8(text[:200], "") + " ..."
}

// A DifferError says that a rank has something else than the first one.
type DifferError struct {
	Thing        string
	Rank         int
	Other, First string
}

func (e *DifferError) Error() string {
	return fmt.Sprintf("ranks: rank %d has another %s than rank 0: %s, not %s; all ranks need the same", e.Rank, e.Thing, e.Other, e.First)
}

// Context returns a context that ends with parent, and with the parent of any other rank: a rank that is told to stop
// tells the others. All ranks call end when they no longer need it, after the same calls of other methods.
func (g *Group) Context(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(parent)
	if g.Size() == 1 {
		return ctx, cancel
	}
	// The ranks form a circle. Each sends the next a single notice: 1 to stop, which thus goes round, or 0 at its end.
	next, before := (g.Rank()+1)%g.Size(), (g.Rank()-1+g.Size())%g.Size()
	over, done := make(chan struct{}), make(chan struct{}, 2) // over is closed by end; done gets one from each goroutine
	alive, giveUp := context.WithCancel(context.Background()) // giveUp ends a Send or Recv of a notice
	go func() {
		defer func() { done <- struct{}{} }()
		notice := []byte{0}
		select {
		case <-ctx.Done():
		case <-over:
		}
		if ctx.Err() != nil {
			notice[0] = 1
		}
		g.t.Send(alive, next, tagStop, notice) // another call notices a failure
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		notice := []byte{0}
		if g.t.Recv(alive, before, tagStop, notice) == nil && notice[0] == 1 {
			cancel()
		}
	}()
	return ctx, func() {
		close(over)
		if g.left || g.Lost() != nil {
			giveUp() // the other ranks may never answer
		}
		<-done
		<-done
		giveUp()
		cancel()
	}
}
