package models

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestWeights(t *testing.T) {
	l, err := NewLayout([]Fused{
		Plain("embed", 3, 5),
		Concat("qkv", Spec{"q", []int{4, 2}}, Spec{"k", []int{2, 2}}, Spec{"v", []int{2, 2}}),
		Plain("norm", 5),
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWeights(l)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * align; l.Size != want || len(w.Data) != want {
		t.Errorf("size %d, data %d, want %d", l.Size, len(w.Data), want)
	}
	if got := l.Names(); !slices.Equal(got, []string{"embed", "q", "k", "v", "norm"}) {
		t.Errorf("names %q", got)
	}
	qkv, shape, ok := w.View("qkv")
	if !ok || !slices.Equal(shape, []int{8, 2}) || len(qkv) != 16 {
		t.Fatalf("qkv: %d elements, shape %v, %v", len(qkv), shape, ok)
	}
	k, _, _ := w.View("k")
	k[0] = 7
	if qkv[8] != 7 {
		t.Error("k is not a view of rows 4 and 5 of qkv")
	}
	if cap(k) != 4 {
		t.Errorf("an append to k could run into v: capacity %d", cap(k))
	}
	if _, _, ok := w.View("o"); ok {
		t.Error("a view of a tensor that is not there")
	}
	if err := w.Close(); err != nil || w.Data != nil {
		t.Errorf("close: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestLayoutProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9)
		var table []Fused
		for i := range rapid.IntRange(0, 6).Draw(t, "tensors") {
			name, columns := fmt.Sprint("t", i), size.Draw(t, "columns")
			parts := rapid.IntRange(1, 4).Draw(t, "parts")
			if parts == 1 {
				table = append(table, Plain(name, size.Draw(t, "rows"), columns))
				continue
			}
			var specs []Spec
			for j := range parts {
				specs = append(specs, Spec{fmt.Sprint(name, ".", j), []int{size.Draw(t, "rows"), columns}})
			}
			table = append(table, Concat(name, specs...))
		}
		l, err := NewLayout(table)
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWeights(l)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for i, tensor := range w.Tensors() {
			for j := range tensor.Data {
				if tensor.Data[j] != 0 {
					t.Fatalf("%s overlaps another tensor, or the arena did not begin as zeros", tensor.Name)
				}
				tensor.Data[j] = float32(i + 1)
			}
		}
		covered := 0
		for _, f := range table {
			view, _, _ := w.View(f.Name)
			if at := uintptr(unsafe.Pointer(&view[0])); at%64 != 0 {
				t.Fatalf("%s begins at %#x, not on 64 bytes", f.Name, at)
			}
			if slices.Contains(view, 0) {
				t.Fatalf("the parts of %s do not cover it", f.Name)
			}
			covered += len(view)
		}
		for _, x := range w.Data {
			if x != 0 {
				covered--
			}
		}
		if covered != 0 {
			t.Fatalf("%d elements outside the tensors are not zero", -covered)
		}
	})
}

func TestLayoutErrors(t *testing.T) {
	cases := []struct {
		table []Fused
		want  string
	}{
		{[]Fused{Plain("a", 2), Plain("a", 3)}, `"a" twice`},
		{[]Fused{Concat("a", Spec{"b", []int{1}}, Spec{"b", []int{1}})}, `"b" twice`},
		{[]Fused{Plain("a")}, "no shape"},
		{[]Fused{Plain("a", 2, 0)}, "positive"},
		{[]Fused{Plain("a", 2, -1)}, "positive"},
		{[]Fused{Plain("a", 1<<30, 1<<30)}, "at most"},
		{[]Fused{Plain("a", 1<<47), Plain("b", 1<<47), Plain("c", 1<<47)}, "in all"},
		{[]Fused{Concat("a", Spec{"b", []int{2, 3}}, Spec{"c", []int{2, 4}})}, "not rows of"},
		{[]Fused{{Name: "a", Shape: []int{3, 2}, Parts: []Spec{{"b", []int{2, 2}}}}}, "hold 4 elements"},
	}
	for _, c := range cases {
		if _, err := NewLayout(c.table); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.table, err, c.want)
		}
	}
}
