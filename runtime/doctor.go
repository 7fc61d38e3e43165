package runtime

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"
)

// A Report says what onering finds on this machine.
type Report struct {
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Go       string   `json:"go"`
	CPU      string   `json:"cpu,omitempty"`          // its model, where the system tells
	CPUs     int      `json:"cpus"`                   // that Go may use
	Features []string `json:"cpu_features,omitempty"` // that ONNX Runtime's kernels use
	Threads  int      `json:"threads"`                // that a Run would use
	Cache    string   `json:"cache"`

	Library *LibraryReport `json:"library,omitempty"` // nil where none was found
	Clients []Client       `json:"clients"`           // that can fetch one
	CUDA    CUDAReport     `json:"cuda"`

	// Problems keep onering from running, in sentences with the remedy.
	Problems []string `json:"problems"`
}

// A LibraryReport describes the ONNX Runtime library that Open would load.
type LibraryReport struct {
	Path      string   `json:"path"`
	Found     string   `json:"found"` // as Env.Found
	Version   string   `json:"version,omitempty"`
	SHA256    string   `json:"sha256"`
	Origin    string   `json:"origin,omitempty"` // of one that was fetched, such as "pip onnxruntime==1.31.1"
	Providers []string `json:"providers,omitempty"`
}

// A Client is a program that can fetch the library.
type Client struct {
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"` // why it cannot be used
}

// Diagnose looks at the machine as Open would with the same options, but
// fetches nothing. It loads the library, so that a later Open is bound to it.
func Diagnose(ctx context.Context, o Options) Report {
	r := Report{OS: goruntime.GOOS, Arch: goruntime.GOARCH, Go: goruntime.Version(), CPUs: goruntime.GOMAXPROCS(0), Threads: o.threads(), Problems: []string{}}
	r.CPU, r.Features = cpu()
	problem := func(err error) { r.Problems = append(r.Problems, strings.TrimPrefix(err.Error(), "runtime: ")) }
	var err error
	if r.Cache, err = cacheDir(o); err != nil {
		problem(err)
	}
	r.Clients = clients(ctx)
	d, err := parseDevice(o.Device)
	if err != nil {
		problem(err)
		return r
	}
	at, err := look(o, d.kind())
	switch {
	case err != nil:
		problem(err)
	case at.path == "":
		with := ""
		if d.cuda {
			with = " with CUDA"
		}
		r.Problems = append(r.Problems, fmt.Sprintf("no ONNX Runtime library%s yet: the first command that needs one fetches it, or name one with %s", with, envLibrary))
	default:
		r.Library, err = describeLibrary(ctx, o, at)
		if err != nil {
			problem(err)
		}
	}
	r.CUDA = newCUDASearch(ctx).report(at.path)
	if len(r.CUDA.Missing) == 0 && r.Library != nil {
		if err := tryCUDA(ctx, at.path, d.id); err != nil {
			r.CUDA.Missing = append(r.CUDA.Missing, "ONNX Runtime does not load its CUDA provider: "+err.Error())
		}
	}
	if d.cuda {
		r.Problems = append(r.Problems, r.CUDA.Missing...)
	}
	return r
}

// describeLibrary loads the library at a place.
func describeLibrary(ctx context.Context, o Options, at place) (*LibraryReport, error) {
	l := &LibraryReport{Path: at.path, Found: at.how}
	var err error
	if l.SHA256, err = fileSum(at.path); err != nil {
		return l, err
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(at.path), originName))
	if err == nil {
		var from origin
		if err := json.Unmarshal(text, &from); err != nil {
			return l, fmt.Errorf("%s beside %q: %w", originName, at.path, err)
		}
		l.Origin = from.Source + " " + from.Ref
		if from.SHA256 != l.SHA256 {
			return l, fmt.Errorf("%q has changed since it was fetched: remove its folder to have it fetched again", at.path)
		}
		for name, want := range from.Beside {
			file := filepath.Join(filepath.Dir(at.path), name)
			if got, err := fileSum(file); err != nil {
				return l, err
			} else if got != want {
				return l, fmt.Errorf("%q has changed since it was fetched: remove its folder to have it fetched again", file)
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	o.Library, o.Device = at.path, "" // what a GPU needs is looked at by itself
	e, err := Open(ctx, o)
	if err != nil {
		return l, err
	}
	l.Version = e.Version()
	l.Providers, err = e.Providers()
	return l, errors.Join(err, e.Close())
}

// clients asks each package client for its version.
func clients(ctx context.Context) []Client {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	version := func(c Client, command ...string) Client {
		c.Command = strings.Join(command, " ")
		out, err := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "--version")...).Output()
		if err != nil {
			c.Missing = err.Error()
			return c
		}
		c.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), " from ") // pip adds its path
		return c
	}
	list := []Client{{Name: "pip", Missing: errAbsent.Error()}, {Name: "npm", Missing: errAbsent.Error()}}
	if command, err := findPip(ctx); err == nil {
		list[0] = version(Client{Name: "pip"}, command...)
	}
	if command, err := exec.LookPath("npm"); err == nil {
		list[1] = version(Client{Name: "npm"}, command)
	}
	return list
}

// cpu returns the processor's model and the features that matter to the speed
// of ONNX Runtime's kernels, where the system has them in a file.
func cpu() (model string, features []string) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", nil
	}
	defer f.Close()
	wanted := []string{"avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8",
		"asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "sme"}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags", "Features":
			has := map[string]bool{}
			for _, f := range strings.Fields(value) {
				has[f] = true
			}
			for _, w := range wanted {
				if has[w] {
					features = append(features, w)
				}
			}
			return model, features // that of the first processor
		}
	}
	return model, features
}
