package cmd

import (
	"cmp"
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
	s := newSettings(withTrainDefaults, "runtime")
	var o struct {
		MPI  bool `flag:"mpi" help:"look at the ranks that mpirun or srun started"`
		JSON bool `help:"print one JSON object"`
	}
	c := newCommand("doctor", &o, s.withResolved(func(c *cobra.Command, _ []string, r *resolved) error {
		where := r.Runtime
		if o.MPI {
			return doctorMPI(c, where, o.JSON)
		}
		found, err := where.Options().Diagnose(c.Context())
		if err != nil {
			return err
		}
		v := readVersion()
		found.Program = v
		err = show(c, o.JSON, found, diagnosisTable(v, found, where.Device).Write)
		if err == nil && len(found.Problems) > 0 {
			err = fmt.Errorf("doctor: %s", strings.Join(found.Problems, "\n  "))
		}
		return err
	}))
	s.addSettingFlags(c, "runtime")
	return c
}

// diagnosisTable tells in two columns what was found. device is the value of --device, of which auto is explained.
// The problems are not among it: they are the error that ends the command.
func diagnosisTable(v buildVersion, r runtime.Diagnosis, device string) (t cli.Table) {
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
	return t
}

// doctorMPI reports on the ranks of a run, on rank 0. where is [runtime].
func doctorMPI(c *cobra.Command, where policy.RuntimeConfig, asJSON bool) error {
	v := readVersion()
	say := func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }
	found, err := ranks.Diagnose(c.Context(), v.Version+", "+v.commit(), where.Options(), say, func(found ranks.Report) error {
		var head cli.Table
		head.Add("onering", "%s, %s", v.Version, v.commit())
		object := struct {
			Onering buildVersion `json:"onering"`
			ranks.Report
		}{v, found}
		return show(c, asJSON, object, func(w io.Writer) error { return cmp.Or(append(head, found.Lines()...).Write(w), found.Print(w)) })
	})
	if !found {
		return usagef("doctor --mpi looks at ranks that a launcher of MPI started: mpirun -n 2 onering doctor --mpi")
	}
	return err
}
