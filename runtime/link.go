package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"onering/models"
	"onering/models/onnx"
	"onering/runtime/nccl"
)

// A division says which part updates which of the weights that a Ring trains.
type division struct {
	part, parts, bucket int     // the arguments of Divide
	bounds              []int   // the first element of each range, and the number of all elements; see cutRanges
	owner               []int   // the part that each range belongs to
	buckets             [][]int // see Buckets
}

// DefaultBucket is how many elements of gradients are worth moving at once: enough that starting a message costs
// little, and few enough that the last transfer, which no computation hides, is short.
const DefaultBucket = 4 << 20

// Divide restricts the ring's Optimizer to a part of the elements, number part (from 0) of parts: it has state for
// them and updates them alone. If Programs read the layers' matrices in 16 bits, the ring has float32 weights only
// for its part. bucket is about how many adjacent elements a part gets; 0 means DefaultBucket. A small bucket changes
// the last bits of the gradients' norm; nothing else changes a result. Call Divide before making anything of the
// ring.
func (r *Ring) Divide(part, parts, bucket int) error {
	if r.env != nil {
		return fmt.Errorf("runtime: the ring is in use: it is divided before anything is made of it")
	}
	r.division = division{part: part, parts: parts, bucket: bucket}
	return nil
}

// Divided reports whether the ring lacks the float32 weights of other parts.
func (r *Ring) Divided() bool {
	from, to := r.Arch.Copied()
	return r.division.parts > 1 && r.Adapter == nil && r.Weights.Narrow == nil && from < to
}

// ownPieces returns the elements that this part updates.
func (s *division) ownPieces() (own []piece) {
	for _, b := range s.buckets {
		if x := (piece{b[s.part], b[s.part+1]}); x.size() > 0 {
			own = append(own, x)
		}
	}
	return own
}

// owns says whether this part updates range i.
func (s *division) owns(i int) bool { return s.owner[i] == s.part }

// divideRanges distributes the ranges between bounds among parts. Each part has a share of every
// bucket of about parts times bucket elements, as even as whole ranges allow, so that no
// part has all its gradients at the end of a backward pass. A bucket has a multiple of parts ranges, except the last.
func divideRanges(bounds []int, part, parts, bucket int) division {
	if bucket <= 0 {
		bucket = DefaultBucket
	}
	s := division{part: part, parts: parts, bucket: bucket, bounds: bounds, owner: make([]int, len(bounds)-1)}
	for first := 0; first < len(s.owner); { // a bucket has the ranges from first to last-1
		last := first + 1
		for last < len(s.owner) && (bounds[last]-bounds[first] < parts*bucket || (last-first)%parts != 0) {
			last++
		}
		cut := []int{bounds[first]} // where each part's share of the bucket begins, and its end
		for k := 1; k <= parts; k++ {
			for first < last && (bounds[first]-cut[0])*parts < (bounds[last]-cut[0])*k { // it begins before k/parts of the bucket
				s.owner[first] = k - 1
				first++
			}
			cut = append(cut, bounds[first])
		}
		s.buckets = append(s.buckets, cut)
	}
	return s
}

// Buckets lists the elements in order, in buckets of which each part has a share: part i has those from b[i]
// (included) to b[i+1] (excluded) of a bucket b. It is empty without parts.
func (o *Optimizer) Buckets() [][]int {
	if o.ring.division.parts <= 1 {
		return nil
	}
	return o.ring.division.buckets
}

// cutRanges cuts the trained elements into the ranges that an update in the memory of e takes at once, and that
// Divide deals out: it returns the first element of each, and the number of all. No range has both elements with a
// 16-bit copy and elements without.
func (r *Ring) cutRanges(e *Env) (bounds []int) {
	total := len(r.Trained().Data)
	edges := []int{total} // where a range must end
	if from, to := r.Arch.Copied(); r.Adapter == nil && from < to {
		edges = []int{from, to, total}
	}
	size := e.memory.elementsAtOnce
	if r.division.bucket > 0 {
		size = min(size, r.division.bucket)
	}
	for from := 0; from < total; {
		bounds = append(bounds, from)
		for from == edges[0] {
			edges = edges[1:]
		}
		from = min(from+size, edges[0])
	}
	return append(bounds, total)
}

