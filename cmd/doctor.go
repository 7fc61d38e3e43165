package cmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/policy"
	"onering/runtime"
	"onering/train/ranks"
)

// newDoctor makes the command doctor, which says what this machine has and lacks for a run.
func newDoctor() *cobra.Command {
	s := newChoice(asDefault, "runtime")
	var o struct {
		MPI  bool `flag:"mpi" help:"look at the ranks that mpirun or srun started"`
		JSON bool `help:"print one JSON object"`
	}
	c := newCommand("doctor", &o, s.run(func(c *cobra.Command, _ []string, r *resolved) error {
		where := r.Runtime
		if o.MPI {
			return doctorMPI(c, where, o.JSON)
		}
		found, err := where.Options().Diagnose(c.Context())
		if err != nil {
			return err
		}
		if o.JSON {
			if err := writeDiagnosis(c.OutOrStdout(), readVersion(), found); err != nil {
				return err
			}
		} else {
			printDiagnosis(c.OutOrStdout(), readVersion(), found, where.Device)
		}
		if len(found.Problems) > 0 {
			return fmt.Errorf("doctor: %s", strings.Join(found.Problems, "\n  "))
		}
		return nil
	}))
	s.flags(c, "runtime")
	return c
}

// writeDiagnosis writes one JSON object: the version and what was found.
func writeDiagnosis(w io.Writer, v buildVersion, found runtime.Diagnosis) error {
	own, err := json.Marshal(map[string]any{"onering": v})
	rest, failed := json.Marshal(found)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return cli.WriteLine(w, json.RawMessage(append(append(own[:len(own)-1], ','), rest[1:]...)))
}

// printDiagnosis writes a table of two columns. device is the flag's value. The error
// that ends the command tells the problems.
func printDiagnosis(w io.Writer, v buildVersion, r runtime.Diagnosis, device string) {
	var t cli.Table
	t.Add("onering", "%s, %s", v.Version, v.commit())
	t.Add("platform", "%s/%s, %s", r.OS, r.Arch, r.Go)
	t.Add("processor", "%s, %d cores, %d threads", cmp.Or(r.CPU, "unknown"), r.CPUs, r.Threads)
	if len(r.Features) > 0 {
		t.Add("", "%s", strings.Join(r.Features, " "))
	}
	t.Add("bfloat16", "%s", map[string]string{"avx512": "by AVX-512 BF16", "avx2": "by AVX2: with many rows no faster than float32",
		"plain": "by plain C, which is slow"}[r.Kernels])
	if l := r.Library; l == nil {
		t.Add("library", "none")
	} else {
		t.Add("library", "%s (%s)", l.Path, l.Found)
		t.Add("", "ONNX Runtime %s, providers %s", cmp.Or(l.Version, "of unknown version"), strings.Join(l.Providers, " "))
		t.Add("", "sha256 %s", l.SHA256)
		if l.Origin != "" {
			t.Add("", "fetched with %s", l.Origin)
		}
	}
	if device == "auto" {
		name := r.Device.Name
		if r.Device.Reason != "" {
			name += ": " + r.Device.Reason
		}
		t.Add("device", "auto is %s", name)
	}
	t.Add("cache", "%s", r.Cache)
	for _, c := range r.Clients {
		t.Add(c.Name, "%s", cmp.Or(c.Missing, c.Version))
	}
	for _, p := range slices.Backward(r.Providers) {
		for _, text := range p.Rows(p.Asked) {
			t.Add(text[0], "%s", text[1])
		}
	}
	t.Write(w)
}

// doctorMPI reports on the ranks of a run, on rank 0.
func doctorMPI(c *cobra.Command, where policy.RuntimeConfig, asJSON bool) error {
	v := readVersion()
	say := func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }
	found, err := ranks.Diagnose(c.Context(), v.Version+", "+v.commit(), where.Options(), say, func(found ranks.Report) error {
		if asJSON {
			return cli.WriteLine(c.OutOrStdout(), struct {
				Onering buildVersion `json:"onering"`
				ranks.Report
			}{v, found})
		}
		var head cli.Table
		head.Add("onering", "%s, %s", v.Version, v.commit())
		return cmp.Or(append(head, found.Lines()...).Write(c.OutOrStdout()), found.Print(c.OutOrStdout()))
	})
	if !found {
		return usagef("doctor --mpi looks at ranks that a launcher of MPI started: mpirun -n 2 onering doctor --mpi")
	}
	return err
}
