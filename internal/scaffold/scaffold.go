// Package scaffold writes the folder from which an author of an objective, a reward, an
// environment or a family of models starts: code that compiles, follows every rule of its
// interface and marks where the author's code goes, with a conformance test.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"onering/internal/files"
)

// host is the module that the generated code imports.
const host = "onering"

//go:embed template
var templates embed.FS

// A Kind is a kind of plug-in that scaffold can write: packages in one folder of onering,
// with a package all beside them that imports them.
type Kind struct {
	// templates is the folder in template with the kind's plugin.go.tmpl, plugin_test.go.tmpl and main.go.tmpl.
	templates string
	// Folder is the path of the packages in the checkout.
	Folder string
	// reserved are names that the folder or the generated code uses already.
	reserved []string
}

// Kinds are the kinds of plug-ins, by name.
var Kinds = map[string]Kind{
	"family":      {"model", "models", []string{"models", "decoder", "modeltest"}},
	"objective":   {"objective", "objectives", []string{"objectives", "objectivetest", "math"}},
	"reward":      {"reward", "reward", []string{"reward", "rewardtest", "context", "strings"}},
	"environment": {"environment", "environment", []string{"environment", "environmenttest", "context", "strings", "strconv", "rand", "tokenize"}},
}

// A file is a file to be written; its path is relative to the target folder.
type file struct {
	path     string
	template string // path of the template that makes data; "" if data is already set
	data     []byte
}

// fields are the values that the templates insert.
type fields struct {
	Name   string // the name of the plug-in and of its package
	Type   string // Name as an exported identifier
	Import string // the import path of the package
	Host   string
}

func newFields(name, importPath string) fields {
	return fields{Name: name, Type: strings.ToUpper(name[:1]) + name[1:], Import: importPath, Host: host}
}

// Add writes a package NAME into the kind's folder of root, the checkout of onering, and adds its import to the
// package all of that folder. It returns the paths that it wrote, relative to root. Nothing that exists is
// overwritten, and on an error nothing is left behind.
func (k Kind) Add(root, name string) ([]string, error) {
	if err := k.checkName(name); err != nil {
		return nil, err
	}
	if _, err := readRoot(root); err != nil {
		return nil, err
	}
	all := filepath.Join(k.Folder, "all", "all.go")
	source, err := os.ReadFile(filepath.Join(root, all))
	if err != nil {
		return nil, fmt.Errorf("scaffold: %w", err)
	}
	importPath := host + "/" + k.Folder + "/" + name
	imported, err := addImport(source, importPath)
	if err != nil {
		return nil, fmt.Errorf("scaffold: %s: %w", all, err)
	}
	dir := filepath.Join(k.Folder, name)
	paths, err := writeFolder(filepath.Join(root, dir), newFields(name, importPath), k.files(name))
	if err != nil {
		return nil, err
	}
	if err := files.WriteFile(filepath.Join(root, all), files.Content(imported)); err != nil {
		return nil, errors.Join(fmt.Errorf("scaffold: %w", err), os.RemoveAll(filepath.Join(root, dir)))
	}
	for i := range paths {
		paths[i] = filepath.Join(dir, paths[i])
	}
	return append(paths, all), nil
}

// Python writes an objective as a Python program, NAME.py in dir, and returns the file's name.
// A file of that name is not overwritten.
func Python(dir, name string) (string, error) {
	text, err := templates.ReadFile("template/objective/loss.py")
	if err != nil {
		return "", fmt.Errorf("scaffold: %w", err)
	}
	path := strings.TrimSuffix(name, ".py") + ".py"
	if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
		return "", fmt.Errorf("scaffold: %s exists: remove it or choose another name", filepath.Join(dir, path))
	}
	content := bytes.ReplaceAll(text, []byte("FILE"), []byte(path))
	if err := files.WriteFile(filepath.Join(dir, path), files.Content(content)); err != nil {
		return "", fmt.Errorf("scaffold: %w", err)
	}
	return path, nil
}

