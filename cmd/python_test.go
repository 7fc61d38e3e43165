package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPython runs the code of docs/start.md from Python, with the module onering and this
// test binary as the program.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here: ", err)
	}
	if !libraryFound() {
		t.Skip("there is no ONNX Runtime library here")
	}
	page, err := os.ReadFile("../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	_, fromPython, _ := strings.Cut(string(page), "\n## From Python\n")
	var code strings.Builder
	for _, block := range regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(fromPython, -1) {
		code.WriteString(block[1])
	}
	if strings.Count(code.String(), "onering.train") < 2 {
		t.Fatal("the page has lost its code")
	}
	code.WriteString("try:\n    onering.train(objective='pmppo').wait()\nexcept onering.Error as e:\n    print('refused:', e)\n")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	module, err := filepath.Abs("../python")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "-c", code.String())
	c.Dir = t.TempDir()
	onering := filepath.Join(t.TempDir(), "onering")
	if err := os.Symlink(program, onering); err != nil {
		t.Skip("no links here: ", err)
	}
	c.Env = append(os.Environ(), "PYTHONPATH="+module, "ONERING="+onering, "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"2 reward", "report.html", "http://127.0.0.1", `refused: onering: --objective: unknown objective "pmppo"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the walk prints no %q:\n%s", want, out)
		}
	}
}
