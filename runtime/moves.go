package runtime

// #include "ort.h"
import "C"

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"onering/models"
	"onering/models/onnx"
)

// The graphs of this file are for devices whose provider only copies whole buffers, and
// where each run and each copy is slow: they copy and clear memory, or are other graphs
// with fewer inputs, outputs and runs.

// movesPrefix begins the names of Programs that copy and clear.
const movesPrefix = "moves."

// Names of inputs and outputs. Elements of any type are moved as int32, which no kernel
// changes. Each of several buffers has its number after the name.
const (
	portFrom    = "from"     // int32 [F,u]
	portFromIDs = "from_ids" // int64 [n], rows to copy
	portTo      = "to"       // int32 [M,u]
	portToIDs   = "to_ids"   // int64 [n,1], where the rows go
	portToOut   = "to_out"   // int32 [M,u], onto portTo
	portSize    = "size"     // int64 [1]
	portZeros   = "zeros"    // float32 [n]
	portNumber  = "number"   // float32 [1]
	portRounded = "rounded"  // float32 [1]
	portScalars = "scalars"  // float32 [m]
	portResults = "results"  // float32 [k*B]
	portColumns = "columns"  // float32 [B,w]
)

// numbered returns the name of an input or output of buffer i.
func numbered(port string, i int) string { return fmt.Sprint(port, ".", i) }

// copyProgram copies the same rows of n buffers: from, from_ids, to, to_ids -> to_out. No
// row is written twice. With "within" set, it copies inside of "to" and has no "from".
func copyProgram(n int, within bool) models.Program {
	p := models.Program{Name: "moves.copy", Alias: map[string]string{}}
	p.Inputs = []models.Port{portOf(portFromIDs, models.I64, "n"), portOf(portToIDs, models.I64, "n", "1")}
	if within {
		p.Name = "moves.within"
	}
	for i := range n {
		from, to, out, rows := numbered(portFrom, i), numbered(portTo, i), numbered(portToOut, i), numbered("rows", i)
		// the sizes of each buffer have their own letters
		size, width := fmt.Sprint("M", i), fmt.Sprint("u", i)
		if within {
			from = to
		} else {
			p.Inputs = append(p.Inputs, portOf(from, models.I32, fmt.Sprint("F", i), width))
		}
		p.Inputs = append(p.Inputs, portOf(to, models.I32, size, width))
		p.Outputs = append(p.Outputs, portOf(out, models.I32, size, width))
		p.Nodes = append(p.Nodes,
			onnx.Node{Op: "Gather", Inputs: []string{from, portFromIDs}, Outputs: []string{rows}},
			onnx.Node{Op: "ScatterND", Inputs: []string{to, portToIDs, rows}, Outputs: []string{out}})
		p.Alias[out] = to
	}
	return p
}

// clearProgram makes zeros of n buffers: size -> zeros.
func clearProgram(n int) models.Program {
	p := models.Program{Name: "moves.clear", Constants: []onnx.Tensor{onnx.Float32s("zero", []float32{0}, 1)}}
	for i := range n {
		p.Nodes = append(p.Nodes, onnx.Node{Op: "Expand", Inputs: []string{"zero", numbered(portSize, i)}, Outputs: []string{numbered(portZeros, i)}})
		p.Inputs = append(p.Inputs, portOf(numbered(portSize, i), models.I64, "1"))
		p.Outputs = append(p.Outputs, portOf(numbered(portZeros, i), models.F32, fmt.Sprint("n", i)))
	}
	return p
}

// apart returns a Program for a device whose kernels may not read what they write: a node
// that reads an input and writes onto it reads a copy instead. The copy is a double
// negation, which ONNX Runtime does not remove.
func apart(p models.Program) models.Program {
	var copies []onnx.Node // copies come first, as they read only inputs
	copied := map[string]bool{}
	nodes := slices.Clone(p.Nodes)
	for i := range nodes {
		over := map[string]bool{}
		for _, out := range nodes[i].Outputs {
			over[p.Alias[out]] = p.Alias[out] != ""
		}
		nodes[i].Inputs = slices.Clone(nodes[i].Inputs)
		for k, in := range nodes[i].Inputs {
			if !over[in] {
				continue
			}
			if !copied[in] {
				copied[in] = true
				copies = append(copies, onnx.Node{Op: "Neg", Inputs: []string{in}, Outputs: []string{in + ".minus"}},
					onnx.Node{Op: "Neg", Inputs: []string{in + ".minus"}, Outputs: []string{in + ".copy"}})
			}
			nodes[i].Inputs[k] = in + ".copy"
		}
	}
	p.Nodes = append(copies, nodes...)
	return p
}

