package models

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// A Spec is one Hugging Face tensor: its name in the safetensors file and its
// shape, row-major.
type Spec struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// A Fused is one matrix as graphs read it. Parts are the Hugging Face tensors whose rows
// it stacks, so that each is a contiguous part of the matrix and needs no copy. A tensor
// that is not fused has one Part of the same name.
type Fused struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	Parts []Spec `json:"parts"`
	// Whole is set if the file has the matrix as one tensor of this name, and none of the
	// Parts. Graphs may still read each part alone.
	Whole bool `json:"whole,omitempty"`
}

// Plain returns the Fused of a single tensor.
func Plain(name string, shape ...int) Fused {
	return Fused{Name: name, Shape: shape, Parts: []Spec{{name, shape}}}
}

// Concat returns the Fused that stacks the rows of parts. The parts must agree in
// every dimension but the first; otherwise NewLayout returns an error.
func Concat(name string, parts ...Spec) Fused {
	f := Fused{Name: name, Parts: parts}
	for i, p := range parts {
		if i == 0 {
			f.Shape = slices.Clone(p.Shape)
		} else if len(f.Shape) > 0 && len(p.Shape) > 0 {
			f.Shape[0] += p.Shape[0]
		}
	}
	return f
}

// A place says where a tensor lies in an arena: Size elements from Offset on.
type place struct {
	Offset, Size int
	Shape        []int
}

// A Layout says where each tensor lies in one arena of float32. It is immutable;
// the arenas of weights, gradients and moments share one Layout.
type Layout struct {
	// Size is the length of the arena in elements, padding included.
	Size int
	// Modules are as in Geometry: files of adapters name their tensors by the modules' paths.
	Modules [2]string

	fused  []Fused
	names  []string
	places map[string]place
}

// align is the granularity, in elements, at which fused tensors start: 64
// bytes, a cache line and the widest vector register.
const align = 16

// maxElements bounds a layout so that byte counts cannot overflow.
const maxElements = 1 << 48

// NewLayout places the tensors one after the other in the order given. A matrix and each of its Parts can be
// found by name. It is an error if a name occurs twice (except that a plain tensor has the same name as its
// only part), if Parts do not add up to their Fused, or if a size is not positive or too large.
func NewLayout(fused []Fused) (*Layout, error) {
	l := &Layout{fused: fused, places: make(map[string]place)}
	for _, f := range fused {
		size, err := elements(f.Shape)
		if err != nil {
			return nil, fmt.Errorf("models: layout of %q: %w", f.Name, err)
		}
		if err := l.addPlace(f.Name, place{l.Size, size, f.Shape}); err != nil {
			return nil, err
		}
		at := l.Size
		if f.Whole { // l.names has the names in files, where a Whole matrix is one tensor
			l.names = append(l.names, f.Name)
		}
		for _, p := range f.Parts {
			n, err := elements(p.Shape)
			if err != nil {
				return nil, fmt.Errorf("models: layout of %q: %w", p.Name, err)
			}
			if len(p.Shape) != len(f.Shape) || !slices.Equal(p.Shape[1:], f.Shape[1:]) {
				return nil, fmt.Errorf("models: layout of %q: part %q has shape %v, which are not rows of %v", f.Name, p.Name, p.Shape, f.Shape)
			}
			if !f.Whole {
				l.names = append(l.names, p.Name)
			}
			if p.Name == f.Name && len(f.Parts) == 1 { // it has its place: that of f
				at += n
				continue
			}
			if err := l.addPlace(p.Name, place{at, n, p.Shape}); err != nil {
				return nil, err
			}
			at += n
		}
		if at != l.Size+size {
			return nil, fmt.Errorf("models: layout of %q: its parts hold %d elements, its shape %v holds %d", f.Name, at-l.Size, f.Shape, size)
		}
		l.Size = (at + align - 1) / align * align
		if l.Size > maxElements {
			return nil, fmt.Errorf("models: layout of %q: more than %d elements in all", f.Name, maxElements)
		}
	}
	return l, nil
}

func (l *Layout) addPlace(name string, p place) error {
	if _, twice := l.places[name]; twice {
		return fmt.Errorf("models: layout has the tensor %q twice", name)
	}
	l.places[name] = p
	return nil
}

// elements returns the product of shape, which must have at least one dimension, all of them positive.
func elements(shape []int) (int, error) {
	if len(shape) == 0 {
		return 0, fmt.Errorf("no shape")
	}
	n := uint64(1)
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if d <= 0 || hi != 0 || lo > maxElements {
			return 0, fmt.Errorf("shape %v: want positive dimensions and at most %d elements", shape, maxElements)
		}
		n = lo
	}
	return int(n), nil
}

// InFile returns the name that files have for a tensor.
func (l *Layout) InFile(name string) string {
	if rest, ok := strings.CutPrefix(name, AdapterPrefix+l.Modules[0]); ok && l.Modules[1] != "" {
		return AdapterPrefix + l.Modules[1] + rest
	}
	return name
}

// Find returns where the tensor of a Hugging Face or fused name lies.
func (l *Layout) Find(name string) (place, bool) {
	p, ok := l.places[name]
	return p, ok
}

// Names returns the Hugging Face names in the arena's order.
func (l *Layout) Names() []string { return l.names }

// ReadNames returns the names of the tensors that layer Programs read, in the arena's order:
// Names with the Parts of matrices that are Whole in their place.
func (l *Layout) ReadNames() (names []string) {
	for _, f := range l.fused {
		for _, p := range f.Parts {
			names = append(names, p.Name)
		}
	}
	return names
}

// Largest returns the tensor with the most elements; among equal ones, the first.
func (l *Layout) Largest() (name string, size int) {
	for _, n := range l.names {
		if p, _ := l.Find(n); p.Size > size {
			name, size = n, p.Size
		}
	}
	return name, size
}

// Fused returns the matrices from which the layout was built, in the arena's order.
func (l *Layout) Fused() []Fused { return l.fused }
