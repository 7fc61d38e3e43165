package cmd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A launcher starts this program with several ranks.
type launcher struct {
	t      *testing.T
	folder string // with links to the test binary, which TestMain runs by its name
	env    []string
}

// newLauncher skips the test where Open MPI or ONNX Runtime is missing.
func newLauncher(t *testing.T) launcher {
	t.Helper()
	if version, err := exec.Command("mpirun", "--version").Output(); err != nil || !strings.Contains(string(version), "Open MPI") {
		t.Skipf("mpirun of Open MPI cannot be run: %v", err)
	}
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	l := launcher{t, t.TempDir(), append(program().Env, "ONERING_RUNTIME_THREADS=1")}
	for _, name := range []string{"onering", "weighed"} {
		if err := os.Symlink(os.Args[0], filepath.Join(l.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// command starts a program of the folder with n ranks; 1 is without a launcher.
func (l launcher) command(n int, name string, args ...string) *exec.Cmd {
	name = filepath.Join(l.folder, name)
	c := exec.Command(name, args...)
	if n > 1 {
		c = exec.Command("mpirun", append([]string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", strconv.Itoa(n), name}, args...)...)
	}
	c.Env = l.env
	return c
}

// run returns what n ranks of onering print.
func (l launcher) run(n int, stdin string, args ...string) (stdout string) {
	l.t.Helper()
	c := l.command(n, "onering", args...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.Run(); err != nil {
		l.t.Fatalf("%d ranks of onering %s: %v\n%s%s", n, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}
