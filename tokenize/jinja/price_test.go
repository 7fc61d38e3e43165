package jinja

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// cost returns how much of its budget a rendering spends; ok is false if the rendering fails for
// another reason.
func cost(t *testing.T, source string, vars *Dict) (n int, ok bool) {
	t.Helper()
	template, err := Parse(source)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	const budget = 1 << 23
	r := &run{out: new(strings.Builder), line: 1, budget: budget}
	s := &scope{around: &scope{names: globals}}
	for key, value := range vars.All() {
		s.set(key.(string), value)
	}
	func() {
		defer catch(&err)
		r.body(&scope{around: s}, template.body)
	}()
	return budget - r.budget, err == nil
}

// TestPrices tries everything that a template can use: each feature has a price, and a
// feature that reads a text costs at least its price for a long text, and twice as much
// for a text twice as long.
func TestPrices(t *testing.T) {
	names := map[string][]string{
		"method":   slices.Concat(slices.Collect(maps.Keys(textMethods)), slices.Collect(maps.Keys(dictMethods))),
		"filter":   slices.Collect(maps.Keys(filters)),
		"test":     slices.Collect(maps.Keys(tests)),
		"function": slices.Collect(maps.Keys(globals)),
		"operator": strings.Fields("== < in [] [:] unary + - * / // % ~"),
	}
	// All uses of a name are tried, and a use that renders is measured.
	uses := func(kind, name string) (list []string) {
		for _, args := range []string{"", "v", "0", "5", "'a'", "'a', 'b'", "v, 'b'", "[v]", "x=v"} {
			switch kind {
			case "method":
				for _, of := range []string{"v", "d", "[v]"} {
					list = append(list, fmt.Sprintf("%s.%s(%s)", of, name, args))
				}
			case "filter":
				for _, of := range []string{"v", "[v]", "d", "n", "[n]"} {
					list = append(list, fmt.Sprintf("%s|%s(%s)|list", of, name, args), fmt.Sprintf("%s|%s(%s)", of, name, args))
				}
			case "test":
				list = append(list, fmt.Sprintf("[v]|select('%s'%s)|list", name, strings.TrimSuffix(", "+args, ", ")), fmt.Sprintf("[n]|select('%s'%s)|list", name, strings.TrimSuffix(", "+args, ", ")))
			case "function":
				list = append(list, fmt.Sprintf("%s(%s)", name, args))
			}
		}
		for _, of := range []string{"v", "n"} {
			switch {
			case kind != "operator":
			case name == "[]":
				list = append(list, "v[3]")
			case name == "[:]":
				list = append(list, "v[1:2]")
			case name == "unary":
				list = append(list, "-"+of)
			case name == "%":
				list = append(list, of+" % 5")
			default:
				list = append(list, of+" "+name+" "+of, of+" "+name+" 1")
			}
		}
		return list
	}
	vars := func(n int) *Dict {
		digits, err := FromJSON([]byte(strings.Repeat("7", n/4)))
		if err != nil {
			t.Fatal(err)
		}
		d, all := NewDict(), NewDict()
		d.Set("a", strings.Repeat("a ", n/2))
		all.Set("v", strings.Repeat("a ", n/2))
		all.Set("d", d)
		all.Set("n", digits)
		return all
	}
	const n = 1 << 11
	short, long := vars(n), vars(2*n)
	for kind, all := range names {
		priced := maps.Clone(prices[kind])
		for _, name := range all {
			price, ok := prices[kind][name]
			delete(priced, name)
			measured, dearest := 0, 0
			for _, use := range uses(kind, name) {
				source := "{% set x = " + use + " %}"
				a, rendered := cost(t, source, short)
				if b, _ := cost(t, source, long); rendered {
					measured++
					dearest = max(dearest, b-a)
				}
			}
			switch {
			case measured > 0 && !ok:
				t.Errorf("the %s %s has no price", kind, name)
			case measured == 0 && ok && name != "raise_exception":
				t.Errorf("the %s %s has a price and no use of it renders", kind, name)
			case measured > 0 && price.per > 0 && dearest < n/4/3*price.per/scanShare: // An integer of n/4 digits has the lowest price.
				t.Errorf("the %s %s takes %d more for %d bytes more", kind, name, dearest, n)
			}
		}
		delete(priced, "cycle")
		for name := range priced {
			t.Errorf("there is a price and no %s %s", kind, name)
		}
	}
}
