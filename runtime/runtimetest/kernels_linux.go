package runtimetest

import (
	"unsafe"

	"onering/models"
	"onering/runtime"
	"onering/runtime/cuda/kernels/onhost"
)

// A stand-in for a GPU with the kernels of package kernels.
func init() {
	runtime.RegisterProvider(&standIn{runtime.ProviderOf("cpu"), "stand-in-kernels", models.CUDA,
		func() (runtime.Kernels, func(functions, options unsafe.Pointer) error) {
			k := onhost.Device()
			return k, k.AddTo
		}})
}
