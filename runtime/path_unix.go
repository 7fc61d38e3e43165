//go:build !windows

package runtime

// #include <stdlib.h>
import "C"

import "unsafe"

// systemPath is path as ONNX Runtime takes it on this system; free it with C.free.
func systemPath(path string) unsafe.Pointer { return unsafe.Pointer(C.CString(path)) }
