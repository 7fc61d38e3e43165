package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// find returns the absolute path of the library that o asks for.
func find(_ context.Context, o Options) (string, error) {
	for _, p := range []string{o.Library, os.Getenv("ONNXRUNTIME_LIB")} {
		if p != "" {
			return filepath.Abs(p)
		}
	}
	return "", fmt.Errorf("runtime: no ONNX Runtime library: set ONNXRUNTIME_LIB")
}
