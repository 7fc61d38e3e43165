package provision

import (
	"errors"
	"strings"
	"testing"
)

// An error of a package client is passed on without its list of the index.
func TestClientErrorHidesAccounts(t *testing.T) {
	err := clientError(errors.New("exit status 1"), "Looking in https://name:secret@example.invalid/simple\n"+
		"ERROR: Could not fetch https://name:secret@example.invalid/simple/onnxruntime: 404\nmore")
	if got := err.Error(); strings.Contains(got, "secret") || !strings.Contains(got, "https://example.invalid/simple/onnxruntime: 404") {
		t.Errorf("%s", got)
	}
}
