//go:build !linux

package models

import (
	"errors"
	"fmt"
	"os"
)

// Share exists on Linux only.
func Share(dir, key string, c Compute) (*os.File, error) {
	return nil, fmt.Errorf("models: share: %w", errors.ErrUnsupported)
}

// LoadShared exists on Linux only.
func LoadShared(f *os.File, dir, key string, c Compute) (Model, *Weights, error) {
	return Model{}, nil, fmt.Errorf("models: shared weights: %w", errors.ErrUnsupported)
}
