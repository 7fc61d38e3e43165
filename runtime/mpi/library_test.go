package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLaunched(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want string // "" for a plain start
	}{
		{"", ""},
		{"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=2 SLURM_PROCID=0", "mpirun of Open MPI 2/4 Open MPI"},
		{"PMI_RANK=1 PMI_SIZE=3", "mpiexec of MPICH 1/3 MPICH"},
		{"PMIX_RANK=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=8", "srun 1/8 "},
		{"PMI_RANK=1 PMI_SIZE=8 SLURM_STEP_NUM_TASKS=8", "srun 1/8 "},
		{"PMIX_RANK=5", "mpiexec (PMIx) 5/0 "},
		{"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", "srun without PMI 1/2 "},
		{"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", ""}, // srun --pty bash
		{"SLURM_PROCID=0 SLURM_NTASKS=4", ""},         // a batch script
		{"OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=4", ""},
		{"PMI_RANK=-1 PMI_SIZE=2", ""},
	} {
		env := map[string]string{}
		for _, f := range strings.Fields(tt.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		l, ok := launched(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
		got := ""
		if ok {
			got = fmt.Sprintf("%s %d/%d %s", l.Launcher, l.Rank, l.Size, l.kind)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.env, got, tt.want)
		}
	}
}

func TestKnown(t *testing.T) {
	const ompi = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022"
	for _, tt := range []struct {
		path, version string
		symbols       bool
		want          string
	}{
		{"/lib/libmpi.so.40", ompi, true, "Open MPI: Open MPI 4.1.4"},
		{"/lib/libmpi.so.40", "Open MPI v5.0.0rc12, package", true, "Open MPI: Open MPI 5.0.0rc12"},
		{"/lib/libmpi.so.40", ompi, false, "error: it calls itself Open MPI 4.1.4, but is not built like one: parts of two libraries seem mixed"},
		{"/lib/libmpi.so.20", "Open MPI v2.1.1, package", true, "error: Open MPI 2.1.1 is too old: it must be version 4 or newer"},
		{"/lib/libmpich.so.12", "MPICH Version:      4.0.2\nMPICH Release date: x", false, "MPICH: MPICH 4.0.2"},
		{"/lib/libmpich.so.12", "MPICH Version:\t3.4\n", false, "error: MPICH 3.4 is too old: it must be version 4 or newer"},
		{"/lib/libmpi.so.12", "Intel(R) MPI Library 2021.10 for Linux* OS\n", false, "MPICH: Intel MPI 2021.10"},
		{"/lib/libmpi.so.12", "MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)", false, "MPICH: Cray MPICH 8.1.25.17"},
		{"/lib/libmpi.so.12", "MVAPICH Version      :	3.0rc\n", false, "MPICH: MVAPICH 3.0rc"},
		{"/lib/libmpi_abi.so.0.0.0", "MPICH Version:      5.0.0\n", false, "the ABI of MPI 5: MPICH 5.0.0"},
		{"/lib/libmpi_abi.so.1", "Open MPI v6.0.0, package", true, "the ABI of MPI 5: Open MPI 6.0.0"},
		{"/lib/libmpi_abi.so.1", "Another 1\nmore", false, "the ABI of MPI 5: Another 1"},
		{"/lib/libmpi.so", "Another 1\nmore", false, `error: it calls itself "Another 1", which onering does not know: it calls Open MPI, MPICH with its relatives, and the ABI of MPI 5`},
	} {
		l, err := Library{Name: tt.version, Path: tt.path, openMPISymbols: tt.symbols}.known()
		got := fmt.Sprintf("%s: %s", l.Kind, l.Name)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != tt.want {
			t.Errorf("%s, %q: %s, want %s", tt.path, tt.version, got, tt.want)
		}
	}
}

// fake compiles testdata/fake.c.
func fake(t *testing.T, name, version string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args := append(flags, "-shared", "-fPIC", "-w", "-DVERSION="+fmt.Sprintf("%q", version), "-o", path, filepath.Join("testdata", "fake.c"))
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Skipf("cc cannot compile a library: %v\n%s", err, out)
	}
	return path
}

