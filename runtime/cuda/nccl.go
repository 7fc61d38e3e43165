package cuda

// #include "cuda.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"

	"onering/runtime/nccl"
)

// link opens NCCL for runtime.Backend, from the file that the environment names or that find finds. card is the GPU's
// address on the PCI bus, which names it uniquely on the machine.
func (m *memory) link(ctx context.Context) (l *nccl.Library, card string, err error) {
	path := os.Getenv(nccl.Variable)
	if path == "" {
		if path, err = m.find(ctx); err != nil {
			return nil, "", err
		}
	}
	var place [64]C.char
	switch code := C.onering_cuda_place(m.id, &place[0], C.int(len(place))); {
	case code < 0:
		return nil, "", errors.New("CUDA's runtime lacks the function cudaDeviceGetPCIBusId")
	case code > 0:
		return nil, "", fmt.Errorf("looking for the card of cuda:%d: %w", m.id, cudaError(code))
	}
	l, err = nccl.Open(path, m.stream, func() error { return cudaError(C.onering_cuda_use_device(m.id)) })
	return l, C.GoString(&place[0]), err
}
