package runtime

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A CUDAReport says what running on a GPU would need.
type CUDAReport struct {
	Devices   []string          `json:"devices"`          // the GPUs that the driver shows
	Driver    string            `json:"driver,omitempty"` // the newest CUDA that the driver supports, such as "13.0"
	Libraries map[string]string `json:"libraries"`        // library name -> path, "" where it is missing
	Missing   []string          `json:"missing"`          // in sentences with the remedy
}

// cudaLibraries are what the CUDA provider of the pinned version needs, in the
// order in which they need one another, and where each comes from. cuDNN it
// opens by name when a kernel first wants it.
var cudaLibraries = []struct{ name, from string }{
	{driverLibrary, "the NVIDIA driver"},
	{cudartLibrary, "CUDA 13, or pip's nvidia-cuda-runtime"},
	{"libcublasLt.so.13", "CUDA 13, or pip's nvidia-cublas"},
	{"libcublas.so.13", "CUDA 13, or pip's nvidia-cublas"},
	{"libcurand.so.10", "CUDA 13, or pip's nvidia-curand"},
	{cudnnLibrary, "cuDNN 9, or pip's nvidia-cudnn-cu13"},
}

const (
	driverLibrary = "libcuda.so.1"
	cudartLibrary = "libcudart.so.13"
	cudnnLibrary  = "libcudnn.so.9"
	cudaProvider  = "libonnxruntime_providers_cuda.so"
	// cudaVersion is what the pinned provider is built with, as cudaDriver
	// counts, and minDriver the first Linux driver that supports it.
	cudaVersion = 13000
	minDriver   = "580"
)

// A cudaSearch is where the parts of CUDA are looked for.
type cudaSearch struct {
	driver string                       // name or path of the driver's library
	dirs   func() []string              // folders that the system's loader may not know
	load   func(string) (string, error) // preload
}

func newCUDASearch(ctx context.Context) cudaSearch {
	return cudaSearch{driverLibrary, func() []string { return cudaDirs(ctx) }, preload}
}

// report looks for what a GPU needs, where the system's loader looks and then in
// dirs, and loads it, so that the provider beside library, which is "" where
// there is none, finds it.
func (c cudaSearch) report(library string) CUDAReport {
	r := CUDAReport{Devices: []string{}, Libraries: map[string]string{}, Missing: []string{}}
	missing := func(format string, args ...any) { r.Missing = append(r.Missing, fmt.Sprintf(format, args...)) }
	if goruntime.GOOS != "linux" {
		missing("a GPU is used on Linux only")
		return r
	}
	gpus, version, driverErr := cudaDriver(c.driver)
	for _, g := range gpus {
		r.Devices = append(r.Devices, g.String())
	}
	if version > 0 {
		r.Driver = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	}
	switch {
	case driverErr != nil:
		missing("no GPU can be reached: %v: install the NVIDIA driver, %s or newer", driverErr, minDriver)
	case len(gpus) == 0:
		missing("the NVIDIA driver shows no GPU: see CUDA_VISIBLE_DEVICES and, in a container, whether it was given one")
	case version < cudaVersion:
		missing("the NVIDIA driver supports CUDA up to %s, the provider needs 13.0: update it to %s or newer", r.Driver, minDriver)
	}
	provider := ""
	if library != "" {
		provider = besideLibrary(library, cudaProvider)
	}
	r.Libraries[cudaProvider] = provider
	if provider == "" {
		missing("there is no %s beside an ONNX Runtime library: a run on a GPU fetches pip's %s, or name a folder that has both with %s", cudaProvider, cudaRef, envLibrary)
	}
	names, err := providerNeeds(provider)
	if err != nil {
		missing("%v", err)
	}
	dirs := sync.OnceValue(c.dirs)
	for _, name := range names {
		if name == driverLibrary {
			r.Libraries[name] = ""
			if driverErr == nil {
				r.Libraries[name] = c.driver
			}
			continue // said above
		}
		path, err := c.load(name)
		if err != nil {
			found := firstWith(dirs(), name)
			if found == "" {
				missing("%s is missing: it comes with %s", name, comesWith(name))
			} else if path, err = c.load(found); err != nil {
				missing("%s cannot be loaded: %v", found, err)
			}
		}
		r.Libraries[name] = path
	}
	return r
}

// nvidia matches the names of the libraries that are not the system's own.
var nvidia = regexp.MustCompile(`^lib(cu|nv)`)

// providerNeeds lists the NVIDIA libraries that the provider at path was linked
// with, and cuDNN, in the order in which they are to be loaded. Without a
// provider they are those of the pinned version.
func providerNeeds(path string) ([]string, error) {
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

// comesWith says where a library comes from.
func comesWith(name string) string {
	for _, l := range cudaLibraries {
		if l.name == name {
			return l.from
		}
	}
	return "the CUDA version that the provider is built with"
}

// cudaDirs are folders with CUDA's libraries that the system's loader may not
// know: CUDA's own, and those of pip's packages.
func cudaDirs(ctx context.Context) []string {
	dirs := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	patterns := []string{"/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64", "/usr/lib/wsl/lib"}
	for _, root := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		if root != "" {
			patterns = append(patterns, filepath.Join(root, "lib"), filepath.Join(root, "lib/python3*/site-packages/nvidia/*/lib"))
		}
	}
	for _, site := range pythonPath(ctx) {
		patterns = append(patterns, filepath.Join(site, "nvidia/*/lib"))
	}
	patterns = append(patterns, "/usr/local/lib/python3*/*-packages/nvidia/*/lib", "/usr/lib/python3*/*-packages/nvidia/*/lib")
	if home, err := os.UserHomeDir(); err == nil {
		patterns = append(patterns, filepath.Join(home, ".local/lib/python3*/site-packages/nvidia/*/lib"))
	}
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // errs only on a malformed pattern
		dirs = append(dirs, found...)
	}
	return dirs
}

// pythonPath is where the Python on the PATH looks for packages, or nothing.
func pythonPath(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-c", `import sys; print("\n".join(p for p in sys.path if p))`).Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// firstWith returns the path of the first of dirs' files called name, or "".
func firstWith(dirs []string, name string) string {
	for _, d := range dirs {
		path := filepath.Join(d, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
