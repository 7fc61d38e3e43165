package ranks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"
	"text/tabwriter"
	"time"

	"onering/runtime"
	"onering/runtime/mpi"
)

// Launcher names the launcher of several processes, of which this is number rank: mpirun,
// mpiexec or srun. It is "" for a single process.
func Launcher() (name string, rank int) {
	if launch, ok := mpi.Launched(); ok && launch.Several() {
		return launch.Launcher, launch.Rank
	}
	return "", 0
}

// Join joins the other ranks where a launcher of MPI has started several processes. A rank of another version
// is refused, and a rank without a sign of life for timeout seconds ends all.
func Join(ctx context.Context, version string, timeout float64) (*Group, error) {
	if launcher, _ := Launcher(); launcher == "" {
		return Alone(), nil
	}
	within := time.Duration(timeout * float64(time.Second))
	world, err := mpi.Open(ctx, mpi.Options{Version: version, Timeout: within})
	if err != nil {
		return nil, err
	}
	g := New(world)
	g.world, g.timeout = world, within
	return g, nil
}

// End ends this rank with the error of its run, or with nil, and returns the error for its exit: all ranks call it, and
// wait for each other. If one of them was lost, no process returns from End: Abort ends them all once rank 0, which
// saves its state first, calls it, too. Only ranks within one process return.
func (g *Group) End(err error) error {
	if g.world == nil {
		return err
	}
	if lost := g.Lost(); lost != nil {
		err = cmp.Or(err, lost) // a run that succeeded before has no error of its own
		g.Abort(err)
		return reportedByRank0{err} // ranks within one process come here, whose Abort returns
	}
	closed := g.Close()
	switch {
	case err != nil && !g.First(): // all ranks have an error then
		return reportedByRank0{err}
	case err != nil:
		return err
	}
	return closed
}

// A reportedByRank0 is an error that the first rank prints; all ranks exit with its exit code.
type reportedByRank0 struct{ error }

func (e reportedByRank0) Unwrap() error { return e.error }

// Said says whether an error is printed already, by the rank that has ended the run, and
// whether the exit code is another rank's, too.
func Said(err error) (printed, elsewhere bool) {
	elsewhere = errors.As(err, new(reportedByRank0))
	return elsewhere || errors.As(err, new(*mpi.AbortError)), elsewhere
}

// Exit ends the process with an exit code, in the way that MPI asks for.
func Exit(code int) { mpi.Exit(code) }

// InTurn calls f on one rank of each host, and then on the others, so that a download
// happens once a host. All ranks must call it, and all return an error if one rank does.
func (g *Group) InTurn(f func() error) error {
	local := 0
	if g.world != nil {
		local = g.world.LocalRank()
	}
	for turn := range 2 {
		var err error
		if turn == min(local, 1) { // the first of a host in turn 0, the others in turn 1
			err = f()
		}
		if g.Size() == 1 {
			return err // alone, a rank is the first of its host
		}
		if err := g.AgreeOn(err); err != nil {
			return err
		}
	}
	return nil
}

// OnHost returns how many ranks this host has.
func (g *Group) OnHost() int {
	if g.world == nil {
		return 1
	}
	return g.world.LocalSize()
}

// Place gives this rank its device and its share of the host's cores, where the settings leave that open: threads of 0.
func (g *Group) Place(device *string, threads *int) {
	if g.world == nil || g.Size() == 1 {
		return
	}
	*device = runtime.ForRank(*device, g.world.LocalRank())
	if *threads == 0 {
		*threads = g.world.CPUs
		if !bound() {
			*threads = max(1, *threads/g.world.LocalSize())
		}
	}
}

// bound says whether the launcher gave this process only some of the cores.
func bound() bool {
	text, err := os.ReadFile("/sys/devices/system/cpu/online") // for example 0-7,16-23
	online := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		var first, last int
		switch n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n {
		case 1:
			online++
		case 2:
			online += last - first + 1
		}
	}
	return err == nil && goruntime.NumCPU() < online
}

