package lora

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"onering/internal/files"
	"onering/internal/strict"
)

// A Base names the model beside which an adapter was trained and has a digest of its
// weights.
type Base struct {
	Model  string `json:"model"`
	Digest string `json:"digest"`
	// HeldAs is the type that held the layers of the model; "" is float32.
	HeldAs string `json:"held,omitempty"`
}

// MaxState bounds a state.json, in bytes. It holds the settings of a run, the state of its
// objective, and lines of metrics that could not be written.
const MaxState = 256 << 20

// ReadBase reads from state/state.json in an adapter's folder which model the adapter
// belongs to; nil if the file is absent or does not say.
func ReadBase(dir string) (*Base, error) {
	path := filepath.Join(dir, "state", "state.json")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text, err := files.ReadIn(path, MaxState)
	var s struct{ Base *Base }
	if err == nil {
		if err = strict.JSON(text, &s); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lora: the state of an adapter: %w", err)
	}
	return s.Base, nil
}
