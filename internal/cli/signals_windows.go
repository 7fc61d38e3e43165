package cli

import (
	"os"
	"syscall"
)

// stopSignals end a run in order.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
