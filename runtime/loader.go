package runtime

// #include "ort.h"
import "C"

import (
	"context"
	"errors"

	"onering/runtime/provision"
)

// loader lets package provision ask libraries that this package loads.
type loader struct{}

var cuda = provision.CUDA{Loader: loader{}}

// Diagnose says what onering finds on this machine. It loads the library that
// Open would load with the same options, so a later Open is bound to it, but it
// fetches none.
func Diagnose(ctx context.Context, o Options) (provision.Report, error) {
	d, err := parseDevice(o.Device)
	if err != nil {
		return provision.Report{}, err
	}
	r := provision.Diagnose(ctx, o.Options, cuda, d.cuda, d.id)
	r.Threads = o.threads()
	return r, nil
}

func (loader) GPUs() ([]string, int, error) { return cudaDriver(provision.CUDADriverLibrary) }

func (loader) Preload(name string) (string, error) { return preload(name) }

func (loader) Describe(ctx context.Context, library string) (version string, providers []string, err error) {
	e, err := Open(ctx, Options{Options: provision.Options{Library: library}})
	if err != nil {
		return "", nil, err
	}
	version = e.Version()
	providers, err = e.Providers()
	return version, providers, errors.Join(err, e.Close())
}

func (loader) TryCUDA(ctx context.Context, library string, gpu int) error {
	e, err := Open(ctx, Options{Options: provision.Options{Library: library}})
	if err != nil {
		return err
	}
	defer e.Close()
	var o *C.OrtSessionOptions
	if err := check(C.onering_options(&o)); err != nil {
		return err
	}
	defer C.onering_release_options(o)
	return useCUDA(o, gpu, nil, false)
}
