package latex

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/trees.txt")

// TestTrees compares trees with testdata/trees.txt: a source, a tab, its tree.
// New lines may be given without a tree and filled in with -update; read them.
func TestTrees(t *testing.T) {
	const name = "testdata/trees.txt"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		if line == "" || line[0] == '#' {
			out.WriteString(line + "\n")
			continue
		}
		source, want, _ := strings.Cut(line, "\t")
		p, err := Parse(source, Reading{})
		if err != nil {
			t.Errorf("Parse(%q): %v", source, err)
			continue
		}
		got := p.Tree.String()
		if got != want && !*update {
			t.Errorf("Parse(%q)\n got %s\nwant %s", source, got, want)
		}
		out.WriteString(source + "\t" + got + "\n")
	}
	if *update {
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTruncated parses every beginning of every source, and every source with
// one byte left out: nothing may crash, and trees stay sound.
func TestTruncated(t *testing.T) {
	text, err := os.ReadFile("testdata/trees.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		source, _, _ := strings.Cut(line, "\t")
		for i := range len(source) {
			for _, s := range []string{source[:i], source[i:], source[:i] + source[i+1:], source[:i] + source[i:i+1] + source[i:]} {
				for _, reading := range []Reading{{}, {Comma: Separator}, {Comma: Decimal}} {
					p, err := Parse(s, reading)
					if err != nil {
						t.Fatalf("Parse(%q): %v", s, err)
					}
					sound(t, p.Tree, 0)
				}
			}
		}
	}
}
