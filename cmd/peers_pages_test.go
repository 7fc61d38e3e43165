package cmd

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updatePeers = flag.Bool("update-peers", false, "write the run files of docs/from-trl.md and docs/from-verl.md")

// TestPeersPages: the run file on each page is what onering import makes of the config on it, and
// each setting that the page's table names exists.
func TestPeersPages(t *testing.T) {
	settings, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	objectives, err := os.ReadFile("../docs/objectives.md")
	if err != nil {
		t.Fatal(err)
	}
	known := string(settings) + string(objectives)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```(.*?)```toml\n(.*?)```")
	key := regexp.MustCompile("`((?:[a-z]+\\.)?[a-z_]+)(?: = [^`]*)?`")
	for _, peer := range []string{"trl", "verl"} {
		path := "../docs/from-" + peer + ".md"
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := blocks.FindStringSubmatch(string(page))
		if m == nil {
			t.Fatalf("%s has not a yaml and a toml block", path)
		}
		file := filepath.Join(t.TempDir(), "grpo.yaml")
		if err := os.WriteFile(file, []byte(m[1]), 0o644); err != nil {
			t.Fatal(err)
		}
		got := commandLine(t, "", "import", peer, file)
		if *updatePeers {
			if err := os.WriteFile(path, []byte(strings.Replace(string(page), "```toml\n"+m[3], "```toml\n"+got, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got != m[3] {
			t.Errorf("%s has another run file: go test ./cmd -run TestPeersPages -update-peers\n%s", path, got)
		}
		_, table, _ := strings.Cut(string(page), "| here |")
		for row := range strings.Lines(table) {
			cells := strings.Split(row, "|")
			if len(cells) < 4 {
				continue
			}
			for _, name := range key.FindAllStringSubmatch(cells[2], -1) {
				section, inner, dotted := strings.Cut(name[1], ".")
				if dotted && !strings.Contains(known, "`"+inner+"`") && !strings.Contains(known, section+"."+inner) {
					t.Errorf("%s: the table names %s, which is not a setting", path, name[1])
				}
			}
		}
	}
}
