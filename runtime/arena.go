package runtime

import (
	"fmt"
	"unsafe"

	"onering/models"
)

// An arena is what lasts as long as a training run, where sessions find it, with
// a Value for each named tensor: the weights, their gradients, the moments of an
// optimizer, and 16-bit copies of weights. Its elements are those of a
// models.Weights, all or some. A memory that aliases holds them once. In any
// other memory the host's elements are as of the last download.
type arena struct {
	memory   memory
	weights  *models.Weights
	from, to int          // which of the weights' elements it holds
	dtype    models.DType // F32, or the type that a copy is rounded to
	at       unsafe.Pointer
	tensors  map[string]*Value // by plain and by fused name, once nameTensors was called
	rounded  *arena            // the 16-bit copy of some elements; nil where no graph reads one
	env      *Env              // whose Upload and Download know it; nil for the arenas of none
}

// hostArena is an arena of the host's own elements.
func hostArena(w *models.Weights) *arena {
	return &arena{memory: host, weights: w, to: len(w.Data), dtype: models.F32, at: unsafe.Pointer(unsafe.SliceData(w.Data))}
}

// hold gives the sessions of e the elements of w; fresh ones are zero and are not
// copied. From then on Upload and Download know w.
func (e *Env) hold(w *models.Weights, fresh bool) (*arena, error) {
	a := hostArena(w)
	a.env = e
	e.arenas.Store(w, a)
	if e.memory.aliases() {
		return a, nil
	}
	a.memory, a.at = e.memory, nil
	at, err := e.memory.alloc(a.bytes())
	if err != nil {
		a.close()
		return nil, fmt.Errorf("runtime: %.2f GB on %s: %w", float64(a.bytes())*1e-9, e.memory, err)
	}
	a.at = at
	if fresh {
		err = a.zero()
	} else {
		err = a.upload()
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// held is the arena that hold made of w, else the host's elements.
func (e *Env) held(w *models.Weights) *arena {
	if a, ok := e.arenas.Load(w); ok {
		return a.(*arena)
	}
	return hostArena(w)
}

// Download makes w, the weights of a Ring, the gradients of a Learner or the
// moments of an Optimizer, what they are on the device. On the CPU they are that
// already.
func (e *Env) Download(w ...*models.Weights) error {
	for _, w := range w {
		if err := e.held(w).download(); err != nil {
			return fmt.Errorf("runtime: copying from the device: %w", err)
		}
	}
	return nil
}

// Upload makes what sessions read, where a Ring, a Learner or an Optimizer has w,
// the elements of w. On the CPU only 16-bit copies are made anew.
func (e *Env) Upload(w ...*models.Weights) error {
	for _, w := range w {
		if err := e.held(w).upload(); err != nil {
			return fmt.Errorf("runtime: copying to the device: %w", err)
		}
	}
	return nil
}

// Forget gives back the host's memory of w where a Ring, a Learner or an Optimizer
// has it on a device: until the next Download the host's elements are unknown.
// On the CPU there is nothing to do.
func (e *Env) Forget(w ...*models.Weights) {
	for _, w := range w {
		if !e.held(w).memory.aliases() {
			w.Forget()
		}
	}
}

// bytes is the size of all elements.
func (a *arena) bytes() int { return (a.to - a.from) * a.dtype.Size() }

// holds tells whether the arena has the elements from and up to to.
func (a *arena) holds(from, to int) bool { return a.from <= from && to <= a.to }

// address is where element i of the weights lies.
func (a *arena) address(i int) unsafe.Pointer {
	return unsafe.Add(a.at, (i-a.from)*a.dtype.Size())
}

// view returns a Value over the elements of the weights from first on, which the
// caller closes.
func (a *arena) view(first int, shape ...int64) (*Value, error) {
	n, err := sizeOf(a.dtype, shape)
	if err != nil {
		return nil, err
	}
	if !a.holds(first, first+n/a.dtype.Size()) {
		return nil, fmt.Errorf("runtime: a tensor of shape %v at %d of elements %d to %d", shape, first, a.from, a.to)
	}
	return newValue(a.memory, a.dtype, a.address(first), n, shape)
}

// nameTensors makes the Value of each tensor that lies within the arena.
func (a *arena) nameTensors() error {
	a.tensors = make(map[string]*Value)
	l := a.weights.Layout
	names := append([]string{}, l.Names()...)
	for _, f := range l.Fused() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		p, ok := l.Find(name)
		if !ok {
			return fmt.Errorf("runtime: the layout has no tensor %q", name)
		}
		if a.tensors[name] != nil || !a.holds(p.Offset, p.Offset+p.Size) {
			continue
		}
		v, err := a.view(p.Offset, int64s(p.Shape)...)
		if err != nil {
			return fmt.Errorf("runtime: tensor %q: %w", name, err)
		}
		a.tensors[name] = v
	}
	return nil
}

// round gives the arena its copy of the elements from and up to to in 16 bits.
func (a *arena) round(d models.DType, from, to int) error {
	c := &arena{memory: a.memory, weights: a.weights, from: from, to: to, dtype: d}
	var err error
	if c.at, err = c.memory.alloc(c.bytes()); err != nil {
		return fmt.Errorf("runtime: %.2f GB on %s: %w", float64(c.bytes())*1e-9, c.memory, err)
	}
	a.rounded = c
	if err := c.upload(); err != nil {
		return err
	}
	return c.nameTensors()
}

// roundAtOnce is how many elements are rounded on their way to a device at once.
const roundAtOnce = 1 << 22

// upload makes the sessions' elements those of the host, rounded to the arena's
// type, and those of its 16-bit copy too.
func (a *arena) upload() error {
	if a.dtype == models.F32 {
		if err := a.memory.upload(a.at, unsafe.Pointer(unsafe.SliceData(a.weights.Data)), a.bytes()); err != nil || a.rounded == nil {
			return err
		}
		return a.rounded.upload()
	}
	var part []byte
	for first := a.from; first < a.to; first += roundAtOnce {
		data := a.weights.Data[first:min(first+roundAtOnce, a.to)]
		part = mirror(a.memory, a.address(first), len(data)*a.dtype.Size(), part)
		models.Encode(part, data, a.dtype)
		if err := a.memory.upload(a.address(first), unsafe.Pointer(unsafe.SliceData(part)), len(part)); err != nil {
			return err
		}
	}
	return nil
}

// download makes the host's elements those of the sessions.
func (a *arena) download() error {
	return a.memory.download(unsafe.Pointer(unsafe.SliceData(a.weights.Data)), a.at, a.bytes())
}

func (a *arena) zero() error { return a.memory.zero(a.at, a.bytes()) }

// close frees what the arena has besides the host's elements. A nil arena has
// nothing.
func (a *arena) close() {
	if a == nil {
		return
	}
	for _, v := range a.tensors {
		v.Close()
	}
	a.rounded.close()
	if a.env != nil {
		a.env.arenas.Delete(a.weights)
	}
	if a.at != nil {
		a.memory.free(a.at)
	}
	*a = arena{memory: a.memory, weights: a.weights, dtype: a.dtype}
}

func int64s(shape []int) []int64 {
	out := make([]int64, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}