// scalarsOf returns the names of the inputs without dimensions, in the order of portScalars.
func scalarsOf(p models.Program) (names []string) {
	for _, in := range p.Inputs {
		if len(in.Shape) == 0 {
			names = append(names, in.Name)
		}
	}
	slices.Sort(names)
	return names
}

// several returns a Program that does for n tensors, or slices of elements, what p does
// for one: each node stands in it n times, so the bits are those of n runs. If each run
// is submitted to the device separately, one run is faster. Inputs without dimensions are
// the same for all: they are the elements of portScalars; see scalarsOf. The outputs
// joined, of one element each, are one of shape [n]. Other inputs and outputs, and
// varying sizes, have their number after the name.
func several(p models.Program, n int, joined ...string) models.Program {
	out := models.Program{Name: p.Name, Constants: slices.Clone(p.Constants), Alias: map[string]string{}, Options: p.Options}
	shared := map[string]bool{"": true} // an empty name is an omitted input
	for _, c := range p.Constants {
		shared[c.Name] = true
	}
	scalars := scalarsOf(p)
	for i, name := range scalars {
		shared[name] = true
		index := onnx.Int64s(numbered(portScalars, i), []int64{int64(i)})
		index.Dims = nil
		out.Constants = append(out.Constants, index)
		out.Nodes = append(out.Nodes, onnx.Node{Op: "Gather", Inputs: []string{portScalars, index.Name}, Outputs: []string{name}})
	}
	if len(scalars) > 0 {
		out.Inputs = append(out.Inputs, portOf(portScalars, models.F32, fmt.Sprint(len(scalars))))
	}
	for i := range n {
		for _, in := range p.Inputs {
			if !shared[in.Name] {
				out.Inputs = append(out.Inputs, renamed(in, i))
			}
		}
		for _, x := range p.Outputs {
			if !slices.Contains(joined, x.Name) {
				out.Outputs = append(out.Outputs, renamed(x, i))
			}
		}
		for to, from := range p.Alias {
			out.Alias[numbered(to, i)] = numbered(from, i)
		}
		names := func(of ...string) (names []string) {
			for _, name := range of {
				if !shared[name] {
					name = numbered(name, i)
				}
				names = append(names, name)
			}
			return names
		}
		for _, node := range p.Nodes {
			node.Name, node.Inputs, node.Outputs = names(node.Name)[0], names(node.Inputs...), names(node.Outputs...)
			out.Nodes = append(out.Nodes, node)
		}
	}
	join(&out, n, joined)
	return out
}

// join joins the outputs of n copies, of one element each, in one output of shape [n] of
// a Program.
func join(p *models.Program, n int, outputs []string) {
	const one = "moves.one"
	if len(outputs) > 0 {
		p.Constants = append(p.Constants, onnx.Int64s(one, []int64{1}))
	}
	for _, name := range outputs {
		p.Outputs = append(p.Outputs, portOf(name, models.F32, fmt.Sprint(n)))
		all := onnx.Node{Op: "Concat", Outputs: []string{name}, Attrs: []onnx.Attr{{Name: "axis", Value: int64(0)}}}
		for i := range n {
			part := numbered(name, i)
			all.Inputs = append(all.Inputs, part+".one")
			p.Nodes = append(p.Nodes, onnx.Node{Op: "Reshape", Inputs: []string{part, one}, Outputs: []string{part + ".one"}})
		}
		p.Nodes = append(p.Nodes, all)
	}
}

