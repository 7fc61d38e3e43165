package webgpu

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "vulkan.h"
import "C"

import (
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"unsafe"
)

// An adapter is a GPU in the system's graphics interface, or a software driver.
type adapter struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	Software bool   `json:"software"`
	Float16  bool   `json:"float16"` // whether kernels support it; known for Vulkan's adapters
	// Limits of a kernel: the bytes of a buffer, the bytes that a workgroup shares, and
	// how many invocations it has. 0 is unknown.
	MaxBuffer    int64 `json:"max_buffer"`
	MaxAlloc     int64 `json:"max_alloc"` // bytes of any buffer, even if kernels take it in pieces
	MaxShared    int64 `json:"max_shared"`
	MaxWorkgroup int64 `json:"max_workgroup"`
}

// adapters lists the adapters that Vulkan shows. If the system does not have its loader,
// it may lie beside the driver that the user names, as in Debian's chromium. Only Linux
// is asked; elsewhere the system chooses the GPU.
func adapters() ([]adapter, error) {
	switch goruntime.GOOS {
	case "darwin":
		return []adapter{{Name: "the system's GPU", Driver: "Metal"}}, nil
	case "windows":
		return []adapter{{Name: "the system's GPU", Driver: "Direct3D 12"}}, nil
	}
	found, err := vulkan("libvulkan.so.1")
	for _, variable := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} {
		if err != nil && os.Getenv(variable) != "" {
			dir := filepath.Dir(filepath.SplitList(os.Getenv(variable))[0])
			if beside, besideErr := vulkan(filepath.Join(dir, "libvulkan.so.1")); besideErr == nil {
				return beside, nil
			}
		}
	}
	return found, err
}

// vulkan lists the adapters that a loader of Vulkan shows.
func vulkan(library string) (found []adapter, err error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var list [16]C.onering_adapter
	var msg *C.char
	n := C.onering_vulkan(name, &list[0], C.int(len(list)), &msg)
	if n < 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, errors.New(C.GoString(msg))
	}
	for _, a := range list[:n] {
		found = append(found, adapter{
			Name: C.GoString(&a.name[0]), Driver: strings.TrimSpace(C.GoString(&a.driver[0])), Software: a.software != 0, Float16: a.half != 0,
			MaxBuffer: int64(a.storage), MaxAlloc: int64(a.largest), MaxShared: int64(a.shared), MaxWorkgroup: int64(a.invocations),
		})
	}
	return found, nil
}