// eachRead calls move for the blocks that Programs read, the rounded copy and those in float32, as far as they have
// elements between the first and the last of bounds, with bounds that are clipped to the block.
func (a *arena) eachRead(bounds []int, move func(b block, bounds []int) error) error {
	all, blocks := piece{bounds[0], bounds[len(bounds)-1]}, []block{a.roundedCopy}
	for _, p := range a.readInFloat32 {
		b, err := a.blockOf(p)
		if err != nil {
			return err
		}
		blocks = append(blocks, block{p, b.memory, b.dtype, b.address(p.from)})
	}
	for _, b := range blocks {
		if b.intersect(all).size() == 0 {
			continue
		}
		cut := make([]int, len(bounds))
		for i, x := range bounds {
			cut[i] = min(max(x, b.from), b.to)
		}
		if err := move(b, cut); err != nil {
			return err
		}
	}
	return nil
}

// Spread gives every rank the other ranks' elements that Programs read; rank r owns those
// from bounds[r] to bounds[r+1]-1, and rank is this rank. exchange does the same with
// bytes of the host; rank r owns those from at[r] to at[r+1]-1.
func (e *Env) Spread(w *models.Weights, rank int, bounds []int, exchange func(x []byte, at []int) error) error {
	var spare []byte
	return e.arenaOf(w).eachRead(bounds, func(b block, cut []int) error {
		at := make([]int, len(cut))
		for i, c := range cut {
			at[i] = (c - cut[0]) * b.dtype.Size()
		}
		first, all := b.address(cut[0]), at[len(at)-1] // of the block's elements; their number of bytes
		spare = hostBytes(b.memory, first, all, spare)
		host := unsafe.Pointer(unsafe.SliceData(spare))
		err := b.memory.Download(unsafe.Add(host, at[rank]), unsafe.Add(first, at[rank]), at[rank+1]-at[rank])
		err = errors.Join(err, exchange(spare, at))                    // other ranks wait for this one even after an error
		for _, x := range [][2]int{{0, at[rank]}, {at[rank+1], all}} { // what others own, before and behind this rank's bytes
			err = errors.Join(err, b.memory.Upload(unsafe.Add(first, x[0]), unsafe.Add(host, x[0]), x[1]-x[0]))
		}
		return err
	})
}

// SpreadBytes returns a function that says how many bytes Spread moves of a range of trained weights, which does not
// include the element to: 4 for each element. But in a divided Ring without an adapter matrices that have a rounded copy
// move only as that copy, and other elements in the copy's range, such as norms, in both types.
func SpreadBytes(arch models.Architecture, divided bool) func(from, to int) int64 {
	read, copied, copiedSize := []piece{{0, math.MaxInt}}, piece{}, arch.Geometry().Compute.Size()
	first, end := arch.Copied()
	if divided && arch.AdapterLayout() == nil {
		copied = piece{first, end}
		read = read[0].without(matrices(arch.Layout(), first, end))
	}
	return func(from, to int) int64 {
		all := piece{from, to}
		bytes := all.intersect(copied).size() * copiedSize
		for _, p := range read {
			bytes += 4 * all.intersect(p).size()
		}
		return int64(bytes)
	}
}

// NCCL returns Backend.NCCL of the device.
func (e *Env) NCCL(ctx context.Context) (library *nccl.Library, card string, err error) {
	if e.memory.NCCL == nil {
		return nil, "", fmt.Errorf("the device is %s, and NCCL links CUDA devices", e.memory)
	}
	return e.memory.NCCL(ctx)
}

// A Link moves elements of arenas between the devices of several ranks and adds them there. One goroutine at a time
// uses it, with the same calls on all ranks. Calls take effect in order with runs and may return before they are
// complete. Any goroutine may call Abort and Check.
type Link struct {
	*nccl.Comm
	env        *Env
	rank, size int
	received   buffer   // elements that other ranks have sent, to be added
	sum        *Binding // of sumProgram
}

// Link joins this device with those of the other ranks, which all call it with the same id. It allocates all memory
// of Add, since a rank without memory in a step would stop all ranks.
func (e *Env) Link(library *nccl.Library, id []byte, rank, size int) (l *Link, err error) {
	l = &Link{env: e, rank: rank, size: size, received: e.buffer(models.F32)}
	if _, err = l.received.resize(DefaultBucket); err == nil {
		l.sum, err = loadBinding(e, sumProgram(max(2, size), rank)) // a single rank adds nothing
	}
	if err == nil {
		l.Comm, err = library.Join(id, rank, size)
	}
	if err == nil { // the first message to a rank makes the connection, which takes memory, too
		one := make([]int, size+1) // bounds of one element for each rank
		for i := range one {
			one[i] = i
		}
		one[size]++                                       // the last rank has two: for uneven numbers Spread calls Exchange, too
		out, in, _ := l.moves(l.received.element, 4, one) // 4: bytes of a float32
		err = errors.Join(l.Exchange(out, in), l.Wait())
	}
	if err == nil {
		return l, nil
	}
	if l.Comm != nil {
		l.Abort()
	}
	l.release()
	return nil, err
}