// together returns a Program whose outputs of the names given are one output portResults,
// in float32, one after the other and row by row: it takes one copy to the host in place
// of several. Integers must be less than 2^24.
func together(p models.Program, names ...string) models.Program {
	together := p
	together.Outputs, together.Nodes, together.Constants = nil, slices.Clone(p.Nodes), slices.Clone(p.Constants)
	add := func(op, from, to string, attrs ...onnx.Attr) {
		together.Nodes = append(together.Nodes, onnx.Node{Op: op, Inputs: strings.Fields(from), Outputs: []string{to}, Attrs: attrs})
	}
	size := fmt.Sprintf("%d*B", len(names))
	flat := map[string]string{}
	for _, out := range p.Outputs {
		if !slices.Contains(names, out.Name) {
			together.Outputs = append(together.Outputs, out)
			continue
		}
		flat[out.Name] = out.Name + ".float"
		add("Cast", out.Name, out.Name+".float", onnx.Attr{Name: "to", Value: int64(models.F32)})
		if len(out.Shape) > 1 {
			if size != "all" {
				together.Constants = append(together.Constants, onnx.Int64s(portResults+".flat", []int64{-1}))
			}
			size, flat[out.Name] = "all", out.Name+".flat"
			add("Reshape", out.Name+".float "+portResults+".flat", out.Name+".flat")
		}
	}
	var parts []string
	for _, name := range names {
		parts = append(parts, flat[name])
	}
	add("Concat", strings.Join(parts, " "), portResults, onnx.Attr{Name: "axis", Value: int64(0)})
	together.Outputs = append(together.Outputs, portOf(portResults, models.F32, size))
	return together
}

// beside returns a Program whose integer inputs of the names given, [B,...] each with sizes
// that are numbers behind B, are columns of one input portColumns, in that order and in
// float32: it takes one copy to the device in place of several. Integers must be from 0 to
// 2^24. The last column is also an output last [B], which another run can read on the device.
func beside(p models.Program, last string, names ...string) (models.Program, error) {
	split := onnx.Node{Op: "Split", Inputs: []string{portColumns, portColumns + ".widths"}, Attrs: []onnx.Attr{{Name: "axis", Value: int64(1)}}}
	beside := p
	beside.Inputs, beside.Constants = nil, slices.Clone(p.Constants)
	var nodes []onnx.Node
	var widths []int64
	total, rows := int64(0), "B"
	column := func(name, out string, sizes ...int64) {
		width := int64(1)
		for _, n := range sizes {
			width *= n
		}
		total, widths = total+width, append(widths, width)
		split.Outputs = append(split.Outputs, name+".column")
		beside.Constants = append(beside.Constants, onnx.Int64s(name+".sizes", append([]int64{-1}, sizes...)))
		nodes = append(nodes, onnx.Node{Op: "Reshape", Inputs: []string{name + ".column", name + ".sizes"}, Outputs: []string{out}})
	}
	for _, name := range names {
		i := slices.IndexFunc(p.Inputs, func(in models.Port) bool { return in.Name == name })
		if i < 0 {
			return p, fmt.Errorf("runtime: program %q has no input %q", p.Name, name)
		}
		in := p.Inputs[i]
		var sizes []int64
		for _, size := range in.Shape[1:] {
			n, err := strconv.ParseInt(size, 10, 64)
			if err != nil {
				return p, fmt.Errorf("runtime: program %q: the size %s of input %q varies", p.Name, size, name)
			}
			sizes = append(sizes, n)
		}
		rows = in.Shape[0]
		column(name, name+".shaped", sizes...)
		nodes = append(nodes, cast(name+".shaped", name, in.DType))
	}
	column(last, last)
	beside.Constants = append(beside.Constants, onnx.Int64s(portColumns+".widths", widths))
	beside.Nodes = slices.Concat([]onnx.Node{split}, nodes, p.Nodes)
	beside.Inputs = []models.Port{portOf(portColumns, models.F32, rows, fmt.Sprint(total))}
	for _, in := range p.Inputs {
		if !slices.Contains(names, in.Name) {
			beside.Inputs = append(beside.Inputs, in)
		}
	}
	beside.Outputs = append([]models.Port{portOf(last, models.F32, rows)}, p.Outputs...)
	return beside, nil
}

// renamed returns the port of copy i, with its own letters.
func renamed(p models.Port, i int) models.Port {
	var sizes []string
	for _, size := range p.Shape {
		if _, err := strconv.Atoi(size); err != nil {
			size += fmt.Sprint(i)
		}
		sizes = append(sizes, size)
	}
	return portOf(numbered(p.Name, i), p.DType, sizes...)
}

// cast is a node that converts a value to a type.
func cast(from, to string, t models.DType) onnx.Node {
	return onnx.Node{Op: "Cast", Inputs: []string{from}, Outputs: []string{to}, Attrs: []onnx.Attr{{Name: "to", Value: int64(t)}}}
}

