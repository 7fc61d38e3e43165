package cmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"onering/train/ranks"
)

// doctor --mpi prints once for all ranks their hosts and the speed of their links.
func TestDoctorMPI(t *testing.T) {
	c := program("doctor", "--mpi")
	if err := c.Run(); err == nil || !strings.Contains(c.Stderr.(interface{ String() string }).String(), "mpirun -n 2 onering doctor --mpi") {
		t.Errorf("without a launcher: %v\n%s", err, c.Stderr)
	}
	if version, err := exec.Command("mpirun", "--version").Output(); err != nil || !strings.Contains(string(version), "Open MPI") {
		t.Skipf("mpirun of Open MPI cannot be run: %v", err)
	}
	onering := filepath.Join(t.TempDir(), "onering") // the name that TestMain looks at
	if err := os.Symlink(os.Args[0], onering); err != nil {
		t.Fatal(err)
	}
	mpirun := exec.Command("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", onering, "doctor", "--mpi", "--json")
	mpirun.Env = c.Env
	out, err := mpirun.Output()
	if err != nil && !strings.Contains(string(out), `"onnxruntime":""`) { // A machine without ONNX Runtime is a problem that doctor reports.
		t.Fatalf("%v\n%s", err, out)
	}
	var r ranks.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Ranks) != 2 || r.Ranks[1].LocalRank != 1 || r.Ranks[0].PID == r.Ranks[1].PID || len(r.Links) != 2 || r.Links[1].To != 0 || !strings.HasPrefix(r.Library.Name, "Open MPI ") {
		t.Errorf("%+v", r)
	}
}
