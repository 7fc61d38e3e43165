package provision

import (
	"errors"
	"fmt"
)

// An Adapter is a GPU as the system's graphics interface shows it, or a driver that
// computes in software.
type Adapter struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	Software bool   `json:"software"`
	Float16  bool   `json:"float16"` // whether kernels compute in it; of Vulkan's adapters
	// Limits of a kernel: the bytes of a buffer, the bytes that a workgroup shares,
	// and how many invocations it has. 0 is not known.
	MaxBuffer    int64 `json:"max_buffer"`
	MaxAlloc     int64 `json:"max_alloc"` // the bytes of any buffer, however many of them a kernel takes
	MaxShared    int64 `json:"max_shared"`
	MaxWorkgroup int64 `json:"max_workgroup"`
}

// A Buffer is one that a run needs on a GPU.
type Buffer struct {
	What  string // such as "the logits of a micro-batch"
	Bytes int64
	// Pieces says that all kernels which take it do so in pieces, so that only the largest
	// buffer there can be bounds it. Others take whole buffers: ScatterND, which adds rows
	// and writes the cache, Softmax and TopK.
	Pieces bool
	// Setting decides its size, which grows with Value; below Least it does not help.
	Setting      string
	Value, Least int64
	Otherwise    string // what helps where no Setting does
}

// MaxBuffer returns the largest buffer that a kernel takes and the largest that there can
// be, with the name of their adapter; 0 where that is not known. Which of several GPUs the
// provider takes is not known either, so the largest limit counts, and that of software
// only where there is no GPU.
func (w WebGPU) MaxBuffer() (whole, alloc int64, adapter string) {
	adapters, err := w.Adapters()
	if err != nil {
		return 0, 0, "" // Check says so
	}
	software := w.hardware() != nil
	var best Adapter
	for _, a := range adapters {
		switch {
		case a.Software && !software:
			continue
		case a.MaxBuffer == 0:
			return 0, 0, ""
		case a.MaxBuffer > best.MaxBuffer:
			best = a
		}
	}
	return best.MaxBuffer, best.MaxAlloc, best.Name
}

// CheckBuffers returns an error that names those buffers which are too large for every
// adapter. It returns nil where an adapter does not say its limits.
func (w WebGPU) CheckBuffers(device string, buffers ...Buffer) error {
	whole, alloc, adapter := w.MaxBuffer()
	var wrong []error
	for _, b := range buffers {
		limit, who := whole, "a kernel of "+adapter
		if b.Pieces || alloc > 0 && alloc < whole {
			limit, who = alloc, adapter
		}
		if limit == 0 || b.Bytes <= limit {
			continue
		}
		remedy := b.Otherwise
		if b.Setting != "" {
			if most := int64(float64(b.Value) * float64(limit) / float64(b.Bytes)); most >= b.Least {
				remedy = fmt.Sprintf("set %s = %d or less", b.Setting, most)
			}
		}
		wrong = append(wrong, fmt.Errorf("%s: %s would be a buffer of %d MiB, and %s takes those of up to %d MiB (onering doctor --device webgpu): %s",
			device, b.What, (b.Bytes+1<<20-1)>>20, who, limit>>20, remedy))
	}
	return errors.Join(wrong...)
}
