package house

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// These limits are how much a reader can keep in mind.
const (
	mostLines      = 60  // of a function
	mostOfProvider = 200 // lines of a file of C that is for one kind of device alone
)

// longFunctions lists functions with a reason for their length: a table or a grammar.
var longFunctions = map[string]string{
	"models/graph.init":                       "the table of gradient rules",
	"internal/graphtest.Cases":                "the table of cases",
	"verifier/internal/algebra.formula.value": "a case for each kind of node",
	"verifier/internal/algebra.numeric.value": "a case for each kind of node",
	"verifier/internal/algebra.survey":        "a case for each kind of node",
	"verifier/internal/latex.parser.command":  "grammar",
	"verifier/internal/latex.parser.product":  "grammar",
	"verifier/internal/latex.parser.suffix":   "grammar",
}

// TestSizes holds functions to a size.
func TestSizes(t *testing.T) {
	h := load(t)
	seen := map[string]bool{}
	for folder, files := range h.packages() {
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				d, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := folder + "." + d.Name.Name
				if d.Recv != nil {
					name = folder + "." + receiverOf(d) + "." + d.Name.Name
				}
				if n := h.set.Position(d.End()).Line - h.set.Position(d.Pos()).Line + 1; n > mostLines {
					if seen[name] = true; longFunctions[name] == "" {
						t.Errorf("%s: %s has %d lines, more than %d", f.path, name, n, mostLines)
					}
				}
			}
		}
	}
	for name := range longFunctions {
		if !seen[name] {
			t.Errorf("%s is listed as an exception, but needs none", name)
		}
	}
}

// mostFiles counts the files of the largest package without its tests, but of cmd, which has
// a file for each command.
func (h *house) mostFiles() (most int) {
	for folder, files := range h.packages() {
		if folder != "cmd" {
			most = max(most, len(files))
		}
	}
	return most
}

// wideTypes counts the structs with more than 24 methods, among them the functions whose first
// argument one is.
func (h *house) wideTypes() (wide int) {
	count, structs := map[string]int{}, h.structs()
	for folder, files := range h.packages() {
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && structs[folder+"."+receiverOf(d)] != nil {
					count[folder+"."+receiverOf(d)]++
				}
			}
		}
	}
	for _, n := range count {
		if n > 24 {
			wide++
		}
	}
	return wide
}

// structs are the structs by folder and name.
func (h *house) structs() map[string]*ast.StructType {
	list := map[string]*ast.StructType{}
	for folder, files := range h.packages() {
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				d, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						if x, ok := s.Type.(*ast.StructType); ok {
							list[folder+"."+s.Name.Name] = x
						}
					}
				}
			}
		}
	}
	return list
}

// receiverOf is the type whose method a function is: of a function without a receiver it is
// that of the first argument, which is a method by another name.
func receiverOf(d *ast.FuncDecl) string {
	switch {
	case d.Recv != nil:
		return receiverName(d.Recv.List[0].Type)
	case len(d.Type.Params.List) > 0:
		return receiverName(d.Type.Params.List[0].Type)
	}
	return ""
}

// TestFragments refuses a struct that exists only to keep another one short: embedded in
// one struct of its package, without methods, and used for nothing else.
func TestFragments(t *testing.T) {
	h := load(t)
	structs, uses := h.structs(), h.uses()
	found := 0
	for name, s := range structs {
		folder, whole := path.Dir(name), name[strings.LastIndex(name, ".")+1:]
		folder = name[:len(name)-len(whole)-1]
		for _, field := range s.Fields.List {
			part := receiverName(field.Type)
			if _, shared := field.Type.(*ast.StarExpr); shared { // by several
				continue
			}
			if len(field.Names) > 0 || structs[folder+"."+part] == nil {
				continue
			}
			found++
			if uses[folder+"."+part] == 0 {
				t.Errorf("%s.%s exists only to keep %s short: write its fields there", folder, part, whole)
			}
		}
	}
	if found == 0 {
		t.Error("no struct is embedded in another one")
	}
}

// uses counts, by folder and name, the uses of a type besides embedding it once: its
// methods, other structs that embed it, and the types that name it. Its literals are
// parts of literals of the struct around it.
func (h *house) uses() map[string]int {
	count, embedded := map[string]int{}, map[string]int{}
	for _, f := range h.files {
		if f.test {
			continue
		}
		name := func(e ast.Expr) string {
			if star, ok := e.(*ast.StarExpr); ok {
				e = star.X
			}
			if x, ok := e.(*ast.SelectorExpr); ok {
				in, _ := x.X.(*ast.Ident)
				for _, path := range f.imports() {
					if ours, ok := strings.CutPrefix(path, "onering/"); ok && in != nil && strings.HasSuffix("/"+ours, "/"+in.Name) {
						return ours + "." + x.Sel.Name
					}
				}
			}
			return f.folder + "." + receiverName(e)
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				count[f.folder+"."+receiverOf(n)]++
			case *ast.Field:
				if len(n.Names) == 0 {
					embedded[name(n.Type)]++
				} else {
					count[name(n.Type)]++
				}
			case *ast.ArrayType:
				count[name(n.Elt)]++
			case *ast.MapType:
				count[name(n.Key)]++
				count[name(n.Value)]++
			case *ast.ValueSpec:
				if n.Type != nil {
					count[name(n.Type)]++
				}
			}
			return true
		})
	}
	for part, n := range embedded {
		if n > 1 {
			count[part]++
		}
	}
	return count
}

// TestProviders holds the files of C that are for one kind of device alone to a size: what
// every device needs belongs to the files for all devices.
func TestProviders(t *testing.T) {
	for _, pattern := range []string{"runtime/cuda/*.[cgh]*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Errorf("no file is %s, %v", pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > mostOfProvider {
				t.Errorf("%s has %d lines, more than %d", file, n, mostOfProvider)
			}
		}
	}
}

// TestPatterns: a path that a user gave is never a pattern, so only files.Glob looks for
// files by patterns.
func TestPatterns(t *testing.T) {
	for _, f := range load(t).files {
		for _, call := range []string{"filepath.Glob(", "fs.Glob("} {
			if strings.Contains(f.text, call) && !f.test && f.folder != "internal/files" {
				t.Errorf("%s calls %s...), which reads the whole path as a pattern: call files.Glob", f.path, call)
			}
		}
	}
}

// receiverName is the name of a receiver's type.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
