// Package house holds the policy of the repository as tests: which package imports which,
// how large packages, functions and the repository may be, and that pages are true.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestMain runs the tests in the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// A house holds all Go files of the repository.
type house struct {
	files []*file
	set   *token.FileSet
}

// A file is a Go file of the repository. Its path has slashes.
type file struct {
	path, folder, text string
	test               bool
	syntax             *ast.File
}

func (f *file) lines() int { return strings.Count(f.text, "\n") }

// imports lists the paths that a file imports.
func (f *file) imports() (list []string) {
	for _, spec := range f.syntax.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			list = append(list, name)
		}
	}
	return list
}

// packages are the files outside tests, by folder; a folder with tests alone has none.
func (h *house) packages() map[string][]*file {
	list := map[string][]*file{}
	for _, f := range h.files {
		if list[f.folder] = append(list[f.folder], f); f.test {
			list[f.folder] = list[f.folder][:len(list[f.folder])-1]
		}
	}
	return list
}

var read = sync.OnceValues(func() (*house, error) {
	h := &house{set: token.NewFileSet()}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() && name != "." && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
			return fs.SkipDir // the module's path, as the go command gives it
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f := &file{path: name, folder: path.Dir(name), text: string(text), test: strings.HasSuffix(name, "_test.go")}
		f.syntax, err = parser.ParseFile(h.set, name, text, parser.ParseComments)
		h.files = append(h.files, f)
		return err
	})
	return h, err
})

// load returns the house, which is read once. It fails if the walk finds no files, because the
// tests would then check nothing.
func load(t *testing.T) *house {
	t.Helper()
	h, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"models/program.go", "cmd/onering/main.go"} {
		if !slices.ContainsFunc(h.files, func(f *file) bool { return f.path == want }) {
			t.Fatalf("walk did not reach %s", want)
		}
	}
	return h
}
