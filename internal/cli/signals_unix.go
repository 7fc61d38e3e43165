//go:build unix

package cli

import (
	"os"
	"syscall"
)

// stopSignals end a run in order. Open MPI's mpirun passes SIGUSR1 on at once and kills
// nobody, and Slurm sends it before a job's time is over where it is asked to.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1}
