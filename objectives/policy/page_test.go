package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/objectives.md")

// TestPage wants the tables of docs/objectives.md to be those of the rows.
func TestPage(t *testing.T) {
	const path, end = "../../docs/objectives.md", "<!-- end of objectives -->"
	const begin = "<!-- objectives: written by go test ./objectives/policy -run TestPage -update -->\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has not the lines %q and %q", path, begin, end)
	}
	var table strings.Builder
	family := ""
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	for _, r := range rows {
		if r.family != family {
			family = r.family
			fmt.Fprintf(&table, "\n| %s | loss | settings | source |\n|---|---|---|---|\n", family)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", r.name, cell(r.loss), cell("`"+strings.ReplaceAll(r.point, " ", "` `")+"`"), cell(r.source))
	}
	want := before + begin + table.String() + "\n" + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(data) != want {
		t.Errorf("%s has other tables: run go test ./objectives/policy -run TestPage -update", path)
	}
}
