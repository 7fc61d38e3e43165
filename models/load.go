package models

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
)

// Check compares the names, shapes and element types of src with the layout: src must have every tensor of the
// layout, in a floating-point type, and no other tensor. One error names all differences, up to a screenful.
func (l *Layout) Check(src tensorSource) error {
	var wrong []string
	screenful, remedy := 8, "fetch both from one place"
	for _, name := range l.names {
		want, _ := l.Find(name)
		t, ok := src.Info(l.InFile(name))
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("missing tensor %q %v", l.InFile(name), want.Shape))
			if strings.HasSuffix(name, "lm_head.weight") {
				remedy = `if the embedding is the head, state "tie_word_embeddings": true; else ` + remedy
			}
		case !slices.Equal(t.Shape, want.Shape):
			wrong = append(wrong, fmt.Sprintf("tensor %q has shape %v, want %v", name, t.Shape, want.Shape))
			if t.Elements == 0 {
				remedy = "the model was saved without gathering the parts of its tensors (DeepSpeed's ZeRO-3): make them with zero_to_fp32.py"
			}
		case t.DType != F32 && t.DType != F16 && t.DType != BF16 && t.DType != F64:
			wrong = append(wrong, fmt.Sprintf("tensor %q holds %s, want F32, F16, BF16 or F64", name, t.TypeName))
		}
	}
	expected := make(map[string]bool, len(l.names))
	for _, name := range l.names {
		expected[l.InFile(name)] = true
	}
	var others []string
	for _, name := range src.Names() {
		t, _ := src.Info(name)
		if !expected[name] {
			others = append(others, name)
			wrong = append(wrong, fmt.Sprintf("unexpected tensor %q %v", name, t.Shape))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	if how := l.describeRenaming(others, len(src.Names())); how != "" {
		wrong, screenful = slices.Insert(wrong, 0, how), 3
		remedy = "a wrapper (of a compiler, several devices, an adapter, a larger model) was saved with it: save the model within, or rename the tensors"
	}
	if n := len(wrong); n > screenful {
		wrong = append(wrong[:screenful], fmt.Sprintf("and %d more", n-screenful))
	}
	return fmt.Errorf("models: %s does not have the tensors that its config describes: %s; %s", src.Path(), strings.Join(wrong, "; "), remedy)
}

// describeRenaming looks for a piece such as "module." that names of others have at or behind their beginning, and that
// makes them names of the layout if it is left out. It describes the most frequent one, with how many of all tensors
// have it; "" if there is none.
func (l *Layout) describeRenaming(others []string, all int) string {
	counts, most := map[string]int{}, ""
names:
	for _, name := range others {
		parts := strings.SplitAfter(name, ".")
		for i := range parts { // the piece is parts i to j-1
			for j := i + 1; j < len(parts); j++ {
				if _, ok := l.places[strings.Join(slices.Concat(parts[:i], parts[j:]), "")]; ok {
					how := fmt.Sprintf("%s %q", [...]string{"begin with", "have within their names"}[min(i, 1)], strings.Join(parts[i:j], ""))
					if counts[how]++; counts[how] > counts[most] {
						most = how
					}
					continue names
				}
			}
		}
	}
	switch counts[most] {
	case 0:
		return ""
	case all:
		return "all tensors " + most
	}
	return fmt.Sprintf("%d of %d tensors %s", counts[most], all, most)
}

// loadChunk is the number of elements that one goroutine reads at a time.
const loadChunk = 4 << 20

// LoadFile is Load of a safetensors file.
func (w *Weights) LoadFile(path string) error {
	f, err := OpenSafetensors(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.Load(f)
}

// Load checks src against the layout and reads every tensor into its place, several at a time.
func (w *Weights) Load(src tensorSource) error {
	if err := w.Layout.Check(src); err != nil {
		return err
	}
	var failed atomic.Pointer[error]
	var parts []func()
	for _, name := range w.Layout.names {
		p := w.Layout.places[name]
		for first := 0; first < p.Size; first += loadChunk {
			parts = append(parts, func() {
				if failed.Load() != nil {
					return
				}
				if err := w.loadPart(src, name, p, first); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			})
		}
	}
	AtOnce(min(4, goruntime.GOMAXPROCS(0)), len(parts), func(i int) { parts[i]() })
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// loadPart reads up to loadChunk elements of a tensor, beginning with element first.
func (w *Weights) loadPart(src tensorSource, name string, p place, first int) error {
	at, n := p.Offset+first, min(p.Size-first, loadChunk)
	if !w.Narrow.Holds(p) {
		return src.ReadFloat32(w.Layout.InFile(name), w.Data[at:at+n], first)
	}
	wide := make([]float32, min(n, 1<<18))
	for done := 0; done < n; done += len(wide) {
		wide = wide[:min(len(wide), n-done)]
		if err := src.ReadFloat32(w.Layout.InFile(name), wide, first+done); err != nil {
			return err
		}
		if i := overflow(wide, w.Narrow.DType); i >= 0 {
			return fmt.Errorf("models: %s: tensor %q: element %d is %g, which %v cannot hold", src.Path(), name, first+done+i, wide[i], w.Narrow.DType)
		}
		w.Narrow.encode(at+done, wide)
	}
	return nil
}