// halfProgram rounds a number to float16 and back on a device that computes in float16:
// number -> rounded.
func halfProgram() models.Program {
	return models.Program{
		Name: "moves.half",
		Nodes: []onnx.Node{
			cast(portNumber, "half", models.F16),
			{Op: "Add", Inputs: []string{"half", "half"}, Outputs: []string{"twice"}},
			{Op: "Sub", Inputs: []string{"twice", "half"}, Outputs: []string{"once"}},
			cast("once", portRounded, models.F32),
		},
		Inputs:  []models.Port{portOf(portNumber, models.F32, "1")},
		Outputs: []models.Port{portOf(portRounded, models.F32, "1")},
	}
}

// portOf makes a port; sizes are letters or numbers.
func portOf(name string, t models.DType, sizes ...string) models.Port {
	return models.Port{Name: name, DType: t, Shape: sizes}
}

// graphMoves is the Mover of a device whose provider only copies whole buffers between it
// and the host: graphs copy and clear on the device.
type graphMoves struct {
	env      *Env // the Env with the memory
	memory   *memory
	programs map[moveKind]*Binding
	sizes    []buffer // int64 [1], sizes of buffers to clear
	from, to buffer   // int64 [n], the rows that CopyRuns reads and writes
}

// A moveKind has what distinguishes Programs that copy and clear.
type moveKind struct {
	buffers        int
	within, clears bool
}

// mostCopied is the largest number of buffers that one run copies from. A run needs
// memory for a second copy of them.
const mostCopied = 32

// load makes the sessions, which belong to the Env with the memory. It returns the first.
func (g *graphMoves) load(e *Env) (*Binding, error) {
	g.env, g.programs = e, map[moveKind]*Binding{}
	g.from, g.to = hostBuffer(models.I64), hostBuffer(models.I64)
	return g.binding(moveKind{buffers: 1, clears: true})
}

// binding returns the binding of a Program.
func (g *graphMoves) binding(kind moveKind) (*Binding, error) {
	if b := g.programs[kind]; b != nil {
		return b, nil
	}
	p := clearProgram(kind.buffers)
	if !kind.clears {
		p = copyProgram(kind.buffers, kind.within)
	}
	b, err := loadBinding(g.env, p)
	if err == nil {
		g.programs[kind] = b
	}
	return b, err
}

func (g *graphMoves) close() {
	closeBuffers(&g.from, &g.to)
	closeAll(g.sizes)
	for _, b := range g.programs {
		closeSessions(b)
	}
	g.programs, g.sizes = nil, nil
}

// Zero implements Mover, in one run.
func (g *graphMoves) Zero(at []Place, bytes []int) error {
	binding, err := g.binding(moveKind{buffers: len(at), clears: true})
	if err != nil {
		return err
	}
	for len(g.sizes) < len(at) {
		g.sizes = append(g.sizes, hostBuffer(models.I64))
	}
	b := binder{b: binding}
	for i := range at {
		n := int64(bytes[i] / 4)
		v, err := newValue(g.memory, models.F32, at[i].At, bytes[i], []int64{n})
		if err != nil {
			return err
		}
		defer v.Close()
		copy(fill[int64](&b, numbered(portSize, i), &g.sizes[i], 1), []int64{n})
		b.out(numbered(portZeros, i), v, nil)
	}
	return b.run()
}

// CopyRuns implements Mover. It counts in rows of a size that divides all sizes. If the
// end of a buffer is less than a row and no copy reaches it, it is left out.
func (g *graphMoves) CopyRuns(to, from []Place, runs []Runs) error {
	for len(to) > 0 {
		// Buffers with the same row numbers are copied together.
		n := 1
		for n < min(len(to), mostCopied) && to[n].First == to[0].First && from[n].First == from[0].First && (to[n].Buffer == from[n].Buffer) == (to[0].Buffer == from[0].Buffer) {
			n++
		}
		if err := g.copyAlike(to[:n], from[:n], runs); err != nil {
			return err
		}
		to, from = to[n:], from[n:]
	}
	return nil
}

