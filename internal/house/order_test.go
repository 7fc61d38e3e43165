package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// TestFirstFault holds loops over maps to end with no error: of several faults the error names
// the first by name, in each run the same.
func TestFirstFault(t *testing.T) {
	for _, p := range typed(t) {
		for _, f := range p.Syntax {
			for _, loop := range failingLoops(f, p.TypesInfo) {
				t.Errorf("%s: a loop over a map returns an error: range over slices.Sorted(maps.Keys(x))", p.Fset.Position(loop.Pos()))
			}
		}
	}
}

// TestFirstFaultRefuses shows that the loops which TestFirstFault looks for are found.
func TestFirstFaultRefuses(t *testing.T) {
	for body, want := range map[string]int{
		"for _, err := range m { return err }":                                   1,
		"for _, err := range m { for range 3 { if err != nil { return err } } }": 1,
		"for _, err := range m { last = err }":                                   1,
		"for _, err := range m { func() error { return err }() }":                0,
		"for name := range m { print(name); return nil }":                        0,
		"for _, err := range []error{nil} { return err }":                        0,
	} {
		set := token.NewFileSet()
		text := "package p; func f(m map[string]error) (last error) { " + body + "; return last }"
		f, err := parser.ParseFile(set, "p.go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{}).Check("p", set, []*ast.File{f}, info); err != nil {
			t.Fatal(err)
		}
		if got := len(failingLoops(f, info)); got != want {
			t.Errorf("%s: %d loops were found, want %d", strings.TrimSpace(body), got, want)
		}
	}
}

// failingLoops lists the loops over maps that return an error, or set one that is declared before.
func failingLoops(f *ast.File, info *types.Info) (found []*ast.RangeStmt) {
	ast.Inspect(f, func(n ast.Node) bool {
		if loop, ok := n.(*ast.RangeStmt); ok && isMap(info.TypeOf(loop.X)) && fails(loop, info) {
			found = append(found, loop)
		}
		return true
	})
	return found
}

func isMap(t types.Type) bool {
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// fails reports whether a loop's body, without the functions in it, returns or sets an error.
func fails(loop *ast.RangeStmt, info *types.Info) (fails bool) {
	isError := func(x ast.Expr) bool {
		t := info.TypeOf(x)
		return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
	}
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			for _, x := range n.Results {
				fails = fails || isError(x)
			}
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				name, ok := x.(*ast.Ident)
				set := ok && isError(x) && info.ObjectOf(name).Pos() < loop.Pos()
				fails = fails || set
			}
		}
		return true
	})
	return fails
}
