package cuda

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"onering/runtime"
	"onering/runtime/cuda/kernels"
)

// plain in the environment with any value but "" leaves the kernels out, for measuring what
// they bring.
const plain = "ONERING_NO_KERNELS"

// addKernels has a Backend compute with the kernels of package kernels, too. Where it cannot,
// notice is told.
func addKernels(b *runtime.Backend, m *memory, number int, notice func(string)) {
	var k *kernels.Device
	err := fmt.Errorf("%s is set", plain)
	if os.Getenv(plain) == "" {
		k, err = kernels.OnGPU(number, m.stream)
	}
	if err != nil {
		if notice != nil {
			notice(fmt.Sprintf("cuda:%d computes by ONNX Runtime's operators alone, which is slower: %v", number, err))
		}
		return
	}
	b.Kernels = k
	provide := b.Append
	b.Append = func(functions, options unsafe.Pointer) error {
		return errors.Join(provide(functions, options), k.AddTo(functions, options))
	}
}
