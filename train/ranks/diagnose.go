package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"onering/runtime"
	"onering/runtime/mpi"
)

// A Report is what there is to say about ranks and the links between them.
type Report struct {
	Launcher  string       `json:"launcher"`
	Library   mpi.Library  `json:"library"`
	CUDAAware bool         `json:"cuda_aware"`
	Ranks     []rankReport `json:"ranks"` // on the first rank alone
	Links     []mpi.Link   `json:"links"`
}

// A rankReport is what a rank says about itself.
type rankReport struct {
	mpi.Peer
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"` // that the rank may use
	Devices  []string `json:"devices"`
	Library  string   `json:"onnxruntime"` // version; "" if none was found
	Problems []string `json:"problems"`
}

// Diagnose looks at the ranks that a launcher of MPI has started, and calls show with what it
// finds on the first of them. Say is told why all ranks end, if they do. Without a launcher
// found is false.
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
		world.Abort(err)
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

// reportRanks gathers on rank 0 what all ranks find.
func reportRanks(ctx context.Context, world *mpi.World, o runtime.Options) (all []rankReport, err error) {
	found, err := runtime.Diagnose(ctx, o)
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
	line, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	lines, err := world.Gather(ctx, line)
	for _, line := range lines {
		var r rankReport
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, err
}