// copyAlike copies such buffers in one run.
func (g *graphMoves) copyAlike(to, from []Place, runs []Runs) error {
	row, n := divisor(to[0].First, from[0].First), 0
	for _, r := range runs {
		row = divisor(row, r.To, r.Stride, r.From, r.FromStride, r.Width)
	}
	if row%4 != 0 {
		return fmt.Errorf("copies in units of %d bytes", row)
	}
	for _, r := range runs {
		n += r.Count * r.Width / row
	}
	kind := moveKind{buffers: len(to), within: to[0].Buffer == from[0].Buffer}
	binding, err := g.binding(kind)
	if err != nil {
		return err
	}
	b := binder{b: binding}
	ids := fill[int64](&b, portFromIDs, &g.from, int64(n))
	places := fill[int64](&b, portToIDs, &g.to, int64(n), 1)
	if b.err != nil {
		return b.err
	}
	i := 0
	for _, r := range runs {
		r.Each(func(target, source int) {
			for k := range r.Width / row {
				ids[i], places[i] = int64((from[0].First+source)/row+k), int64((to[0].First+target)/row+k)
				i++
			}
		})
	}
	var tables []*Value
	defer func() { closeValues(tables...) }()
	table := func(p Place) *Value {
		v, err := g.table(p, row)
		if b.err == nil {
			b.err = err
		}
		if err == nil {
			tables = append(tables, v)
		}
		return v
	}
	for i := range to {
		if !kind.within {
			b.in(numbered(portFrom, i), table(from[i]), nil)
		}
		v := table(to[i])
		b.in(numbered(portTo, i), v, nil)
		b.out(numbered(portToOut, i), v, nil)
	}
	return b.run()
}

// table returns the whole rows of a place's buffer as a matrix of int32.
func (g *graphMoves) table(p Place, row int) (*Value, error) {
	n := p.Bytes / row
	return newValue(g.memory, models.I32, p.At, n*row, []int64{int64(n), int64(row / 4)})
}

// divisor is the greatest common divisor.
func divisor(x ...int) int {
	a := 0
	for _, b := range x {
		for b != 0 {
			a, b = b, a%b
		}
	}
	return a
}

// ortBuffers is the Driver of a device whose buffers have handles: ONNX Runtime allocates
// them, and copies between the host and their beginnings.
type ortBuffers struct {
	memory    *memory
	allocator *C.OrtAllocator // the allocator of a session
	fence     Place           // a buffer that no run writes
}

// open takes the allocator that a session has.
func (d *ortBuffers) open(s *Session) error {
	err := check(C.onering_allocator(s.ptr, d.memory.info, &d.allocator))
	if err == nil {
		d.fence.Buffer, err = d.Alloc(d.memory.Grain)
	}
	return err
}

func (d *ortBuffers) Alloc(bytes int) (buffer unsafe.Pointer, err error) {
	d.memory.do(func() { err = check(C.onering_allocate(d.allocator, C.size_t(bytes), &buffer)) })
	return buffer, err
}

func (d *ortBuffers) Free(buffer unsafe.Pointer) {
	d.memory.do(func() { _ = check(C.onering_deallocate(d.allocator, buffer)) }) // the call gives no error
}

func (d *ortBuffers) Write(to Place, from []byte) error {
	return d.copy(to.Buffer, from, func(device, host *C.OrtValue) *C.OrtStatus { return C.onering_copy(process.env, host, device) })
}

func (d *ortBuffers) Read(to []byte, from Place) error {
	return d.copy(from.Buffer, to, func(device, host *C.OrtValue) *C.OrtStatus { return C.onering_copy(process.env, device, host) })
}

// copy calls f with byte tensors over the beginning of a buffer and over bytes of the host.
func (d *ortBuffers) copy(buffer unsafe.Pointer, data []byte, f func(device, host *C.OrtValue) *C.OrtStatus) (err error) {
	d.memory.do(func() {
		var device, local *C.OrtValue
		if device, err = rawTensor(d.memory.info, buffer, len(data)); err != nil {
			return
		}
		defer C.onering_release_value(device)
		if local, err = rawTensor(host.info, unsafe.Pointer(unsafe.SliceData(data)), len(data)); err != nil {
			return
		}
		defer C.onering_release_value(local)
		err = check(f(device, local))
	})
	return err
}

// rawTensor returns a tensor of bytes, which the caller releases.
func rawTensor(info *C.OrtMemoryInfo, at unsafe.Pointer, bytes int) (v *C.OrtValue, err error) {
	shape := C.int64_t(bytes)
	return v, check(C.onering_value(info, at, C.size_t(bytes), &shape, 1, C.int(models.U8), &v))
}

// Wait reads from a buffer, which waits for all work queued before.
func (d *ortBuffers) Wait() error { return d.Read(make([]byte, d.memory.Grain), d.fence) }

func (d *ortBuffers) Close() {
	if d.allocator != nil {
		if d.fence.Buffer != nil {
			d.Free(d.fence.Buffer)
		}
		C.onering_release_allocator(d.allocator)
		d.allocator = nil
	}
}