// alone makes this test binary the only rank that MPICH's launcher started.
func alone(program string, env ...string) (string, error) {
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), "ONERING_MPI_TEST="+program, "PMI_RANK=0", "PMI_SIZE=1"), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// A nil pointer stays a panic that can be recovered although the library takes over the
// signals, with handles of both types. A library that hangs at its end is not waited for.
func TestFakes(t *testing.T) {
	const mpich = "MPICH Version: 4.9"
	for _, path := range []string{
		fake(t, "libmpi_abi.so.1", "Another 1"),
		fake(t, "libmpich.so.12", mpich, "-DINTS"),
	} {
		if out, err := alone("nil", "ONERING_MPI="+path); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
	out, err := alone("stop the end", "ONERING_MPI="+fake(t, "libmpich.so.12", mpich, "-DINTS", "-DHANG"))
	if err == nil || !strings.Contains(out, "MPICH 4.9 has not ended after 3s (MPI_Finalize)") {
		t.Errorf("a library that does not end: %v\n%s", err, out)
	}
}

// TestRefused: without a library that fits, one error says which were tried and gives the
// remedy.
func TestRefused(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libmpi.so.12")
	for _, tt := range []struct {
		env  []string
		want []string
	}{
		{[]string{"ONERING_MPI=" + missing}, []string{"cannot use " + missing + ", which ONERING_MPI or a setting names", "cannot open shared object file"}},
		{[]string{"ONERING_MPI=" + fake(t, "libmpi.so.12", "Another 2")}, []string{`calls itself "Another 2"`}},
		{[]string{"ONERING_MPI=" + fake(t, "libmpi.so.12", "Open MPI v4.1.4, package")}, []string{"parts of two libraries seem mixed"}},
		{[]string{"ONERING_MPI=" + fake(t, "libmpi.so.12", "MPICH Version: 4.9", "-DINTS"), "PMI_SIZE=2"}, []string{"mpiexec of MPICH started 2 ranks, but MPICH 4.9 (", "sees 1", "name the launcher's library in ONERING_MPI"}},
		{[]string{"PATH=/nowhere", "LD_LIBRARY_PATH=", "PMI_RANK=", "OMPI_COMM_WORLD_RANK=x"}, []string{"was not started by a launcher of MPI"}},
	} {
		out, err := alone("close", tt.env...)
		if err == nil {
			t.Errorf("%v: no error", tt.env)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: nobody says %q:\n%s", tt.env, want, out)
			}
		}
	}
}

// If any library may belong to the launcher, the launcher's protocol decides which is
// tried first.
func TestLikelyLibrary(t *testing.T) {
	for likely, first := range map[kind]string{mpich: "libmpi.so.12", openMPI: "libmpi.so.40", 0: "libmpi.so.40"} {
		got := launch{likely: likely}.names()
		if want := slices.Sorted(slices.Values(names[0])); got[0] != first || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("%v: %q, want all of %q and %s first", likely, got, want, first)
		}
	}
	if l, ok := launched(func(name string) (string, bool) {
		value, ok := map[string]string{"PMI_RANK": "1", "SLURM_STEP_NUM_TASKS": "2"}[name]
		return value, ok
	}); !ok || l.likely != mpich || l.kind != 0 {
		t.Errorf("srun with PMI-2: %+v", l)
	}
}

// A library of another kind than the launcher's is not taken.
func TestLauncherDecides(t *testing.T) {
	_, err := open("", launch{Launcher: "mpirun of Nobody", kind: 99})
	if err == nil || !strings.Contains(err.Error(), "mpirun of Nobody started this process, but no library") || !strings.Contains(err.Error(), "name the file in ONERING_MPI") {
		t.Errorf("%v", err)
	}
	folder := filepath.Dir(fake(t, "libmpi.so.40", "MPICH Version: 4.9", "-DINTS"))
	out, err := alone("close", "LD_LIBRARY_PATH="+folder, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1")
	if err == nil || !strings.Contains(out, "it is MPICH 4.9, and the launcher is of Open MPI") {
		t.Errorf("MPICH under Open MPI's mpirun: %v\n%s", err, out)
	}
}
