//go:build unix

package cli

import (
	"os"
	"syscall"
)

// stopSignals end a run in order. Open MPI's mpirun passes SIGUSR1 on at once and kills
// no process; Slurm can send it before a job's time is over.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1}
