// Package cuda runs models on NVIDIA GPUs, by ONNX Runtime's CUDA provider.
package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"

	"onering/models"
	"onering/runtime"
	"onering/runtime/provision"
)

func init() { runtime.RegisterProvider(&provider{driver: driver, preload: preload, dirs: cudaDirs}) }

// A provider finds, checks and opens GPUs. Tests replace its queries of the system.
type provider struct {
	// driver describes each GPU that the NVIDIA driver shows. version is the newest CUDA
	// that it supports, as 1000*major + 10*minor.
	driver func() (gpus []string, version int, err error)
	// preload loads a library by its path or by a name that the system's loader finds, so that later libraries which
	// need that name get this library. It returns the library's path.
	preload func(name string) (path string, err error)
	// dirs returns further folders to look for libraries in.
	dirs func(context.Context) []string
}

func (*provider) Name() string            { return "cuda" }
func (*provider) Names() string           { return "cuda, cuda:N with the number of a device" }
func (*provider) Has(number int) bool     { return number < 1<<16 }
func (*provider) Graphs() models.Provider { return models.CUDA }

// Taken estimates the bytes of CUDA's context, the kernels, and the workspaces of cuBLAS and cuDNN.
func (*provider) Taken() int64 { return 1200e6 }

// Room asks the driver, which needs some hundred megabytes while it answers.
func (*provider) Room(number int) (string, int64) { return room(driverLibrary, number) }

// ForRank gives each rank of a host its own GPU. If no device is named, it does so from
// the second rank on, if the system shows a GPU.
func (*provider) ForRank(local int, asked bool) (int, bool) {
	if !asked && local > 0 {
		_, err := os.Stat(fmt.Sprintf("/dev/nvidia%d", local))
		asked = err == nil
	}
	return local, asked
}

// The library has the version of most sources of the CPU's library.
const (
	version = "1.31.1"
	ref     = "onnxruntime-gpu==" + version
	file    = "libonnxruntime_providers_cuda.so"
	shared  = "libonnxruntime_providers_shared.so"
)

// Library is built with CUDA 13 and cuDNN 9, but does not contain them.
func (*provider) Library() provision.Kind {
	const folder = "onnxruntime/capi/"
	return provision.Kind{With: []string{file, shared}, Name: "with CUDA", Ref: ref,
		Sources: []provision.Source{provision.Wheels(ref, version, map[string]provision.Build{
			"linux/amd64": {Platform: "manylinux_2_28_x86_64", Variant: "cuda13", Member: folder + "libonnxruntime.so." + version, Size: 255569273,
				Sum: "5104254339ecadae808da771bd0b63b240f0dbd466514234905e54372435c303",
				Beside: []provision.Part{
					{Member: folder + shared, Sum: "086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d"},
					{Member: folder + file, Sum: "8387867e857499e045caff5d13ac6a5de29571c801562fa2dde0e45f1f31de52"},
				}},
		})}}
}

// Present returns an error on a machine that has no GPU.
func (c *provider) Present() error {
	gpus, _, err := c.driver()
	if err != nil {
		return fmt.Errorf("no GPU can be reached: %w", err)
	}
	if len(gpus) == 0 {
		return errors.New("the NVIDIA driver shows no GPU")
	}
	return nil
}
