package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/mpi"
	"onering/train"
	"onering/train/ranks"
	"onering/train/rl"
)

// A team is this process and the others that mpirun or srun has started with it. Alone it
// is the only rank.
type team struct {
	*ranks.Group
	world *mpi.World // nil alone
}

// joinTeam joins the other ranks where a launcher of MPI has started several processes.
// From then on only the first rank prints.
func joinTeam(c *cobra.Command, d train.DistributedConfig) (team, error) {
	if launch, ok := mpi.Launched(); !ok || !launch.Several() {
		return team{Group: ranks.Alone()}, nil
	}
	version := readVersion()
	world, err := mpi.Open(c.Context(), mpi.Options{
		Version: strings.TrimSpace(version.Version + " " + version.Revision),
		Timeout: time.Duration(d.Timeout * float64(time.Second)),
	})
	if err != nil {
		return team{}, err
	}
	t := team{ranks.New(world), world}
	if !t.First() {
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
	}
	if err := t.Same("command", c.CommandPath()); err != nil {
		return t, t.leave(err)
	}
	return t, nil
}

// joinDefault is joinTeam for a command without a run file.
func joinDefault(c *cobra.Command) (team, error) { return joinTeam(c, rl.Default().Distributed) }

// leave ends this rank's part of a command that all ranks end with an error, or with nil.
// If the ranks have lost each other, the first one ends what is left of them.
func (t team) leave(err error) error {
	if t.world == nil {
		return err
	}
	if lost := t.Lost(); lost != nil {
		t.Abort(err)
		return saidElsewhere{err}
	}
	closed := t.Close()
	switch {
	case err != nil && !t.First():
		return saidElsewhere{err}
	case err != nil:
		return err
	}
	return closed
}

// A saidElsewhere is an error that the first rank prints, whose exit code is that of all.
type saidElsewhere struct{ error }

func (e saidElsewhere) Unwrap() error { return e.error }

// inTurn calls f on one rank of each host, and then on the others: what has to be fetched
// is fetched once. All return an error if one does.
func (t team) inTurn(f func() error) error {
	local := 0
	if t.world != nil {
		local = t.world.LocalRank()
	}
	for turn := range 2 {
		var err error
		if turn == min(local, 1) {
			err = f()
		}
		if t.Size() == 1 {
			return err
		}
		if err := t.AgreeOn(err); err != nil {
			return err
		}
	}
	return nil
}

// place gives this rank its device and its share of the host's cores, where the settings
// leave that open.
func (t team) place(o *policy.RuntimeConfig) {
	if t.world == nil || t.Size() == 1 {
		return
	}
	o.Device = runtime.ForRank(o.Device, t.world.LocalRank())
	if o.Threads == 0 {
		o.Threads = t.world.CPUs
		if !bound() {
			o.Threads = max(1, o.Threads/t.world.LocalSize())
		}
	}
}

// split says how a run is divided.
func (t team) split() rl.Split {
	if t.world == nil {
		return rl.Split{Ranks: 1, OnHost: 1}
	}
	return rl.Split{Ranks: t.Size(), OnHost: t.world.LocalSize()}
}

// shareInput gives all ranks the standard input of the first, where that is what a
// command reads.
func (t team) shareInput(c *cobra.Command, path string) error {
	if path != "-" || t.Size() == 1 {
		return nil
	}
	text, err := ranks.FromFirst(t.Group, func() ([]byte, error) { return io.ReadAll(c.InOrStdin()) })
	c.SetIn(bytes.NewReader(text))
	return err
}

// bound says whether the launcher gave this process only some of the cores.
func bound() bool {
	text, err := os.ReadFile("/sys/devices/system/cpu/online") // such as 0-7,16-23
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

// gathered returns what each rank gives, by rank, or the error of one that has failed. JSON
// tells empty lists from none, as package gob does not.
func gathered[T any](t team, own T, failed error) ([]T, error) {
	text, err := json.Marshal(own)
	if failed != nil {
		err = failed
	}
	texts, err := ranks.GatherAll(t.Group, text, err)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("what rank %d has sent: %w", rank, err)
		}
	}
	return all, nil
}

// runsAlone are commands that several ranks would each do as a whole.
var runsAlone = map[string]bool{
	"onering bench": true, "onering merge": true, "onering push": true, "onering replay": true, "onering serve": true,
	"onering step": true, "onering sweep": true,
}

// aloneOnly refuses what goes with one process where several were started.
func aloneOnly(c *cobra.Command) error {
	launch, ok := mpi.Launched()
	if !ok || !launch.Several() {
		return nil
	}
	if runsAlone[c.CommandPath()] {
		return usagef("%s runs in one process, and %s has started several: start it without; train, sft, eval and generate divide their work", c.CommandPath(), launch.Launcher)
	}
	if f := c.Flags().Lookup("config"); f != nil && f.Value.String() == "-" {
		return usagef("--config -: only the first of the processes that %s has started has an input: name a file that all can read", launch.Launcher)
	}
	return nil
}

// follows says whether this process is one of several and not the first, which speaks
// for all.
func follows() bool {
	launch, ok := mpi.Launched()
	return ok && launch.Several() && launch.Rank > 0
}

// setLogger has the first of the processes that were started log to w.
func setLogger(w io.Writer, level slog.Level) {
	log := cli.NewLogger(w, level)
	if follows() {
		log = slog.New(slog.DiscardHandler)
	}
	slog.SetDefault(log)
}
