package provision

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"onering/internal/files"
	"onering/internal/strict"
)

// A Report says what onering found on this machine.
type Report struct {
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Go       string   `json:"go"`
	CPU      string   `json:"cpu,omitempty"`          // the model of the processor, if the system tells it
	CPUs     int      `json:"cpus"`                   // number of processors that Go may use
	Features []string `json:"cpu_features,omitempty"` // processor features that ONNX Runtime's kernels use
	Kernels  string   `json:"kernels,omitempty"`      // the kind of our kernels for bfloat16; Diagnose leaves it empty
	Threads  int      `json:"threads"`                // number of threads of one Run; Diagnose leaves it 0
	Cache    string   `json:"cache"`

	Device  DeviceReport   `json:"device"`            // Diagnose leaves it empty
	Library *LibraryReport `json:"library,omitempty"` // nil if none was found
	Clients []client       `json:"clients"`           // programs that can download a library

	// Problems keep onering from running; each is a sentence with the remedy.
	Problems []string `json:"problems"`
}

// A DeviceReport says which device a run would use.
type DeviceReport struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"` // why auto means the CPU
}

// A LibraryReport describes the ONNX Runtime library that a run would load.
type LibraryReport struct {
	Path      string   `json:"path"`
	Found     string   `json:"found"`             // like Location.Found
	Version   string   `json:"version,omitempty"` // Diagnose leaves it and Providers empty
	SHA256    string   `json:"sha256"`
	Origin    string   `json:"origin,omitempty"` // origin of a downloaded library, such as "pip onnxruntime==1.31.1"
	Providers []string `json:"providers,omitempty"`
}

// A client is a program that can fetch the library.
type client struct {
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"` // why the client cannot be used
}

// Diagnose looks at the machine as a run with the same options would, for a library of a kind, but downloads nothing.
// usable is false if a named library cannot be used, since no other would be tried.
func Diagnose(ctx context.Context, o Options, k Kind) (r Report, usable bool) {
	r = Report{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Problems: []string{}}
	r.CPU, r.Features = cpu()
	var err error
	if r.Cache, err = cacheDir(o); err != nil {
		r.Problem(err)
	}
	r.Clients = clients(ctx)
	at, err := Look(o, k)
	switch {
	case err != nil:
		r.Problem(err)
		return r, false
	case at.Path != "":
		if r.Library, err = describeLibrary(at); err != nil {
			r.Problem(err)
		}
	default:
		r.Problems = append(r.Problems, fmt.Sprintf("%s yet: the first command that needs one fetches it, or name one with %s",
			strings.TrimRight("no ONNX Runtime library "+k.Name, " "), LibraryVariable)) // Name is empty for the CPU
	}
	return r, true
}

// Problem adds an error to the problems.
func (r *Report) Problem(err error) {
	r.Problems = append(r.Problems, strings.TrimPrefix(err.Error(), "provision: "))
}

// Verify returns an error if a downloaded library has changed since, for example by a disk error.
func (at Location) Verify() error {
	if _, err := describeLibrary(at); err != nil {
		return fmt.Errorf("provision: the ONNX Runtime library: %w", err)
	}
	return nil
}

// describeLibrary checks that a downloaded library is unchanged.
func describeLibrary(at Location) (*LibraryReport, error) {
	r := &LibraryReport{Path: at.Path, Found: at.Found}
	var err error
	if r.SHA256, err = files.Sum(at.Path); err != nil {
		return r, err
	}
	switch text, err := files.Read(filepath.Join(filepath.Dir(at.Path), originName), 1<<20); {
	case err == nil:
		return r, r.checkOrigin(text)
	case !errors.Is(err, fs.ErrNotExist):
		return r, err
	}
	return r, nil
}

// checkOrigin reads the origin file beside the library and compares the files with it.
func (r *LibraryReport) checkOrigin(text []byte) error {
	var from origin
	if err := strict.JSON(text, &from); err != nil {
		return fmt.Errorf("%s beside %q: %w", originName, r.Path, err)
	}
	r.Origin = from.Source + " " + from.Ref
	changed := func(file string) error {
		return fmt.Errorf("%q has changed since it was fetched: remove its folder to have it fetched again", file)
	}
	if from.SHA256 != r.SHA256 {
		return changed(r.Path)
	}
	for _, name := range slices.Sorted(maps.Keys(from.Beside)) {
		file := filepath.Join(filepath.Dir(r.Path), name)
		if got, err := files.Sum(file); err != nil {
			return err
		} else if got != from.Beside[name] {
			return changed(file)
		}
	}
	return nil
}

// clients looks for each package client and asks it for its version.
func clients(ctx context.Context) []client {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	version := func(c client, command ...string) client {
		c.Command = strings.Join(command, " ")
		out, err := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "--version")...).Output()
		if err != nil {
			c.Missing = err.Error()
			return c
		}
		c.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), " from ") // pip appends its path
		return c
	}
	list := []client{{Name: "pip", Missing: errAbsent.Error()}, {Name: "npm", Missing: errAbsent.Error()}}
	if command, err := findPip(ctx); err == nil {
		list[0] = version(client{Name: "pip"}, command...)
	}
	if command, err := exec.LookPath("npm"); err == nil {
		list[1] = version(client{Name: "npm"}, command)
	}
	return list
}

// cpu returns the processor's model and those of its features that decide how fast ONNX Runtime's kernels are. Both
// are empty if the system has no file that says them.
func cpu() (model string, features []string) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", nil
	}
	defer f.Close()
	wanted := []string{"avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16",
		"avx_vnni", "amx_tile", "amx_bf16", "amx_int8",
		"asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "sme"}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags", "Features":
			has := strings.Fields(value)
			return model, slices.DeleteFunc(wanted, func(w string) bool { return !slices.Contains(has, w) }) // of the first processor; the others are the same
		}
	}
	return model, features
}
