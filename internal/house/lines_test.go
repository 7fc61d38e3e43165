package house

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"
)

// mostLetters is how long a line may be, but for tables and tags.
const mostLetters = 160

// TestLines holds lines to a length, except rows of tables, tags of fields, raw strings and
// comments behind code, and each if to one idea: a statement before its condition sets what the
// condition reads.
func TestLines(t *testing.T) {
	h := load(t)
	for _, files := range h.packages() {
		for _, f := range files {
			exempt := map[int]bool{}
			skip := func(n ast.Node) {
				for l := h.set.Position(n.Pos()).Line; l <= h.set.Position(n.End()).Line; l++ {
					exempt[l] = true
				}
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Field:
					if n.Tag != nil {
						skip(n.Tag)
					}
				case *ast.BasicLit:
					if n.Kind == token.STRING && n.Value[0] == '`' {
						skip(n)
					}
				case *ast.IfStmt:
					if n.Init != nil && !about(n) {
						t.Errorf("%s: the statement of this if has nothing to do with its condition: write two statements", h.set.Position(n.Pos()))
					}
				}
				return true
			})
			for _, c := range f.syntax.Comments {
				skip(c)
			}
			for i, line := range strings.Split(string(f.text), "\n") {
				if n := utf8.RuneCountInString(line); n > mostLetters && !exempt[i+1] && !strings.HasPrefix(strings.TrimSpace(line), "{") {
					t.Errorf("%s:%d: a line of %d letters, more than %d", f.path, i+1, n, mostLetters)
				}
			}
		}
	}
}

// about says whether the condition of an if reads what its statement sets.
func about(n *ast.IfStmt) (reads bool) {
	set := map[string]bool{}
	var name func(e ast.Expr)
	name = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.Ident:
			set[e.Name] = e.Name != "_"
		case *ast.SelectorExpr:
			set[e.Sel.Name] = true
		case *ast.IndexExpr:
			name(e.X)
		case *ast.StarExpr:
			name(e.X)
		}
	}
	switch s := n.Init.(type) {
	case *ast.AssignStmt:
		for _, e := range s.Lhs {
			name(e)
		}
	case *ast.IncDecStmt:
		name(s.X)
	}
	ast.Inspect(n.Cond, func(x ast.Node) bool {
		if id, ok := x.(*ast.Ident); ok && set[id.Name] {
			reads = true
		}
		return true
	})
	return reads
}
