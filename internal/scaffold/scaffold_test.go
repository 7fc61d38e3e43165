package scaffold

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kinds are the kinds with what the tests know about each.
var kinds = []struct {
	Kind
	neighbours string // lines of the package all, with the new import in its place
	rules      int    // The conformance suite makes at least so many checks.
	taken      string // a name that is registered
	reserved   string // a name that the generated code uses
}{
	{Kinds["objective"], "\t_ \"onering/objectives/holder\"\n\t_ \"onering/objectives/mine\"\n\t_ \"onering/objectives/pmpo\"\n", 15, "pmpo", "math"},
	{Kinds["reward"], "\t_ \"onering/reward/math\"\n\t_ \"onering/reward/mine\"\n", 10, "math", "context"},
	{Kinds["environment"], "\t_ \"onering/environment/mcp\"\n\t_ \"onering/environment/mine\"\n\t_ \"onering/environment/openenv\"\n", 8, "tools", "context"},
	{Kinds["family"], "\t_ \"onering/models/llama\"\n\t_ \"onering/models/mine\"\n\t_ \"onering/models/mistral\"\n", 5, "llama", "decoder"},
}

// checkout returns a copy of the parts of the checkout that Add reads: go.mod and the
// packages all. Add changes it.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module onering\n\ngo 1.26\n")
	for _, k := range kinds {
		all := filepath.Join(k.Folder, "all", "all.go")
		write(t, filepath.Join(root, all), read(t, filepath.Join("..", "..", all)))
	}
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// goTool runs the go command in dir, offline, and returns what it printed.
func goTool(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	c := exec.Command("go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	c.Stdin = strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

const batch = `{"groups":[[{"reward":1,"logp":[-1,-2],"old_logp":[-1,-2]},{"reward":0,"logp":[-3],"old_logp":[-3]}]]}`

// TestAdd: the package that Add writes compiles, passes the conformance suite, is
// registered, and has at most 40 lines.
func TestAdd(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.templates, func(t *testing.T) {
			root := checkout(t)
			paths, err := k.Add(root, "mine")
			if err != nil {
				t.Fatal(err)
			}
			folder := filepath.Join(k.Folder, "mine")
			want := []string{filepath.Join(folder, "mine.go"), filepath.Join(folder, "mine_test.go"), filepath.Join(k.Folder, "all", "all.go")}
			if !slices.Equal(paths, want) {
				t.Errorf("paths = %q, want %q", paths, want)
			}
			if all := read(t, filepath.Join(root, want[2])); !strings.Contains(all, k.neighbours) {
				t.Errorf("the import is not in its place:\n%s", all)
			}
			if n := statements(read(t, filepath.Join(root, want[0]))); n > 40 {
				t.Errorf("the plug-in takes %d lines", n)
			}
			if testing.Short() {
				t.Skip("compiling takes seconds")
			}
			// The overlay is the real checkout plus the new files.
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			write(t, overlay, overlayOf(t, root, paths))
			goTool(t, "../..", "", "build", "-overlay="+overlay, "./"+k.Folder+"/all")
			program := filepath.Join(t.TempDir(), "mine.test")
			goTool(t, "../..", "", "test", "-c", "-vet=off", "-overlay="+overlay, "-o="+program, "./"+k.Folder+"/mine")
			out, err := exec.Command(program, "-test.v").CombinedOutput()
			if n := strings.Count(string(out), "--- PASS: TestConformance/"); err != nil || n < k.rules {
				t.Errorf("%v, %d rules were checked:\n%s", err, n, out)
			}
		})
	}
}

