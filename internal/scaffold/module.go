package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Module writes dir, a module of its own that brings in a plug-in without touching
// root, the checkout of onering it is built against:
//
//	go.mod, go.sum        the versions of onering's own dependencies; onering from root
//	NAME.go, NAME_test.go the plug-in and its conformance test, package example.com/NAME
//	cmd/NAME/main.go      the program
//
// It returns the paths that it wrote, relative to dir. dir must not exist; on an error nothing is left behind.
// Building needs no network beyond what building onering needs.
func (k Kind) Module(root, dir, name string) ([]string, error) {
	if err := k.checkName(name); err != nil {
		return nil, err
	}
	source, err := readRoot(root)
	if err != nil {
		return nil, err
	}
	path := "example.com/" + name
	gomod, err := moduleFile(source, root, path)
	if err != nil {
		return nil, err
	}
	files := []file{{path: "go.mod", data: gomod}}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err == nil {
		files = append(files, file{path: "go.sum", data: sums})
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("scaffold: %w", err)
	}
	files = append(files, k.files(name)...)
	files = append(files, file{path: filepath.Join("cmd", name, "main.go"), template: k.templates + "/main.go.tmpl"})
	return writeFolder(dir, newFields(name, path), files)
}

// moduleFile returns a go.mod for module path that builds against root, whose own go.mod is source. Requiring all
// that root requires, at the same versions, spares the author a `go mod tidy` and the network.
func moduleFile(source []byte, root, path string) ([]byte, error) {
	target, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("scaffold: %w", err)
	}
	if target = filepath.ToSlash(target); strings.ContainsAny(target, " \t\"'`()[]{},") {
		target = strconv.Quote(target)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "module %s\n", path)
	fmt.Fprintf(&b, "\nrequire %s v0.0.0\n\n// The checkout of onering.\nreplace %s => %s\n", host, host, target)
	for line := range strings.Lines(string(source)) {
		if words := strings.Fields(line); len(words) < 1 || words[0] != "module" {
			b.WriteString(line)
		}
	}
	return b.Bytes(), nil
}
