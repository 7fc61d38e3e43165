package registry

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMakers(t *testing.T) {
	m := Makers[*int]{Package: "shop", Kind: "number"}
	if _, err := m.New("one"); err == nil || err.Error() != `shop: unknown number "one" (have ; forgotten import?)` {
		t.Errorf("error %v", err)
	}
	m.Register("two", func() *int { return new(int) })
	m.Register("one", func() *int { return new(int) })
	a, err := m.New("one")
	b, again := m.New("one")
	if err != nil || again != nil || a == b {
		t.Errorf("%v and %v are one value, errors %v, %v", a, b, err, again)
	}
	if got := m.Names(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("names %q", got)
	}
	for _, tt := range []struct {
		name, want string
		new        func() *int
	}{
		{"", "takes a name and a constructor", func() *int { return nil }},
		{"three", "takes a name and a constructor", nil},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tt.want) {
					t.Errorf("%q panics with %q, want %q", tt.name, got, tt.want)
				}
			}()
			m.Register(tt.name, tt.new)
		}()
	}
}

// TestTwice: if two plug-ins have one name, the program says so where the name is used,
// and everything else works.
func TestTwice(t *testing.T) {
	m := Makers[*int]{Package: "shop", Kind: "number"}
	first := new(int)
	m.Register("one", func() *int { return first })
	m.Register("one", func() *int { return new(int) })
	m.Register("two", func() *int { return new(int) })
	x, err := m.New("one")
	if want := `shop: number "one" is registered twice: give your own another name`; x != first || err == nil || err.Error() != want {
		t.Errorf("%p, %v, want %p, %s", x, err, first, want)
	}
	if _, err := m.New("two"); err != nil {
		t.Error(err)
	}
	if got := m.Names(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("names %q", got)
	}
}

func TestTableConcurrent(t *testing.T) {
	var table Table[int]
	var all sync.WaitGroup
	var added [10]bool
	for i := range added {
		all.Go(func() { added[i] = table.Add("one", i+1); _, _ = table.Get("one"); table.Names() })
	}
	all.Wait()
	n := 0
	for i, won := range added {
		if won {
			n++
			if first, _ := table.Get("one"); first != i+1 {
				t.Errorf("the entry is %d, which was not the first", first)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d entries had a free name", n)
	}
}
