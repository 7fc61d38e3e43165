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
	mostFiles   = 25 // lines of a package, without its tests
	mostLines   = 60 // of a function
	mostMethods = 24 // methods of a struct, with the functions whose first argument it is

	mostOfProvider = 200 // lines of a file of C that is for one kind of device alone
)

// longFunctions lists functions with a reason for their length: a table or a grammar.
var longFunctions = map[string]string{
	"models/graph.init":                            "the table of gradient rules",
	"internal/graphtest.Cases":                     "the table of cases",
	"verifier/internal/algebra.formula.value":      "a case for each kind of node",
	"verifier/internal/algebra.numeric.value":      "a case for each kind of node",
	"verifier/internal/algebra.survey":             "a case for each kind of node",
	"verifier/internal/latex.parser.command":       "grammar",
	"verifier/internal/latex.parser.product":       "grammar",
	"verifier/internal/latex.parser.spelledNumber": "grammar",
	"verifier/internal/latex.parser.suffix":        "grammar",
	"verifier/internal/latex.parser.units":         "grammar",
}

// wideTypes are structs whose number of methods has a reason.
var wideTypes = map[string]string{
	"internal/graphtest.call":           "an interpreter: a method for each operator",
	"models/decoder.Architecture":       "implements models.Architecture, which has a method for each Program",
	"models/graph.Graph":                "builds nodes, and is what gradients are taken of",
	"models/graph.Node":                 "the vocabulary of graphs: a function for each operator",
	"runtime.Env":                       "opens all that a process has of ONNX Runtime, and is the door to a device's memory",
	"report.Run":                        "each figure of the page is made from a run",
	"tokenize/jinja.parser":             "grammar",
	"tokenize/jinja.run":                "Python's operations on values, one each",
	"verifier.comparer":                 "a rule for each pair of kinds",
	"verifier.finder":                   "grammar of running text",
	"verifier/internal/algebra.Checker": "arithmetic, an operation each",
	"verifier/internal/ball.Context":    "arithmetic, an operation each",
	"verifier/internal/latex.lexer":     "grammar",
	"verifier/internal/latex.parser":    "grammar",
}

// TestSizes holds packages, functions and types to a size.
func TestSizes(t *testing.T) {
	h := load(t)
	seen := map[string]bool{}
	known := func(list map[string]string, name string) bool {
		seen[name] = true
		return list[name] != ""
	}
	methods := map[string]int{}
	structs := h.structs()
	for folder, files := range h.packages() {
		if n := len(files); n > mostFiles && folder != "cmd" { // package cmd, which has a file for each command
			t.Errorf("%s has %d files, more than %d", folder, n, mostFiles)
		}
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				d, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := folder + "." + d.Name.Name
				receiver := folder + "." + receiverOf(d)
				if structs[receiver] != nil {
					methods[receiver]++
				}
				if d.Recv != nil {
					name = receiver + "." + d.Name.Name
				}
				if n := h.set.Position(d.End()).Line - h.set.Position(d.Pos()).Line + 1; n > mostLines && !known(longFunctions, name) {
					t.Errorf("%s: %s has %d lines, more than %d", f.path, name, n, mostLines)
				}
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods && !known(wideTypes, name) {
			t.Errorf("%s has %d methods, more than %d", name, n, mostMethods)
		}
	}
	for _, list := range []map[string]string{longFunctions, wideTypes} {
		for name := range list {
			if !seen[name] {
				t.Errorf("%s is listed as an exception, but needs none", name)
			}
		}
	}
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
