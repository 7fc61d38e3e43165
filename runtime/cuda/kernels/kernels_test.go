package kernels

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// TestImages: the images were compiled from the present source, and there is one for
// every GPU since those of compute capability 8.0.
func TestImages(t *testing.T) {
	source, err := files.ReadFile("kernels.cu")
	if err != nil {
		t.Fatal(err)
	}
	more, err := files.ReadFile("attention.cu")
	if err != nil {
		t.Fatal(err)
	}
	source = append(source, more...)
	digest, err := files.ReadFile("source.sha256")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x\n", sha256.Sum256(source)); got != string(digest) {
		t.Errorf("the images are of a source with digest %s, and the source has %s: run compile.py", digest, got)
	}
	for _, name := range []string{"bfloat16", "float16"} {
		for capability, start := range map[[2]int]string{{8, 0}: "\x7fELF", {8, 6}: "\x7fELF", {8, 7}: "\x7fELF", {8, 9}: "\x7fELF", {9, 0}: "\x7fELF", {10, 0}: "\x7fELF", {10, 3}: "\x7fELF", {12, 0}: "\x7fELF", {11, 0}: "//", {13, 1}: "//"} {
			if data, err := image(name, capability[0], capability[1]); err != nil || !strings.HasPrefix(strings.TrimSpace(string(data)), start) {
				t.Errorf("%s for %v: %v, %.8q", name, capability, err, data)
			}
		}
	}
}
