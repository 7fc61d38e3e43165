package mpi

import (
	"os"
	"strconv"
)

// A Launch is what the environment says about the start of this process.
type Launch struct {
	Launcher string // "mpirun of Open MPI", …
	Rank     int    // 0-based
	Size     int    // number of ranks; 0 where the launcher does not say
	kind     Kind   // of the library that belongs to the launcher; 0 where any may
	likely   Kind   // of the library that is looked for first where any may
}

// launchers say by which variables a launcher shows itself. The first that fits counts:
// Open MPI's mpirun also sets PMIx's variables, and runs under Slurm.
var launchers = []struct {
	name       string
	rank, size string
	kind       Kind
	likely     Kind
}{
	{"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", OpenMPI, 0},
	{"srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", 0, OpenMPI},
	// Open MPI speaks PMI-1 and PMI-2 only where it was built for that, from 5 on never.
	{"srun", "PMI_RANK", "SLURM_STEP_NUM_TASKS", 0, MPICH},
	{"mpiexec (PMIx)", "PMIX_RANK", "", 0, OpenMPI},
	{"mpiexec of MPICH", "PMI_RANK", "PMI_SIZE", MPICH, 0},
	{"srun without PMI", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 0, OpenMPI},
}

// Several says whether the launcher started more than one process, as far as it says.
func (l Launch) Several() bool { return l.Size != 1 }

// Launched says whether a launcher of MPI started this process, mpirun, mpiexec or
// srun, by the environment alone: it loads no library. A launcher may start a single
// rank, with Size 1. srun counts where it started several tasks.
func Launched() (Launch, bool) { return launched(os.LookupEnv) }

func launched(lookup func(string) (string, bool)) (Launch, bool) {
	number := func(name string) (int, bool) {
		text, _ := lookup(name)
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= 0
	}
	for _, l := range launchers {
		rank, ok := number(l.rank)
		size, sized := number(l.size)
		if !ok || l.size != "" && !sized || l.name == "srun without PMI" && size < 2 {
			continue
		}
		return Launch{l.name, rank, size, l.kind, l.likely}, true
	}
	return Launch{}, false
}