// A Report describes the ranks and the links between them.
type Report struct {
	Launcher  string       `json:"launcher"`
	Library   mpi.Library  `json:"library"`
	CUDAAware bool         `json:"cuda_aware"`
	Ranks     []rankReport `json:"ranks"` // set on the first rank only
	Links     []mpi.Link   `json:"links"`
}

// Lines says what connects the ranks, as a table of two columns.
func (r Report) Lines() [][2]string {
	takes := "takes no pointers to a GPU's memory: messages pass through the host's"
	if r.CUDAAware {
		takes = "takes pointers to a GPU's memory"
	}
	return [][2]string{
		{"launcher", fmt.Sprintf("%s, %d ranks", r.Launcher, len(r.Ranks))},
		{"library", fmt.Sprintf("%s (%s)", r.Library.Name, r.Library.Path)}, {"", takes},
	}
}

// Print prints tables of the ranks and of the links between them, with measured latencies.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nrank\thost\tlocal\tpid\tcores\tonnxruntime\tdevices\n")
	for _, k := range r.Ranks {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%s\t%s\n", k.Rank, k.Host, k.LocalRank, k.PID, k.CPUs, cmp.Or(k.Library, "none"),
			cmp.Or(strings.Join(k.Devices, ", "), "no GPU"))
	}
	err := t.Flush()
	if len(r.Links) == 0 {
		return err
	}
	fmt.Fprintf(t, "\nlink\tlatency\tbandwidth\twhile all send\n")
	for _, l := range r.Links {
		fmt.Fprintf(t, "%d to %d\t%.1f µs\t%.2f GB/s\t%.2f GB/s\n", l.From, l.To, l.Latency, l.Bandwidth, l.Ring)
	}
	return cmp.Or(err, t.Flush())
}

// A rankReport is a rank's description of itself.
type rankReport struct {
	mpi.Peer
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"` // number of processors that the rank may use
	Devices  []string `json:"devices"`
	Library  string   `json:"onnxruntime"` // version; "" if none was found
	Problems []string `json:"problems"`
}

// Diagnose looks at the ranks that a launcher of MPI has started, and calls show with the result on the first
// rank. say is called with the reason if a rank's failure ends all of them. Without a launcher found is false.
func Diagnose(ctx context.Context, version string, o runtime.Options, say func(string), show func(Report) error) (found bool, err error) {
	launch, found := mpi.Launched()
	if !found {
		return false, nil
	}
	world, err := mpi.Open(ctx, mpi.Options{Version: version, Say: say})
	if err != nil {
		return true, err
	}
	r := Report{Launcher: launch.Launcher, Library: world.Library(), CUDAAware: world.CUDAAware()}
	if r.Ranks, err = reportRanks(ctx, world, o); err == nil {
		r.Links, err = world.Measure(ctx)
	}
	if err != nil {
		world.Abort(err) // does not return
	}
	if world.Rank() == 0 {
		err = show(r)
	}
	var problems []error
	for _, rank := range r.Ranks {
		for _, p := range rank.Problems {
			problems = append(problems, fmt.Errorf("doctor: rank %d on host %s: %s", rank.Rank, rank.Host, p))
		}
	}
	return true, errors.Join(append(problems, err, world.Close())...)
}

// reportRanks gathers all ranks' reports on rank 0.
func reportRanks(ctx context.Context, world *mpi.World, o runtime.Options) ([]rankReport, error) {
	found, err := o.Diagnose(ctx)
	if err != nil {
		return nil, err
	}
	own := rankReport{Peer: world.Peers()[world.Rank()], CPU: found.CPU, CPUs: world.CPUs, Devices: []string{}, Problems: append([]string{}, found.Problems...)}
	for _, p := range found.Providers {
		own.Devices = append(own.Devices, p.Devices...)
	}
	if found.Library != nil {
		own.Library = found.Library.Version
	}
	return mpi.Gather(ctx, world, own)
}
