package house

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pure are the packages that must build without cgo, for every system.
var pure = []string{"./runtime/provision", "./objectives/...", "./verifier/...", "./tokenize/...", "./sampler/...", "./models/..."}

// TestOtherSystems checks the types of the pure packages and of their tests for two systems that
// stand for all. Running go vet for these systems would compile the standard library for each,
// which takes minutes.
func TestOtherSystems(t *testing.T) {
	for system, machine := range map[string]string{"windows": "amd64", "darwin": "arm64"} {
		t.Run(system, func(t *testing.T) {
			c := exec.Command("go", append([]string{"list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"}, pure...)...)
			c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine)
			var stderr strings.Builder
			c.Stderr = &stderr
			text, err := c.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			checked, ours := imports{"unsafe": types.Unsafe}, 0
			for d := json.NewDecoder(strings.NewReader(string(text))); ; {
				var p listed
				if err := d.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
					continue
				}
				if p.Module != nil && p.Module.Main {
					ours++
				}
				checked[p.ImportPath] = p.check(t, checked, types.SizesFor("gc", machine))
			}
			if ours < 60 {
				t.Errorf("%d packages of ours were checked", ours)
			}
		})
	}
}

// A listed is a package as go list prints it, after the packages that it imports.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

// check returns the types of p, and reports type errors if the package is in this repository.
func (p listed) check(t *testing.T, from imports, sizes types.Sizes) *types.Package {
	fset, files := token.NewFileSet(), []*ast.File{}
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	ours := p.Module != nil && p.Module.Main
	mapped := imports{}
	for path, to := range p.ImportMap {
		mapped[path] = from[to]
	}
	config := types.Config{IgnoreFuncBodies: !ours, Sizes: sizes, Importer: importers{mapped, from}, Error: func(err error) {
		if ours {
			t.Error(err)
		}
	}}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	pkg, _ := config.Check(path, fset, files, nil)
	return pkg
}

// imports maps the paths of imports to packages.
type imports map[string]*types.Package

// importers import each package from the first importer that has it.
type importers []imports

func (all importers) Import(path string) (*types.Package, error) {
	for _, have := range all {
		if p := have[path]; p != nil {
			return p, nil
		}
	}
	return nil, errors.New("no package " + path)
}
