package cmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/runtime"
	"onering/runtime/provision"
	"onering/train"
)

func newDoctor() *cobra.Command {
	var where train.RuntimeConfig
	var asJSON, ranks bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what onering finds on this machine",
		Long: `Say what onering finds on this machine: the ONNX Runtime library that it would
load and why that one, what could fetch one, processor, threads and GPU. It
fetches nothing. Add the output to a bug report.

With --device cuda or webgpu it looks at the library that a run on a GPU would
load, and everything that a GPU run lacks is a problem. With --device auto it
says which device that is.

With --mpi, started by mpirun or srun, it shows the ranks of a run, their hosts
and devices and the MPI library, and measures how fast messages are between
neighbours in the ring of ranks. ONERING_MPI names another library.

The exit code is 1 if something keeps onering from running.`,
		Example: `  onering doctor
  onering doctor --device cuda
  onering doctor --device webgpu
  onering doctor --json
  mpirun -n 4 onering doctor --mpi
  onering doctor --library /opt/onnxruntime/lib/libonnxruntime.so`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkDevice(where.Device); err != nil {
				return err
			}
			if ranks {
				return doctorMPI(c, where, asJSON)
			}
			found, err := runtime.Diagnose(c.Context(), where.Options())
			if err != nil {
				return err
			}
			r := struct {
				Onering buildVersion `json:"onering"`
				provision.Report
			}{readVersion(), found}
			if asJSON {
				if err := (lineWriter{c.OutOrStdout()}).write(r); err != nil {
					return err
				}
			} else {
				printDiagnosis(c.OutOrStdout(), r.Onering, r.Report, where.Device)
			}
			if n := len(r.Problems); n > 0 {
				return fmt.Errorf("doctor: %s", strings.Join(r.Problems, "\n  "))
			}
			return nil
		},
	}
	flags := c.Flags()
	addRuntime(c, &where, "device", "threads", "library")
	flags.BoolVar(&ranks, "mpi", false, "look at the ranks that mpirun or srun started")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// printDiagnosis writes a table of two columns. Without a GPU it lists what CUDA needs
// only if device, the flag's value, is one of CUDA. The problems are in the error that
// ends the command.
func printDiagnosis(w io.Writer, v buildVersion, r provision.Report, device string) {
	cuda := strings.HasPrefix(device, "cuda")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("onering", "%s, %s", v.Version, v.commit())
	row("platform", "%s/%s, %s", r.OS, r.Arch, r.Go)
	row("processor", "%s, %d cores, %d threads", cmp.Or(r.CPU, "unknown"), r.CPUs, r.Threads)
	if len(r.Features) > 0 {
		row("", "%s", strings.Join(r.Features, " "))
	}
	if l := r.Library; l == nil {
		row("library", "none")
	} else {
		row("library", "%s (%s)", l.Path, l.Found)
		row("", "ONNX Runtime %s, providers %s", cmp.Or(l.Version, "of unknown version"), strings.Join(l.Providers, " "))
		row("", "sha256 %s", l.SHA256)
		if l.Origin != "" {
			row("", "fetched with %s", l.Origin)
		}
	}
	if device == "auto" {
		row("device", "auto is %s%s", r.Device.Name, because(r.Device.Reason))
	}
	row("cache", "%s", r.Cache)
	for _, c := range r.Clients {
		row(c.Name, "%s", cmp.Or(c.Missing, c.Version))
	}
	printAdapters(row, r.WebGPU, strings.HasPrefix(device, "webgpu"))
	if len(r.CUDA.Devices) == 0 {
		row("cuda", "no device")
		if !cuda {
			return // --json also lists what a GPU would need
		}
	}
	for _, d := range r.CUDA.Devices {
		row("cuda", "%s", d)
	}
	if r.CUDA.Driver != "" {
		row("", "driver for CUDA up to %s", r.CUDA.Driver)
	}
	for _, name := range slices.Sorted(maps.Keys(r.CUDA.Libraries)) {
		row("", "%s %s", name, cmp.Or(r.CUDA.Libraries[name], "missing"))
	}
	if !cuda { // with cuda they are among the problems
		for _, missing := range r.CUDA.Missing {
			row("", "%s", missing)
		}
	}
}

// printAdapters writes rows about what WebGPU can reach; that there is nothing only if it
// was asked for.
func printAdapters(row func(name, format string, args ...any), r provision.WebGPUReport, asked bool) {
	if len(r.Adapters) == 0 && asked {
		row("webgpu", "no adapter")
	}
	for _, a := range r.Adapters {
		kind := "GPU"
		if a.Software {
			kind = "in software"
		}
		row("webgpu", "%s (%s), driver %s", a.Name, kind, a.Driver)
		if a.MaxBuffer == 0 {
			continue // only Vulkan is asked
		}
		row("", "buffers up to %d MiB in a kernel, %d KiB and %d invocations a workgroup", a.MaxBuffer>>20, a.MaxShared>>10, a.MaxWorkgroup)
		row("", "computes in %s", map[bool]string{true: "float32 and float16", false: "float32 only: it has no shaders of 16 bits"}[a.Float16])
	}
	if r.Plugin != "" {
		row("", "provider %s", r.Plugin)
	}
}

// because is a reason, which may be "", behind what it is given for.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
