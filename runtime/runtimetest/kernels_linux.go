package runtimetest

import (
	"onering/models"
	"onering/runtime"
	"onering/runtime/cuda/kernels/onhost"
)

// A stand-in for a GPU with the kernels of package kernels.
func init() {
	runtime.RegisterProvider(&standIn{runtime.ProviderOf("cpu"), "stand-in-kernels", models.CUDA,
		func(b *runtime.Backend) {
			k := onhost.Device()
			b.Kernels, b.Append = k, k.AddTo
		}})
}
