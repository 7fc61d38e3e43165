package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// A lazy device copies as late as possible, when it is waited for, or as early as possible.
type lazy struct {
	memory  []byte
	pending []func()
	eager   bool
	started int
	fails   int // the number of the start that fails; 0 for none
}

func (d *lazy) do(f func()) error {
	if d.started++; d.started == d.fails {
		return errors.New("broken")
	}
	if d.eager {
		f()
	} else {
		d.pending = append(d.pending, f)
	}
	return nil
}

func (d *lazy) wait() error {
	for _, f := range d.pending {
		f()
	}
	d.pending = nil
	return nil
}

func (d *lazy) up(at int, piece []byte) error {
	return d.do(func() { copy(d.memory[at:], piece) })
}

func (d *lazy) down(piece []byte, at int) error {
	return d.do(func() { copy(piece, d.memory[at:]) })
}

// TestPinned: bytes of any size pass through pinned memory unchanged, in as many pieces
// as needed, and no copy is under way when the call returns.
func TestPinned(t *testing.T) {
	var none *pinned
	words := make([]uint64, 2*pinnedPart/8)
	p := newPinned(unsafe.Pointer(&words[0]))
	if none.stages(1<<30) || p.stages(pinnedFrom-1) || !p.stages(pinnedFrom) {
		t.Error("staged without such memory, or a small copy")
	}
	r := rand.NewChaCha8([32]byte{1})
	for _, n := range []int{1, pinnedFrom, pinnedPart, pinnedPart + 1, 2*pinnedPart - 1, 3*pinnedPart + 5, 4 * pinnedPart} {
		pieces := (n + pinnedPart - 1) / pinnedPart
		from, to := make([]byte, n), make([]byte, n)
		r.Read(from)
		for _, eager := range []bool{false, true} {
			d := &lazy{memory: make([]byte, n), eager: eager}
			if err := p.up(from, d.up, d.wait); err != nil || !bytes.Equal(d.memory, from) || d.started != pieces {
				t.Errorf("%d bytes up: %v, %d pieces, the same %v", n, err, d.started, bytes.Equal(d.memory, from))
			}
			clear(to)
			d.started = 0
			if err := p.down(to, d.down, d.wait); err != nil || !bytes.Equal(to, from) || d.started != pieces || len(d.pending) > 0 {
				t.Errorf("%d bytes down: %v, %d pieces, the same %v", n, err, d.started, bytes.Equal(to, from))
			}
		}
		d := &lazy{memory: slices.Clone(from), fails: pieces}
		if p.up(from, d.up, d.wait) == nil {
			t.Errorf("%d bytes up: the device failed and nothing is said", n)
		}
		if d.started = 0; p.down(to, d.down, d.wait) == nil {
			t.Errorf("%d bytes down: the device failed and nothing is said", n)
		}
	}
}
