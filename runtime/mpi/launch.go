package mpi

import (
	"os"
	"strconv"
)

// A launch is what the environment variables say about the start of this process.
type launch struct {
	Launcher string // "mpirun of Open MPI", …
	Rank     int    // from 0
	Size     int    // number of ranks; 0 if the launcher does not say
	kind     kind   // kind of library that belongs to the launcher; 0 if any may
	likely   kind   // kind of library to look for first if any may be used
}

// launchers lists the variables by which launchers are recognized. The first match
// counts: Open MPI's mpirun also sets PMIx's variables, and runs under Slurm.
var launchers = []struct {
	name       string
	rank, size string
	kind       kind
	likely     kind
	twoOrMore  bool // counts only with two tasks or more
}{
	{"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", openMPI, 0, false},
	{"srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", 0, openMPI, false},
	// Open MPI supports PMI-1 and PMI-2 only if it was built so, and never from version 5 on.
	{"srun", "PMI_RANK", "SLURM_STEP_NUM_TASKS", 0, mpich, false},
	{"mpiexec (PMIx)", "PMIX_RANK", "", 0, openMPI, false},
	{"mpiexec of MPICH", "PMI_RANK", "PMI_SIZE", mpich, 0, false},
	{"srun without PMI", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 0, openMPI, true},
}

// Several says whether the launcher started more than one process, if that is known.
func (l launch) Several() bool { return l.Size != 1 }

// Launched says whether a launcher of MPI started this process, mpirun, mpiexec or srun, by the environment alone: it
// loads no library. A launcher may start a single rank, with Size 1. srun counts where it started several tasks.
func Launched() (launch, bool) { return launched(os.LookupEnv) }

// launched is Launched with the environment as a function. A launcher is recognized if its rank variable is a number,
// and its size variable too where it has one, which for srun without PMI (twoOrMore) must be at least 2.
func launched(lookup func(string) (string, bool)) (launch, bool) {
	number := func(name string) (int, bool) {
		text, _ := lookup(name)
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 0
	}
	for _, l := range launchers {
		rank, ok := number(l.rank)
		size, sized := number(l.size)
		if !ok || l.size != "" && !sized || l.twoOrMore && size < 2 {
			continue
		}
		return launch{l.name, rank, size, l.kind, l.likely}, true
	}
	return launch{}, false
}
