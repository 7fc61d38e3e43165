package house

import (
	"go/ast"
	"strings"
	"testing"
)

// TestDocs holds the comment above each function outside tests to begin with the function's
// name: a comment that moved to another function says something else.
func TestDocs(t *testing.T) {
	h := load(t)
	n := 0
	for _, files := range h.packages() {
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Doc.Text() == "" || fn.Name.Name == "init" {
					continue
				}
				n++
				if first := strings.Fields(fn.Doc.Text())[0]; strings.TrimRight(first, ",:") != fn.Name.Name {
					t.Errorf("%s: the comment above %s begins with %q: begin with the name", h.set.Position(fn.Pos()), fn.Name.Name, first)
				}
			}
		}
	}
	if n == 0 {
		t.Error("no comments were found")
	}
}
