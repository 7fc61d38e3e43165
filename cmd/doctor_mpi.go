package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/runtime"
	"onering/runtime/mpi"
	"onering/train"
)

// A rankReport is what a rank of doctor --mpi says about itself.
type rankReport struct {
	mpi.Peer
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"` // that the rank may use
	Devices  []string `json:"devices"`
	Library  string   `json:"onnxruntime"` // version; "" if none was found
	Problems []string `json:"problems"`
}

// A ranksReport is what doctor --mpi prints, once for all ranks.
type ranksReport struct {
	Onering   buildVersion `json:"onering"`
	Launcher  string       `json:"launcher"`
	Library   mpi.Library  `json:"library"`
	CUDAAware bool         `json:"cuda_aware"`
	Ranks     []rankReport `json:"ranks"`
	Links     []mpi.Link   `json:"links"`
}

// doctorMPI reports on the ranks of a run, on rank 0.
func doctorMPI(c *cobra.Command, where train.RuntimeConfig, asJSON bool) error {
	launch, ok := mpi.Launched()
	if !ok {
		return usagef("doctor --mpi looks at ranks that a launcher of MPI started: mpirun -n 2 onering doctor --mpi")
	}
	v := readVersion()
	world, err := mpi.Open(c.Context(), mpi.Options{Version: v.Version + ", " + v.commit(), Say: func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }})
	if err != nil {
		return err
	}
	r := ranksReport{Onering: v, Launcher: launch.Launcher, Library: world.Library(), CUDAAware: world.CUDAAware()}
	if r.Ranks, err = reportRanks(c.Context(), world, where); err == nil {
		r.Links, err = world.Measure(c.Context())
	}
	if err != nil {
		world.Abort(err)
	}
	if world.Rank() == 0 {
		if asJSON {
			err = (lineWriter{c.OutOrStdout()}).write(r)
		} else {
			printRanks(c.OutOrStdout(), r)
		}
	}
	var problems []error
	for _, rank := range r.Ranks {
		for _, p := range rank.Problems {
			problems = append(problems, fmt.Errorf("doctor: rank %d on host %s: %s", rank.Rank, rank.Host, p))
		}
	}
	return errors.Join(append(problems, err, world.Close())...)
}

// reportRanks gathers on rank 0 what all ranks find.
func reportRanks(ctx context.Context, world *mpi.World, where train.RuntimeConfig) ([]rankReport, error) {
	found, err := runtime.Diagnose(ctx, where.Options())
	if err != nil {
		return nil, err
	}
	own := rankReport{Peer: world.Peers()[world.Rank()], CPU: found.CPU, CPUs: world.CPUs, Devices: found.CUDA.Devices, Problems: append([]string{}, found.Problems...)}
	if found.Library != nil {
		own.Library = found.Library.Version
	}
	line, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	lines, err := world.Gather(ctx, line)
	if err != nil {
		return nil, err
	}
	var all []rankReport
	for _, line := range lines {
		var r rankReport
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func printRanks(w io.Writer, r ranksReport) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("onering", "%s, %s", r.Onering.Version, r.Onering.commit())
	row("launcher", "%s, %d ranks", r.Launcher, len(r.Ranks))
	row("library", "%s (%s)", r.Library.Name, r.Library.Path)
	row("", "%s", map[bool]string{true: "takes pointers to a GPU's memory", false: "takes no pointers to a GPU's memory: messages pass through the host's"}[r.CUDAAware])
	t.Flush()
	fmt.Fprintf(t, "\nrank\thost\tlocal\tpid\tcores\tonnxruntime\tdevices\n")
	for _, k := range r.Ranks {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%s\t%s\n", k.Rank, k.Host, k.LocalRank, k.PID, k.CPUs, cmp.Or(k.Library, "none"), cmp.Or(strings.Join(k.Devices, ", "), "no GPU"))
	}
	t.Flush()
	if len(r.Links) == 0 {
		return
	}
	fmt.Fprintf(t, "\nlink\tlatency\tbandwidth\twhile all send\n")
	for _, l := range r.Links {
		fmt.Fprintf(t, "%d to %d\t%.1f µs\t%.2f GB/s\t%.2f GB/s\n", l.From, l.To, l.Latency, l.Bandwidth, l.Ring)
	}
	t.Flush()
}
