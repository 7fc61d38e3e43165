package runtime

import (
	"maps"
	"slices"
	"unsafe"
	"weak"

	"onering/models"
	"onering/runtime/nccl"
)

// ErrClosed is the error of calls on a closed object.
var ErrClosed = errClosed

// SpareActivations returns how many sets of activations the Learner has between
// two passes, and the bytes of all of them.
func (l *Learner) SpareActivations() (sets, bytes int) {
	size := func(b *buffer) int { return b.bytes(b.capacity) }
	for _, a := range l.spare.activations {
		bytes += size(&a.scoredRows) + size(&a.normedRows)
		for i := range a.stream {
			bytes += size(&a.stream[i])
		}
		for i := range a.logits {
			bytes += size(&a.logits[i])
		}
		for i := range a.stash {
			for j := range a.stash[i] {
				bytes += size(&a.stash[i][j])
			}
		}
	}
	return len(l.spare.activations), bytes
}

// NewTensor is NewValue for elements given as bytes in the machine's byte order, such as
// those of a mapped file or of 16-bit types.
func NewTensor(d models.DType, data []byte, shape ...int64) (*Value, error) {
	return newValue(host, d, unsafe.Pointer(unsafe.SliceData(data)), len(data), shape)
}

// Forms returns the forms that have computed steps.
func (d *Decoder) Forms() []models.Form { return slices.Sorted(maps.Keys(d.steps)) }

// CacheMemory returns the address of the keys of the cache's first layer, and does not keep the memory alive.
func (d *Decoder) CacheMemory() weak.Pointer[byte] { return weak.Make((*byte)(d.cache.states[0].at)) }

// Untiled makes the Optimizer run its Programs on ONNX Runtime alone.
func (o *Optimizer) Untiled() error {
	for _, u := range o.updates {
		if u.code == nil {
			continue
		}
		u.code = nil
		if err := o.loadSession(u); err != nil {
			return err
		}
	}
	return nil
}

// Share deals ranges to the parts of an Optimizer.
func Share(bounds []int, parts, bucket int) (owner []int, buckets [][]int) {
	s := divideRanges(bounds, 0, parts, bucket)
	return s.owner, s.buckets
}

// HeadRows returns for how many tokens the head computed log-probs.
func (p *Pass) HeadRows() int {
	if p.scored == 0 {
		return 0
	}
	return int(p.packed.logSumExp[p.learner.head.lastSums()].value.shape[0])
}

// ExecutionProviders returns the names of the providers built into the library.
func (e *Env) ExecutionProviders() ([]string, error) { return e.executionProviders() }

// Locked returns how many ranges of the host's memory the stand-in of e has locked, and lets
// it lock no more than most from now on; 0 is not a limit.
func (e *Env) Locked(most int) int {
	return e.memory.Driver.(interface{ Locked(int) int }).Locked(most)
}

// SetNotice makes e send its notices to f.
func (e *Env) SetNotice(f func(string)) { e.options.Notice = f }

// Slots returns how many parts an update has on the device at once.
func (o *Optimizer) Slots() int { return len(o.staging.slots) }

// Itself has a Link of one rank send parts to itself and add them times times without a
// wait, as the rank with number own would. It returns this rank's part.
func (l *Link) Itself(parts [][]float32, own, times int) ([]float32, error) {
	all, n := l.env.buffer(models.F32), len(parts[0])
	defer all.close()
	data, _, err := sized[float32](&all, int64(len(parts)), int64(n))
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		copy(data[i*n:], p)
	}
	closeSessions(l.sum)
	l.size, l.rank = len(parts), own
	if l.sum, err = loadBinding(l.env, sumProgram(l.size, own)); err != nil {
		return nil, err
	}
	if _, err := l.received.resize(int64(n * len(parts))); err != nil {
		return nil, err
	}
	if err := all.push(); err != nil {
		return nil, err
	}
	for range times {
		var out, in []nccl.Move
		for i := range parts {
			if i != own {
				out = append(out, nccl.Move{At: all.element(i * n), Bytes: 4 * n})
				in = append(in, nccl.Move{At: l.received.element(len(in) * n), Bytes: 4 * n})
			}
		}
		if err := l.Exchange(out, in); err != nil {
			return nil, err
		}
		v, err := all.view(own*n, int64(n))
		if err == nil {
			err = l.add(v)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := l.Wait(); err != nil {
		return nil, err
	}
	sum, err := pulled[float32](&all)
	return sum[own*n:][:n], err
}
