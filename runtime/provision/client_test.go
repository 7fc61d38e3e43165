package provision

import (
	"errors"
	"strings"
	"testing"
)

// Errors of a package client are passed on, but without the account of its index.
func TestClientErrorHidesAccounts(t *testing.T) {
	err := clientError(errors.New("exit status 1"), "Looking in https://name:secret@example.invalid/simple\n"+
		"ERROR: Could not fetch https://name:secret@example.invalid/simple/onnxruntime: 404\nmore")
	if got := err.Error(); strings.Contains(got, "secret") || !strings.Contains(got, "https://example.invalid/simple/onnxruntime: 404") {
		t.Errorf("%s", got)
	}
}