// overlayOf is a file for the go command's flag -overlay: the files at paths in
// root stand for those in this checkout.
func overlayOf(t *testing.T, root string, paths []string) string {
	t.Helper()
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, path := range paths {
		replace[filepath.Join(here, path)] = filepath.Join(root, path)
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// statements counts the lines of a file that are neither blank nor comments.
func statements(source string) (n int) {
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// TestModule: the module that Module writes compiles offline and passes the conformance
// suite, its program has the new plug-in and the old ones, and the checkout is unchanged.
func TestModule(t *testing.T) {
	if strings.TrimSpace(goTool(t, "", "", "env", "CGO_ENABLED")) != "1" {
		t.Skip("the program that is built needs cgo, which is off")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// the program's arguments, its input, and its output
	runs := map[string][][3]string{
		"objective": {
			{"weights --objective=mine", batch, `"advantage":0.5,"weights":[-0.125,-0.125]`},
			{"train --objective=mine --dry-run", "", "weights"},
			{"weights --objective=pmpo --explain", batch, "eta*"},
		},
		"reward": {
			{"rewards show mine", "", "ignore_case = true"},
			{"train --set=reward.name=mine --dry-run", "", "weights"},
			{"rewards", "", "math "},
		},
		"environment": {
			{"environments", "", "the policy guesses a number"},
		},
	}
	for _, k := range kinds {
		t.Run(k.templates, func(t *testing.T) {
			before := goFilesOf(t, filepath.Join(root, k.Folder))
			dir := filepath.Join(t.TempDir(), "a folder", "mine")
			write(t, filepath.Join(filepath.Dir(dir), "neighbour"), "")
			paths, err := k.Module(root, dir, "mine")
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"go.mod", "go.sum", "mine.go", "mine_test.go", filepath.Join("cmd", "mine", "main.go")}; !slices.Equal(paths, want) {
				t.Errorf("paths = %q, want %q", paths, want)
			}
			if after := goFilesOf(t, filepath.Join(root, k.Folder)); !slices.Equal(before, after) {
				t.Errorf("the checkout changed from\n%q\nto\n%q", before, after)
			}
			if testing.Short() {
				t.Skip("compiling takes seconds")
			}
			out := goTool(t, dir, "", "test", "-v", "./...")
			if n := strings.Count(out, "--- PASS: TestConformance/"); n < k.rules {
				t.Errorf("%d rules were checked:\n%s", n, out)
			}
			for _, r := range runs[k.templates] {
				args := append([]string{"run", "./cmd/mine"}, strings.Fields(r[0])...)
				if out := goTool(t, dir, r[1], args...); !strings.Contains(out, r[2]) {
					t.Errorf("%s printed\n%s\nwithout %s", r[0], out, r[2])
				}
			}
		})
	}
}

func goFilesOf(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path+"\n"+read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestModuleVersions: a module gets the versions that the checkout requires, so
// that it builds without the network.
func TestModuleVersions(t *testing.T) {
	root := checkout(t)
	write(t, filepath.Join(root, "go.mod"), "module onering\n\ngo 1.26.8\n\nrequire (\n\texample.org/x v1.2.3 // indirect\n)\n")
	write(t, filepath.Join(root, "go.sum"), "example.org/x v1.2.3 h1:sum=\n")
	dir := filepath.Join(t.TempDir(), "mine")
	if _, err := Kinds["objective"].Module(root, dir, "mine"); err != nil {
		t.Fatal(err)
	}
	gomod := read(t, filepath.Join(dir, "go.mod"))
	for _, want := range []string{"module example.com/mine\n", "require onering v0.0.0\n", "replace onering => ", "go 1.26.8\n", "example.org/x v1.2.3"} {
		if strings.Count(gomod, want) != 1 {
			t.Errorf("go.mod has %q %d times:\n%s", want, strings.Count(gomod, want), gomod)
		}
	}
	if sums := read(t, filepath.Join(dir, "go.sum")); sums != read(t, filepath.Join(root, "go.sum")) {
		t.Errorf("go.sum = %q", sums)
	}
}

func TestRefusals(t *testing.T) {
	for _, k := range kinds {
		root := checkout(t)
		write(t, filepath.Join(root, k.Folder, "taken", "note"), "")
		elsewhere := t.TempDir()
		write(t, filepath.Join(elsewhere, "go.mod"), "module other\n")
		before := goFilesOf(t, root)
		for _, test := range []struct{ root, name, want string }{
			{root, "", "small letters"},
			{root, "Mine", "small letters"},
			{root, "../mine", "small letters"},
			{root, "9to5", "small letters"},
			{root, "func", "keyword"},
			{root, "all", "means something else"},
			{root, k.reserved, "means something else"},
			{root, k.taken, "imported already"},
			{root, "taken", "taken exists: remove it or choose another name"},
			{elsewhere, "mine", `module "other"`},
			{filepath.Join(elsewhere, "nowhere"), "mine", "root of a checkout"},
		} {
			if _, err := k.Add(test.root, test.name); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: Add(%q): %v, want an error with %q", k.templates, test.name, err, test.want)
			}
			if test.want == "imported already" {
				continue // no matter to a module
			}
			dir := filepath.Join(root, k.Folder, "taken")
			if _, err := k.Module(test.root, dir, test.name); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: Module(%q): %v, want an error with %q", k.templates, test.name, err, test.want)
			}
		}
		if after := goFilesOf(t, root); !slices.Equal(before, after) {
			t.Errorf("%s: a refusal left something behind", k.templates)
		}
	}
}

// TestOddRoots has a path that go.mod must quote, a go.sum that cannot be read, and a
// go.mod that names no module.
func TestOddRoots(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a checkout")
	write(t, filepath.Join(root, "go.mod"), "module onering\n\ngo 1.26\n")
	dir := filepath.Join(t.TempDir(), "mine")
	if _, err := Kinds["objective"].Module(root, dir, "mine"); err != nil {
		t.Fatal(err)
	}
	if gomod := read(t, filepath.Join(dir, "go.mod")); !strings.Contains(gomod, `replace onering => "`) {
		t.Errorf("the path is not quoted:\n%s", gomod)
	}
	// The go command reads the path back.
	if out := goTool(t, dir, "", "list", "-m", "-f", "{{.Path}}", "all"); !strings.Contains(out, "onering") {
		t.Errorf("go list says %q", out)
	}
	write(t, filepath.Join(root, "go.sum", "x"), "")
	if _, err := Kinds["objective"].Module(root, dir+"2", "mine"); err == nil || !strings.Contains(err.Error(), "go.sum") {
		t.Errorf("go.sum is a folder: %v", err)
	}
	write(t, filepath.Join(root, "go.mod"), "go 1.26\n")
	if _, err := Kinds["objective"].Module(root, dir+"3", "mine"); err == nil || !strings.Contains(err.Error(), `module ""`) {
		t.Errorf("go.mod without a module: %v", err)
	}
}

// TestAddUndone: where Add cannot write the import, it also removes the new folder.
func TestAddUndone(t *testing.T) {
	for _, all := range []string{"package all\n", "package all\n\nimport (\n\tthis is not an import\n)\n"} {
		root := checkout(t)
		write(t, filepath.Join(root, "objectives", "all", "all.go"), all)
		if _, err := Kinds["objective"].Add(root, "mine"); err == nil {
			t.Errorf("no error for %q", all)
		}
		if _, err := os.Stat(filepath.Join(root, "objectives", "mine")); err == nil {
			t.Errorf("the folder was left behind for %q", all)
		}
	}
	root := checkout(t)
	if err := os.Remove(filepath.Join(root, "objectives", "all", "all.go")); err != nil {
		t.Fatal(err)
	}
	if _, err := Kinds["objective"].Add(root, "mine"); err == nil {
		t.Error("no error without objectives/all")
	}
}

// TestUnwritable: an error of the file system names the place.
func TestUnwritable(t *testing.T) {
	root := checkout(t)
	blocked := filepath.Join(t.TempDir(), "file")
	write(t, blocked, "")
	for _, dir := range []string{
		filepath.Join(blocked, "mine"),                   // under a file
		filepath.Join(t.TempDir(), "no", "such", "mine"), // under nothing
	} {
		if _, err := Kinds["objective"].Module(root, dir, "mine"); err == nil || !strings.Contains(err.Error(), filepath.Dir(dir)) {
			t.Errorf("Module in %s: %v", dir, err)
		}
	}
	for _, broken := range []file{{"x.go", "no.such.tmpl", nil}, {"a/b", "", nil}} {
		dir := filepath.Join(t.TempDir(), "mine")
		files := []file{{"a", "", []byte("a file where a/b wants a folder")}, broken}
		if paths, err := writeFolder(dir, newFields("mine", "mine"), files); err == nil || paths != nil {
			t.Errorf("writeFolder of %q gave %q", broken.path, paths)
		}
		if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 0 {
			t.Errorf("writeFolder of %q left %v behind (%v)", broken.path, left, err)
		}
	}
}
