package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// What a reader can hold in the head at once. Configurations may have more fields:
// their keys are a list, not a state.
const (
	mostFiles   = 25 // of a package, without its tests
	mostLines   = 60 // of a function
	mostFields  = 14 // of a struct
	mostMethods = 20 // of a type

	mostOfProvider = 200 // lines of a file that is for CUDA or WebGPU alone
)

// longFunctions are those whose length has a reason: a table or a grammar.
var longFunctions = map[string]string{
	"models/graph.init":                            "the table of gradient rules",
	"internal/graphtest.Cases":                     "the table of cases",
	"verifier/internal/algebra.Checker.halfTurns":  "a case for each kind of node",
	"verifier/internal/algebra.Checker.rational":   "a case for each kind of node",
	"verifier/internal/algebra.formula.value":      "a case for each kind of node",
	"verifier/internal/algebra.numeric.value":      "a case for each kind of node",
	"verifier/internal/algebra.numeric.function":   "a case for each function",
	"verifier/internal/algebra.numeric.inverse":    "a case for each function",
	"verifier/internal/algebra.survey":             "a case for each kind of node",
	"verifier/internal/latex.lexer.backslash":      "grammar",
	"verifier/internal/latex.parser.command":       "grammar",
	"verifier/internal/latex.parser.product":       "grammar",
	"verifier/internal/latex.parser.spelledNumber": "grammar",
	"verifier/internal/latex.parser.suffix":        "grammar",
	"verifier/internal/latex.parser.units":         "grammar",
}

// wideTypes are those whose number of fields or methods has a reason: a
// configuration, a record of a file format.
var wideTypes = map[string]string{
	"models/decoder.Architecture":       "implements models.Architecture, which has a method for each Program",
	"models/decoder.Names":              "a table: the names of a family's tensors",
	"train/rl.FailureTrajectory":        "a file format",
	"train/rundir.RolloutLine":          "a file format",
	"train/rundir.State":                "a file format",
	"tokenize/jinja.parser":             "grammar",
	"tokenize/jinja.run":                "Python's operations on values, one each",
	"verifier.comparer":                 "a rule for each pair of kinds",
	"verifier.finder":                   "grammar of running text",
	"verifier/internal/algebra.Checker": "arithmetic, an operation each",
	"verifier/internal/algebra.numeric": "arithmetic, an operation each",
	"verifier/internal/ball.Context":    "arithmetic, an operation each",
	"verifier/internal/latex.lexer":     "grammar",
	"verifier/internal/latex.parser":    "grammar",
}

// TestHouse holds packages, functions and types to a size.
func TestHouse(t *testing.T) {
	files, err := goFiles(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	methods := map[string]int{}
	seen := map[string]bool{}
	fset := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := path.Dir(file)
		count[folder]++
		parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		lines := func(n ast.Node) int { return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1 }
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := folder + "." + d.Name.Name
				if d.Recv != nil {
					receiver := folder + "." + receiverName(d.Recv.List[0].Type)
					methods[receiver]++
					name = receiver + "." + d.Name.Name
				}
				if n := lines(d); n > mostLines {
					seen[name] = true
					if longFunctions[name] == "" {
						t.Errorf("%s: %s has %d lines, more than %d", file, name, n, mostLines)
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					name := folder + "." + s.Name.Name
					if x, ok := s.Type.(*ast.StructType); ok && x.Fields.NumFields() > mostFields {
						seen[name] = true
						if wideTypes[name] == "" {
							t.Errorf("%s: %s has %d fields, more than %d", file, name, x.Fields.NumFields(), mostFields)
						}
					}
				}
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			seen[name] = true
			if wideTypes[name] == "" {
				t.Errorf("%s has %d methods, more than %d", name, n, mostMethods)
			}
		}
	}
	for folder, n := range count {
		if n > mostFiles && folder != "cmd" { // which has a file for each command
			t.Errorf("%s has %d files, more than %d", folder, n, mostFiles)
		}
	}
	for _, list := range []map[string]string{longFunctions, wideTypes} {
		for name := range list {
			if !seen[name] {
				t.Errorf("%s is listed as an exception, but is none", name)
			}
		}
	}
}

// TestProviders holds the files that are for one provider of GPUs alone to a size: what
// both need belongs to all devices.
func TestProviders(t *testing.T) {
	for _, pattern := range []string{"runtime/*cuda*.[cgh]*", "runtime/*webgpu*.[cgh]*", "runtime/provision/*cuda*.go", "runtime/provision/*webgpu*.go"} {
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