// sumProgram adds n tensors in order, ((x0 + x1) + x2) + ..., onto tensor number own.
func sumProgram(n, own int) models.Program {
	p := models.Program{Name: "link.sum", Outputs: []models.Port{portOf(portResults, models.F32, "n")},
		Alias: map[string]string{portResults: numbered(portFrom, own)}}
	before := numbered(portFrom, 0)
	for i := range n {
		in, out := numbered(portFrom, i), numbered(portResults, i)
		p.Inputs = append(p.Inputs, portOf(in, models.F32, "n"))
		if i == n-1 {
			out = portResults
		}
		if i > 0 {
			p.Nodes = append(p.Nodes, onnx.Node{Op: "Add", Inputs: []string{before, in}, Outputs: []string{out}})
			before = out
		}
	}
	return p
}

// Add sums elements over all ranks, in the order of the ranks: those from from[r] to to[r]-1 on rank r, in place. This
// rank sends each other one that rank's, and then sums its own.
func (l *Link) Add(w *models.Weights, from, to []int) error {
	n := to[l.rank] - from[l.rank]
	a, err := l.env.arenaOf(w).blockOf(piece{from[0], to[len(to)-1]})
	if err != nil {
		return err
	}
	if _, err := l.received.resize(int64(max(1, n*(l.size-1)))); err != nil {
		return err
	}
	var out, in []nccl.Move
	for r := range l.size {
		if r != l.rank {
			out = append(out, nccl.Move{Peer: r, At: a.address(from[r]), Bytes: 4 * (to[r] - from[r])})
			in = append(in, nccl.Move{Peer: r, At: l.received.element(len(in) * n), Bytes: 4 * n})
		}
	}
	if err := l.Exchange(out, in); err != nil || n == 0 { // without elements of its own it has still sent the others'
		return err
	}
	own, err := a.view(from[l.rank], int64(n))
	if err != nil {
		return err
	}
	return l.add(own)
}

// add adds the tensors that the other ranks have sent to own, in the order of ranks. It closes own.
func (l *Link) add(own *Value) error {
	b, n, other := l.sum.begin(), own.shape[0], 0
	defer closeValues(own)
	for r := range l.size {
		v, err := own, error(nil)
		if r != l.rank {
			v, err = l.received.view(other*int(n), n)
			defer closeValues(v)
			other++
		}
		b.in(numbered(portFrom, r), v, err)
	}
	b.out(portResults, own, nil)
	return b.run()
}

// Spread is Env.Spread between devices. It returns how many bytes of this rank each other rank received.
func (l *Link) Spread(w *models.Weights, bounds []int) (own int, err error) {
	var out, in []nccl.Move // of blocks of which ranks own different numbers of elements
	err = l.env.arenaOf(w).eachRead(bounds, func(b block, cut []int) error {
		own += (cut[l.rank+1] - cut[l.rank]) * b.dtype.Size()
		o, i, even := l.moves(b.address, b.dtype.Size(), cut)
		if even {
			return l.Gather(b.address(cut[0]), o[0].Bytes) // one call, since all ranks own as many
		}
		out, in = append(out, o...), append(in, i...)
		return nil
	})
	if err == nil && len(out) > 0 {
		err = l.Exchange(out, in)
	}
	return own, err
}

// moves lists the transfers that give every rank the elements between the bounds of each
// rank. even says whether all ranks have equally many.
func (l *Link) moves(address func(element int) unsafe.Pointer, size int, bounds []int) (out, in []nccl.Move, even bool) {
	own := bounds[l.rank+1] - bounds[l.rank]
	even = l.size > 1
	for r := range l.size {
		n := bounds[r+1] - bounds[r]
		even = even && n == own
		if r != l.rank {
			out = append(out, nccl.Move{Peer: r, At: address(bounds[l.rank]), Bytes: own * size})
			in = append(in, nccl.Move{Peer: r, At: address(bounds[r]), Bytes: n * size})
		}
	}
	return out, in, even
}

// Wait returns when all earlier calls are complete, with their error.
func (l *Link) Wait() error { return errors.Join(l.env.memory.Wait(), l.Check()) }

// Close frees what the Link holds. All ranks call it.
func (l *Link) Close() error {
	l.release()
	return l.Comm.Close()
}

func (l *Link) release() {
	closeSessions(l.sum)
	l.received.close()
}
