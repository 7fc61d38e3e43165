package provision

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Names of NVIDIA libraries, as the system's loader knows them.
const (
	CUDADriverLibrary  = "libcuda.so.1"
	CUDARuntimeLibrary = "libcudart.so.13"

	cudnnLibrary = "libcudnn.so.9"
	cudaProvider = "libonnxruntime_providers_cuda.so"
)

// cudaVersion is the CUDA version that the pinned provider is built with, counted
// as Loader.GPUs does, and minDriver the first Linux driver that supports it.
const (
	cudaVersion = 13000
	minDriver   = "580"
)

// A CUDAReport says what running on a GPU needs and what of it is here.
type CUDAReport struct {
	Devices   []string          `json:"devices"`          // the GPUs that the driver shows
	Driver    string            `json:"driver,omitempty"` // the newest CUDA that the driver supports, such as "13.0"
	Libraries map[string]string `json:"libraries"`        // library name -> path, "" if it is missing
	Missing   []string          `json:"missing"`          // in sentences with the remedy
}

func (r *CUDAReport) missing(format string, args ...any) {
	r.Missing = append(r.Missing, fmt.Sprintf(format, args...))
}

// CUDA finds and checks what running on a GPU needs.
type CUDA struct {
	Loader Loader
	// dirs returns further folders to look for libraries in; cudaDirs if nil.
	dirs func(context.Context) []string
}

// Find finds the library with CUDA for a GPU, numbered from 0, as the function
// Find does for the CPU, and checks that the GPU can be used. It fetches a
// library only if the driver shows the GPU.
func (c CUDA) Find(ctx context.Context, o Options, gpu int) (Location, error) {
	at, err := look(o, cudaKind)
	if err == nil && at.Path == "" {
		if gpus, _, _ := c.Loader.GPUs(); gpu < len(gpus) { // Check names the driver's error
			at, err = find(ctx, o, cudaKind)
		}
	}
	if err != nil {
		return Location{}, err
	}
	return at, c.Check(ctx, at.Path, gpu)
}

// FindIfPresent is Find for the first GPU, with a short error on a machine that
// has no GPU.
func (c CUDA) FindIfPresent(ctx context.Context, o Options) (Location, error) {
	if err := c.present(); err != nil {
		return Location{}, err
	}
	return c.Find(ctx, o, 0)
}

// Foresee is FindIfPresent without fetching: a library that is not here yet is taken to
// come.
func (c CUDA) Foresee(ctx context.Context, o Options) error {
	if err := c.present(); err != nil {
		return err
	}
	at, err := look(o, cudaKind)
	if err != nil {
		return err
	}
	return c.report(ctx, at.Path, at.Path == "" && !o.offline()).check(0)
}

// present returns an error on a machine that has no GPU.
func (c CUDA) present() error {
	gpus, _, err := c.Loader.GPUs()
	if err != nil {
		return fmt.Errorf("no GPU can be reached: %w", err)
	}
	if len(gpus) == 0 {
		return errors.New("the NVIDIA driver shows no GPU")
	}
	return nil
}

// Check returns an *UnusableGPUError if something keeps the library from using a
// GPU.
func (c CUDA) Check(ctx context.Context, library string, gpu int) error {
	return c.Report(ctx, library).check(gpu)
}

func (r CUDAReport) check(gpu int) error {
	if len(r.Missing) == 0 && gpu >= len(r.Devices) {
		r.missing("there is no GPU %d: the driver shows %d, numbered from 0", gpu, len(r.Devices))
	}
	if len(r.Missing) == 0 {
		return nil
	}
	return &UnusableGPUError{fmt.Sprintf("cuda:%d", gpu), r.Missing}
}

// Report looks for what the CUDA provider beside library needs, first where the
// system's loader looks and then in folders that it may not know, and loads what
// it finds, so that the provider finds it too. library is "" if there is none.
func (c CUDA) Report(ctx context.Context, library string) CUDAReport {
	return c.report(ctx, library, false)
}

// report is Report. told says that the provider's absence is none, since a library with it
// is going to be fetched, or was said already.
func (c CUDA) report(ctx context.Context, library string, told bool) CUDAReport {
	r := CUDAReport{Devices: []string{}, Libraries: map[string]string{}, Missing: []string{}}
	if runtime.GOOS != "linux" {
		r.missing("a GPU is used on Linux only")
		return r
	}
	driverErr := c.reportDriver(&r)
	provider := ""
	if library != "" {
		provider = besideLibrary(library, cudaProvider)
	}
	r.Libraries[cudaProvider] = provider
	if provider == "" && !told {
		r.missing("there is no %s beside an ONNX Runtime library: a run on a GPU fetches pip's %s, or name a folder that has both with %s", cudaProvider, cudaRef, envLibrary)
	}
	names, err := providerNeeds(provider)
	if err != nil {
		r.missing("%v", err)
	}
	dirs := sync.OnceValue(func() []string {
		if c.dirs != nil {
			return c.dirs(ctx)
		}
		return cudaDirs(ctx)
	})
	for _, name := range names {
		if name == CUDADriverLibrary { // reportDriver has said what is wrong with it
			r.Libraries[name] = ""
			if driverErr == nil {
				r.Libraries[name] = name
			}
			continue
		}
		path, err := c.Loader.Preload(name)
		if err != nil {
			found := firstWith(dirs(), name)
			if found == "" {
				r.missing("%s is missing: it comes with %s", name, comesWith(name))
			} else if path, err = c.Loader.Preload(found); err != nil {
				r.missing("%s cannot be loaded: %v", found, err)
			}
		}
		r.Libraries[name] = path
	}
	return r
}

// reportDriver fills in the GPUs and the driver's version and what is wrong with
// them. It returns the error of opening the driver's library.
func (c CUDA) reportDriver(r *CUDAReport) error {
	gpus, version, err := c.Loader.GPUs()
	r.Devices = append(r.Devices, gpus...)
	if version > 0 {
		r.Driver = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	}
	switch {
	case err != nil:
		r.missing("no GPU can be reached: %v: install the NVIDIA driver, %s or newer", err, minDriver)
	case len(gpus) == 0:
		r.missing("the NVIDIA driver shows no GPU: see CUDA_VISIBLE_DEVICES and, in a container, whether it was given one")
	case version < cudaVersion:
		r.missing("the NVIDIA driver supports CUDA up to %s, the provider needs 13.0: update it to %s or newer", r.Driver, minDriver)
	}
	return err
}
