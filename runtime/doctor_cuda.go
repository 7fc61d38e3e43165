package runtime

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"
)

// cudaLibraries are what ONNX Runtime's CUDA provider loads, for the build of
// the pinned version, and where each comes from.
var cudaLibraries = []struct{ name, from string }{
	{"libcuda.so.1", "the NVIDIA driver"},
	{"libcudart.so.13", "CUDA 13, or pip's nvidia-cuda-runtime"},
	{"libcublas.so.13", "CUDA 13, or pip's nvidia-cublas"},
	{"libcublasLt.so.13", "CUDA 13, or pip's nvidia-cublas"},
	{"libcurand.so.10", "CUDA 13, or pip's nvidia-curand"},
	{"libcudnn.so.9", "cuDNN 9, or pip's nvidia-cudnn-cu13"},
}

const cudaProvider = "libonnxruntime_providers_cuda.so"

// cuda looks for what a GPU needs, without loading any of it. library is the
// path of the ONNX Runtime in use, or "".
func cuda(ctx context.Context, library string) CUDAReport {
	r := CUDAReport{Devices: []string{}, Libraries: map[string]string{}, Missing: []string{}}
	if goruntime.GOOS != "linux" {
		r.Missing = append(r.Missing, "a GPU is used on Linux only")
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader").Output(); err == nil {
		for name := range strings.Lines(string(out)) {
			r.Devices = append(r.Devices, strings.TrimSpace(name))
		}
	}
	if len(r.Devices) == 0 {
		r.Missing = append(r.Missing, "nvidia-smi shows no GPU")
	}
	dirs := cudaDirs()
	for _, l := range cudaLibraries {
		path := firstWith(dirs, l.name)
		r.Libraries[l.name] = path
		if path == "" {
			r.Missing = append(r.Missing, fmt.Sprintf("%s is missing: it comes with %s", l.name, l.from))
		}
	}
	provider := ""
	if library != "" {
		if real, err := filepath.EvalSymlinks(library); err == nil {
			provider = firstWith([]string{filepath.Dir(library), filepath.Dir(real)}, cudaProvider)
		}
	}
	r.Libraries[cudaProvider] = provider
	if provider == "" {
		r.Missing = append(r.Missing, fmt.Sprintf("%s does not lie beside the library: name the one of pip's onnxruntime-gpu %s with %s", cudaProvider, pinned, envLibrary))
	}
	return r
}

// cudaDirs are the folders where CUDA's libraries may be.
func cudaDirs() []string {
	dirs := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[goruntime.GOARCH]
	dirs = append(dirs, "/usr/local/cuda/lib64", "/usr/lib/"+triplet, "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/lib/wsl/lib")
	patterns := []string{"/usr/local/cuda-13*/lib64", "/usr/local/lib/python3*/*-packages/nvidia/*/lib", "/usr/lib/python3*/*-packages/nvidia/*/lib"}
	for _, root := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		if root != "" {
			patterns = append(patterns, filepath.Join(root, "lib"), filepath.Join(root, "lib/python3*/site-packages/nvidia/*/lib"))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		patterns = append(patterns, filepath.Join(home, ".local/lib/python3*/site-packages/nvidia/*/lib"))
	}
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // errs only on a malformed pattern
		dirs = append(dirs, found...)
	}
	return dirs
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
