//go:build !unix

package dataset

import (
	"errors"
	"os"
)

// A mapping is a file mapped into memory; here files are read instead.
type mapping struct{ data []byte }

func mapFile(*os.File) (*mapping, error) { return nil, errors.ErrUnsupported }

func (m *mapping) drop()        {}
func (m *mapping) close() error { return nil }
