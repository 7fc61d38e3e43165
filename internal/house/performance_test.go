package house

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The tables of docs/lab/performance.md are bench/performance.py's, except the one about the
// work of each phase.
func TestPerformanceTables(t *testing.T) {
	page, err := os.ReadFile("docs/lab/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`(?s)<!-- table \w+ -->\n.*?<!-- end -->`)
	previous := ""
	for line := range strings.Lines(made.ReplaceAllString(string(page), "")) {
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(previous, "|") && line != "| phase | work |\n" {
			t.Errorf("the table that begins with %q stands outside the markers: have bench/performance.py write it", strings.TrimSpace(line))
		}
		previous = line
	}
}

// TestPerformancePage holds the page to the figures that were measured.
func TestPerformancePage(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed, so the page cannot be made")
	}
	// The test reads the file too, so that go test's cache knows when it changes.
	for _, name := range []string{"docs/lab/performance.md", "docs/lab/performance.json", "bench/performance.py"} {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(python, "bench/performance.py", "--check").CombinedOutput(); err != nil {
		t.Fatalf("bench/performance.py --check: %v\n%s", err, out)
	}
}
