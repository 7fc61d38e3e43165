package house

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

// mostNamed is the sum over spineFunctions of the types in reach at the last release.
const mostNamed = 162

// spineFunctions are where the five things of a round happen: a token is decoded, a round is
// sampled, a step is taken, its gradients are computed, the weights are updated.
var spineFunctions = []string{
	"(*onering/runtime.Decoder).Step",
	"(*onering/train/rl.roller).roll",
	"(*onering/train/rl.learner).step",
	"(*onering/runtime.Pass).Backward",
	"(*onering/runtime.Optimizer).Update",
}

// A reach finds what a reader of one function meets.
type reach struct {
	bodies map[string]body // by the full name of a function
}

// A body is a declared function with what is known of its names.
type body struct {
	*ast.FuncDecl
	uses map[*ast.Ident]types.Object
}

// typed returns the packages with the types of their names.
func typed(t *testing.T) []*packages.Package {
	load(t) // the go command below runs again when a file has changed
	list, err := typedOnce()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
	}
	return list
}

var typedOnce = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}, "./...")
})

// TestReach prints how many types of ours a reader holds in mind for each function of the
// spine: those that the function and the functions within two calls of it name, and those of
// the fields that they use. The goal is a mean of 30.
func TestReach(t *testing.T) {
	list := typed(t)
	r := reach{map[string]body{}}
	for _, p := range list {
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					r.bodies[p.TypesInfo.Defs[d.Name].(*types.Func).FullName()] = body{d, p.TypesInfo.Uses}
				}
			}
		}
	}
	sum := 0
	for _, name := range spineFunctions {
		if r.bodies[name].FuncDecl == nil {
			t.Fatalf("there is no function %s", name)
		}
		named := r.types(name, 2)
		sum += len(named)
		t.Logf("%7d types in reach of %s: %s", len(named), name, strings.ReplaceAll(strings.Join(named, " "), "onering/", ""))
	}
	t.Logf("%7.1f on average, %.1f at the last release, 30 is the goal", float64(sum)/float64(len(spineFunctions)), float64(mostNamed)/float64(len(spineFunctions)))
	if sum > mostNamed+mostNamed/100 {
		t.Errorf("%d types are in reach of the five functions, more than %d at the last release and a hundredth", sum, mostNamed)
	}
}

// types lists the types of ours that a function names, that those it calls name, and so on.
func (r reach) types(name string, calls int) []string {
	seen, found := map[string]bool{}, map[string]bool{}
	for now := []string{name}; calls >= 0; calls-- {
		var next []string
		for _, name := range now {
			if b := r.bodies[name]; b.FuncDecl != nil && !seen[name] {
				seen[name] = true
				next = append(next, b.names(found)...)
			}
		}
		now = next
	}
	return slices.Sorted(maps.Keys(found))
}

// names adds the types of ours that a function names, and those of the fields that it uses, to
// found. It returns the functions of ours that it calls.
func (b body) names(found map[string]bool) (called []string) {
	add := func(t types.Type) {
		if p, ok := types.Unalias(t).(*types.Pointer); ok {
			t = p.Elem()
		}
		if t, ok := types.Unalias(t).(*types.Named); ok && ours(t.Obj()) {
			found[t.Obj().Pkg().Path()+"."+t.Obj().Name()] = true
		}
	}
	ast.Inspect(b.FuncDecl, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		switch x := b.uses[name].(type) {
		case *types.TypeName:
			add(x.Type())
		case *types.Var:
			if x.IsField() {
				add(x.Type())
			}
		case *types.Func:
			if ours(x) {
				called = append(called, x.Origin().FullName())
			}
		}
		return true
	})
	return called
}

// ours reports whether a name is declared in this repository. What cgo takes from C is not.
func ours(x types.Object) bool {
	return x.Pkg() != nil && strings.HasPrefix(x.Pkg().Path(), "onering/") && !strings.HasPrefix(x.Name(), "_C")
}
