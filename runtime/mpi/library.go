package mpi

// #include <stdlib.h>
// #include "mpi.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// A kind is a family of MPI libraries whose handles are alike.
type kind int

const (
	openMPI     kind = C.ONERING_OPEN_MPI // and its relatives
	mpich       kind = C.ONERING_MPICH    // and its relatives: Intel MPI, MVAPICH, Cray MPICH
	standardABI kind = C.ONERING_ABI      // any library with the ABI of MPI 5
)

func (k kind) String() string {
	return map[kind]string{openMPI: "Open MPI", mpich: "MPICH", standardABI: "the ABI of MPI 5"}[k]
}

// A Library is an MPI library that was opened.
type Library struct {
	Kind           kind   `json:"-"`
	Name           string `json:"name"` // its own name, such as "Open MPI 4.1.4"
	Path           string `json:"path"`
	openMPISymbols bool   // it has the handles of Open MPI
}

// names are the file names of each kind, the newest first.
var names = map[kind][]string{
	openMPI: {"libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so.0"},
	mpich:   {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"},
	0:       {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", "libmpi_abi.so.0"},
}

// names are the file names to look for, in order.
func (l launch) names() []string {
	if l.kind != 0 {
		return names[l.kind]
	}
	list := slices.Clone(names[l.likely])
	for _, name := range names[0] {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// open opens the library at a path or, where that is empty, one of the kind that the launcher wants: by its name,
// where the system looks for libraries, or beside the mpirun of PATH.
func open(path string, l launch) (Library, error) {
	if path != "" {
		lib, err := load(path)
		if err != nil {
			return Library{}, fmt.Errorf("mpi: cannot use %s, which ONERING_MPI or a setting names: %w", path, err)
		}
		return lib, nil
	}
	tries := l.names()
	for _, program := range []string{"mpirun", "mpiexec"} {
		if at, err := exec.LookPath(program); err == nil {
			if at, err = filepath.EvalSymlinks(at); err == nil {
				prefix := filepath.Dir(filepath.Dir(at))
				for _, name := range l.names() {
					tries = append(tries[:len(tries):len(tries)], filepath.Join(prefix, "lib", name), filepath.Join(prefix, "lib64", name))
				}
			}
		}
	}
	var failed []string
	for _, name := range tries {
		lib, err := load(name)
		if err == nil && l.kind != 0 && lib.Kind != l.kind && lib.Kind != standardABI {
			err = fmt.Errorf("it is %s, and the launcher is of %s", lib.Name, l.kind)
		}
		if err == nil {
			return lib, nil
		}
		if !strings.Contains(err.Error(), "No such file") {
			failed = append(failed, fmt.Sprintf("%s: %v", name, err))
		}
	}
	return Library{}, notFound(l, failed)
}

func notFound(l launch, failed []string) error {
	text := fmt.Sprintf("mpi: %s started this process, but no library of %s can be used (looked for %s)", l.Launcher,
		cmp.Or(l.kind.String(), "MPI"), strings.Join(l.names(), ", "))
	for _, f := range failed {
		text += "\n  " + f
	}
	return errors.New(text + "\n  install the library that belongs to the launcher (Debian: libopenmpi3 or " +
		"libmpich12), add its folder to LD_LIBRARY_PATH, or name the file in ONERING_MPI")
}

// load opens a library and asks what it is. It must be one that onering can call.
func load(name string) (Library, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var path, version, fault *C.char
	var symbols C.int
	if C.onering_mpi_open(text, &path, &version, &symbols, &fault) != 0 {
		defer C.free(unsafe.Pointer(fault))
		return Library{}, errors.New(C.GoString(fault))
	}
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(version))
	return Library{Name: C.GoString(version), Path: C.GoString(path), openMPISymbols: symbols != 0}.known()
}

// families recognize libraries by their own names. Those of MPICH's family kept its handles from version 3.1 on.
var families = []struct {
	name    string
	pattern *regexp.Regexp // matches the version, with its first number
	kind    kind
	oldest  int // least first number
}{
	{"Open MPI", regexp.MustCompile(`Open MPI v?((\d+)[.\d]*\w*)`), openMPI, 4},
	{"Cray MPICH", regexp.MustCompile(`CRAY MPICH version\s+((\d+)[.\d]*)`), mpich, 7},
	{"MPICH", regexp.MustCompile(`MPICH Version:\s+((\d+)[.\d]*\w*)`), mpich, 4},
	{"Intel MPI", regexp.MustCompile(`Intel\(R\) MPI Library ((\d+)[.\d]*)`), mpich, 2019},
	{"MVAPICH", regexp.MustCompile(`MVAPICH2? Version\s*:\s+((\d+)[.\d]*\w*)`), mpich, 3},
}

// known returns l with its kind and a short name, such as "Open MPI 4.1.4", or an error if onering cannot call it.
// The ABI of MPI 5 is recognized by the file's name, which the standard fixes.
func (l Library) known() (Library, error) {
	full := l.Name
	abi := strings.HasPrefix(filepath.Base(l.Path), "libmpi_abi.") // any version of it will do
	for _, f := range families {
		m := f.pattern.FindStringSubmatch(full)
		if m == nil {
			continue
		}
		l.Name, l.Kind = f.name+" "+m[1], f.kind
		if major, _ := strconv.Atoi(m[2]); major < f.oldest && !abi {
			return l, fmt.Errorf("%s is too old: it must be version %d or newer", l.Name, f.oldest)
		}
		break
	}
	first, _, _ := strings.Cut(full, "\n")
	switch {
	case abi:
		if l.Kind == 0 {
			l.Name = first
		}
		l.Kind = standardABI
	case l.Kind == 0:
		return l, fmt.Errorf("it calls itself %q, which onering does not know: it calls Open MPI, MPICH with its relatives, and the ABI of MPI 5", first)
	case (l.Kind == openMPI) != l.openMPISymbols:
		return l, fmt.Errorf("it calls itself %s, but is not built like one: parts of two libraries seem mixed", l.Name)
	}
	return l, nil
}