// files returns the plug-in and its conformance test.
func (k Kind) files(name string) []file {
	return []file{
		{path: name + ".go", template: k.templates + "/plugin.go.tmpl"},
		{path: name + "_test.go", template: k.templates + "/plugin_test.go.tmpl"},
	}
}

// goName matches a lower-case Go package name, which is also the plug-in's name.
var goName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// reserved are names that have a meaning in every module and folder of plug-ins.
var reserved = []string{"all", "testdata", "vendor", "internal", "main", "init", host}

// checkName refuses a name that is not a package name, is a keyword of Go, has another meaning in folders of
// plug-ins, or is used by the generated code. It may suggest a name near it.
func (k Kind) checkName(name string) error {
	switch {
	case !goName.MatchString(name):
		remedy := "use small letters and digits, beginning with a letter"
		if near := nearName(name); near != "" && k.checkName(near) == nil {
			remedy += ", such as " + near
		}
		return fmt.Errorf("scaffold: %q cannot name a Go package: %s", name, remedy)
	case token.IsKeyword(name):
		return fmt.Errorf("scaffold: %q is a keyword of Go: choose another name", name)
	}
	if slices.Contains(k.reserved, name) || slices.Contains(reserved, name) {
		return fmt.Errorf("scaffold: %q means something else here: choose another name", name)
	}
	return nil
}

// nearName removes the characters of a name that a package's name cannot have: My-Model_2 becomes mymodel2.
func nearName(name string) string {
	kept := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	return strings.TrimLeft(kept, "0123456789")
}

// readRoot returns the go.mod of root, or an error if root is not a checkout of onering.
func readRoot(root string) (gomod []byte, err error) {
	gomod, err = os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("scaffold: %w: run this from the root of a checkout of %s", err, host)
	}
	if module := moduleOf(gomod); module != host {
		return nil, fmt.Errorf("scaffold: %s is module %q, not %q: run this from the root of a checkout of %s", filepath.Join(root, "go.mod"), module, host, host)
	}
	return gomod, nil
}

// moduleOf returns the module path that a go.mod file declares, "" if none.
func moduleOf(gomod []byte) string {
	for line := range strings.Lines(string(gomod)) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == "module" {
			return strings.Trim(words[1], `"`)
		}
	}
	return ""
}

// addImport adds a blank import to a file that consists of blank imports, and lets gofmt sort them.
func addImport(source []byte, importPath string) ([]byte, error) {
	line := fmt.Sprintf("_ %q", importPath)
	if bytes.Contains(source, []byte(line)) {
		return nil, fmt.Errorf("%s is imported already", importPath)
	}
	opening := []byte("import (\n")
	if bytes.Count(source, opening) != 1 {
		return nil, errors.New("there should be one import block, import (...)")
	}
	source = bytes.Replace(source, opening, []byte("import (\n\t"+line+"\n"), 1)
	return format.Source(source)
}

// writeFolder makes dir with the given files, completely or not at all: it fills a folder of another name and renames
// it. f is what the templates insert. It returns the paths of the files, relative to dir.
func writeFolder(dir string, f fields, files []file) (paths []string, err error) {
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("scaffold: %s exists: remove it or choose another name", dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("scaffold: %w", err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-")
	if err != nil {
		return nil, fmt.Errorf("scaffold: %w", err)
	}
	defer func() {
		if err != nil {
			paths, err = nil, errors.Join(fmt.Errorf("scaffold: %w", err), os.RemoveAll(temporary))
		}
	}()
	for _, x := range files {
		if x.template != "" {
			if x.data, err = render(x.template, f); err != nil {
				return nil, err
			}
		}
		path := filepath.Join(temporary, x.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, x.data, 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, x.path)
	}
	if err := os.Chmod(temporary, 0o755); err != nil { // MkdirTemp makes folders that only their owner can read
		return nil, err
	}
	return paths, os.Rename(temporary, dir)
}

// render fills in a template and formats it as gofmt does.
func render(name string, f fields) ([]byte, error) {
	t, err := template.ParseFS(templates, "template/"+name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, f); err != nil {
		return nil, err
	}
	return format.Source(b.Bytes())
}
