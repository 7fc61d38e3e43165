package cmd

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updatePeers = flag.Bool("update-peers", false, "write the run files of docs/trl-and-verl.md")

// TestPeersPage: each run file on the page is what onering import makes of the config before it, and
// each setting that the tables name exists.
func TestPeersPage(t *testing.T) {
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
	const path = "../docs/trl-and-verl.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, peer := range []string{"trl", "verl"} {
		_, part, _ := strings.Cut(page, "\n## "+strings.Replace(peer, "trl", "TRL", 1)+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		m := blocks.FindStringSubmatch(part)
		if m == nil {
			t.Fatalf("%s has not a yaml and a toml block for %s", path, peer)
		}
		file := filepath.Join(t.TempDir(), "grpo.yaml")
		if err := os.WriteFile(file, []byte(m[1]), 0o644); err != nil {
			t.Fatal(err)
		}
		got := commandLine(t, "", "import", peer, file)
		if *updatePeers {
			page = strings.Replace(page, "```toml\n"+m[3], "```toml\n"+got, 1)
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got != m[3] {
			t.Errorf("%s has another run file: go test ./cmd -run TestPeersPage -update-peers\n%s", path, got)
		}
		_, table, _ := strings.Cut(part, "| here |")
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
