package cuda

// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unsafe"

	"onering/internal/files"
)

// Names of NVIDIA libraries, as the system's loader knows them.
const (
	driverLibrary  = "libcuda.so.1"
	runtimeLibrary = "libcudart.so.13"
	cudnnLibrary   = "libcudnn.so.9"
	ncclLibrary    = "libnccl.so.2"
)

// cudaLibraries are the libraries that the CUDA provider of the pinned version needs, in the order in which they must
// be loaded, and where each comes from. ONNX Runtime opens cuDNN by name when a kernel first needs it.
var cudaLibraries = []struct{ name, from string }{
	{driverLibrary, "the NVIDIA driver"},
	{runtimeLibrary, "CUDA 13, or pip's nvidia-cuda-runtime"},
	{"libcublasLt.so.13", "CUDA 13, or pip's nvidia-cublas"},
	{"libcublas.so.13", "CUDA 13, or pip's nvidia-cublas"},
	{"libcurand.so.10", "CUDA 13, or pip's nvidia-curand"},
	{cudnnLibrary, "cuDNN 9, or pip's nvidia-cudnn-cu13"},
}

// nvidia matches the names of NVIDIA's libraries.
var nvidia = regexp.MustCompile(`^lib(cu|nv)`)

// needs lists the NVIDIA libraries that the provider at path was linked with, and cuDNN, in the order in which they
// must be loaded. If path is "" the list is that of the pinned version.
func needs(path string) ([]string, error) {
	var known []string
	for _, l := range cudaLibraries {
		known = append(known, l.name)
	}
	if path == "" {
		return known, nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%q is not a shared library (%w)", path, err)
	}
	defer f.Close()
	linked, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%q does not say what it needs (%w)", path, err)
	}
	linked = slices.DeleteFunc(linked, func(name string) bool { return !nvidia.MatchString(name) })
	linked = append(linked, cudnnLibrary)
	rank := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortStableFunc(linked, func(a, b string) int { return rank(a) - rank(b) })
	return linked, nil
}

// comesWith names the package that contains a library.
func comesWith(name string) string {
	if name == ncclLibrary {
		return "NCCL 2, PyTorch, or pip's nvidia-nccl-cu13"
	}
	for _, l := range cudaLibraries {
		if l.name == name {
			return l.from
		}
	}
	return "the CUDA version that the provider is built with"
}

// cudaDirs returns folders with CUDA's libraries that the system's loader may not
// know: those of CUDA and of pip's packages.
func cudaDirs(ctx context.Context) []string {
	dirs := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	add := func(root string, patterns ...string) {
		for _, p := range patterns {
			dirs = append(dirs, files.Glob(root, p)...)
		}
	}
	add("/usr/local", "cuda/lib64", "cuda-13*/lib64")
	add("/usr/lib", "wsl/lib")
	for _, root := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		if root != "" {
			add(root, "lib", "lib/python3*/site-packages/nvidia/*/lib")
		}
	}
	for _, site := range pythonPath(ctx) {
		add(site, "nvidia/*/lib")
	}
	add("/usr/local/lib", "python3*/*-packages/nvidia/*/lib")
	add("/usr/lib", "python3*/*-packages/nvidia/*/lib")
	if home, err := os.UserHomeDir(); err == nil {
		add(home, ".local/lib/python3*/site-packages/nvidia/*/lib")
	}
	return dirs
}

// pythonPath returns the folders in which the Python on the PATH looks for packages, nil if there is no Python.
func pythonPath(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-c", `import sys; print("\n".join(p for p in sys.path if p))`).Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func driver() ([]string, int, error) { return describe(driverLibrary) }

// describe opens the NVIDIA driver's library and describes its GPUs; see provider.driver.
func describe(library string) (gpus []string, version int, err error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var list [64]C.onering_gpu
	var v C.int
	var msg *C.char
	n := C.onering_cuda_driver(name, &list[0], C.int(len(list)), &v, &msg)
	if n < 0 {
		return nil, int(v), said(msg)
	}
	for _, g := range list[:min(int(n), len(list))] {
		gpus = append(gpus, fmt.Sprintf("%s, %.1f GiB, compute capability %d.%d", C.GoString(&g.name[0]), float64(g.bytes)/(1<<30), g.major, g.minor))
	}
	return gpus, int(v), nil
}

// room asks the NVIDIA driver's library for provider.Room.
func room(library string, number int) (string, int64) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var gpu C.onering_gpu // stays zero if the call fails
	C.onering_cuda_room(name, C.int(number), &gpu)
	return C.GoString(&gpu.name[0]), int64(gpu.bytes)
}

// preload implements provider.preload.
func preload(library string) (string, error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	path := C.onering_preload(name, &msg)
	if path == nil {
		return "", said(msg)
	}
	defer C.free(unsafe.Pointer(path))
	return C.GoString(path), nil
}
