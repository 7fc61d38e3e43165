package cuda

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"sync"

	"onering/runtime"
	"onering/runtime/provision"
)

// A report says what running on a GPU needs and what is present.
type report struct {
	devices   []string
	driver    string            // the newest CUDA that the driver supports, such as "13.0"
	libraries map[string]string // path of each library by name, "" if it is missing
	missing   []string
}

// cudaVersion is the CUDA version that the library is built with, counted as driver does,
// and minDriver the first Linux driver that supports it.
const (
	cudaVersion = 13000
	minDriver   = "580"
)

func (r *report) lacks(format string, args ...any) {
	r.missing = append(r.missing, fmt.Sprintf(format, args...))
}

// Report looks for the libraries that the CUDA provider beside library needs, first where the system's loader looks
// and then in folders that it may not know, and loads what it finds, so that the provider finds it too. With ignore the
// provider's own file may be missing: it will be downloaded, or was reported already.
func (c *provider) Report(ctx context.Context, library string, number int, ignore bool) runtime.Report {
	r := report{devices: []string{}, libraries: map[string]string{}, missing: []string{}}
	if goruntime.GOOS != "linux" {
		r.lacks("a GPU is used on Linux only")
	} else {
		c.look(ctx, &r, library, ignore)
	}
	if len(r.missing) == 0 && number >= len(r.devices) {
		r.lacks("there is no GPU %d: the driver shows %d, numbered from 0", number, len(r.devices))
	}
	facts := map[string]any{"devices": r.devices, "libraries": r.libraries}
	if r.driver != "" {
		facts["driver"] = r.driver
	}
	return runtime.Report{Devices: r.devices, Missing: r.missing, Facts: facts, Rows: r.rows}
}

// rows lists the needs of a GPU if there is one or it was asked for. Missing parts appear
// only if a GPU was not asked for, since they are problems otherwise.
func (r report) rows(asked bool) (rows [][2]string) {
	row := func(name, text string) { rows = append(rows, [2]string{name, text}) }
	if len(r.devices) == 0 {
		row("cuda", "no device")
		if !asked {
			return rows
		}
	}
	for _, d := range r.devices {
		row("cuda", d)
	}
	if r.driver != "" {
		row("", "driver for CUDA up to "+r.driver)
	}
	for _, name := range slices.Sorted(maps.Keys(r.libraries)) {
		row("", name+" "+cmp.Or(r.libraries[name], "missing"))
	}
	for _, missing := range r.missing {
		if !asked {
			row("", missing)
		}
	}
	return rows
}

// look fills a report: the driver, and the libraries that the CUDA provider beside an ONNX Runtime library
// needs. ignore leaves out that the provider is missing, as in runtime.Provider.
func (c *provider) look(ctx context.Context, r *report, library string, ignore bool) {
	driverErr := c.reportDriver(r)
	path := ""
	if library != "" {
		path = provision.Beside(library, file)
	}
	r.libraries[file] = path
	if path == "" && !ignore {
		r.lacks("there is no %s beside an ONNX Runtime library: a run on a GPU fetches pip's %s, or name a folder that has both with %s",
			file, ref, provision.LibraryVariable)
	}
	names, err := needs(path)
	if err != nil {
		r.lacks("%v", err)
	}
	dirs := sync.OnceValue(func() []string { return c.dirs(ctx) })
	for _, name := range names {
		if name == driverLibrary { // reportDriver has reported it
			r.libraries[name] = ""
			if driverErr == nil {
				r.libraries[name] = name
			}
			continue
		}
		path, err := c.find(name, dirs)
		if err != nil {
			r.lacks("%v", err)
		}
		r.libraries[name] = path
	}
}

// find loads a library that the system's loader finds by name or that lies in one of the
// folders, and returns its path.
func (c *provider) find(name string, dirs func() []string) (string, error) {
	path, err := c.preload(name)
	if err == nil {
		return path, nil
	}
	found := provision.FirstWith(dirs(), name)
	if found == "" {
		return "", fmt.Errorf("%s is missing: it comes with %s", name, comesWith(name))
	}
	if path, err = c.preload(found); err != nil {
		return "", fmt.Errorf("%s cannot be loaded: %w", found, err)
	}
	return path, nil
}

// reportDriver fills in the GPUs and the driver's version and what is wrong with
// them. It returns the error of opening the driver's library.
func (c *provider) reportDriver(r *report) error {
	gpus, version, err := c.driver()
	r.devices = append(r.devices, gpus...)
	if version > 0 {
		r.driver = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	}
	switch {
	case err != nil:
		r.lacks("no GPU can be reached: %v: install the NVIDIA driver, %s or newer", err, minDriver)
	case len(gpus) == 0:
		r.lacks("the NVIDIA driver shows no GPU: see CUDA_VISIBLE_DEVICES and, in a container, whether it was given one")
	case version < cudaVersion:
		r.lacks("the NVIDIA driver supports CUDA up to %s, the provider needs 13.0: update it to %s or newer", r.driver, minDriver)
	}
	return err
}
