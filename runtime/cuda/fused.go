package cuda

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"onering/runtime"
	gpu "onering/runtime/cuda/kernels"
	"onering/runtime/kernels"
)

// plain, if set in the environment, disables the kernels, to measure what they gain.
const plain = "ONERING_NO_KERNELS"

// addKernels lets a Backend use the kernels of package kernels. If that is impossible, it calls notice.
func addKernels(b *runtime.Backend, m *memory, number int, notice func(string)) {
	var k *kernels.Device
	err := fmt.Errorf("%s is set", plain)
	if os.Getenv(plain) == "" {
		k, err = gpu.OnGPU(number, m.stream)
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
