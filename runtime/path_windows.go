package runtime

// #include <stdlib.h>
import "C"

import (
	"unicode/utf16"
	"unsafe"
)

// systemPath is path as ONNX Runtime takes it on this system: UTF-16 with a
// zero at the end; free it with C.free.
func systemPath(path string) unsafe.Pointer {
	wide := append(utf16.Encode([]rune(path)), 0)
	p := C.malloc(C.size_t(2 * len(wide)))
	copy(unsafe.Slice((*uint16)(p), len(wide)), wide)
	return p
}
