package train

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"onering/settings"
)

var updatePage = flag.Bool("update", false, "write docs/settings.md anew")

// TestSettingsPage: docs/settings.md says of every key what its declaration
// says, and no more.
func TestSettingsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Settings\n\nEvery key of a run file, which may also be set with `--set section.key=value` or as `ONERING_SECTION_KEY`. `run.toml` in a run folder states them all. This page is made from the declarations in [config.go](../train/config.go) and what they embed: `go test ./train -run TestSettingsPage -update`.\n")
	c := Default()
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		fmt.Fprintf(&page, "\n## [%s]\n\n%s.\n\n| key | default | |\n|---|---|---|\n", tag.Get("toml"), tag.Get("help"))
		for _, f := range settings.Fields(v.Field(i).Addr().Interface()) {
			if f.Key == "" {
				continue
			}
			help := f.Help()
			if help == "" {
				t.Errorf("%s.%s has no help", tag.Get("toml"), f.Key)
				continue
			}
			text := strings.ToUpper(help[:1]) + help[1:] + "."
			if allowed := f.Allowed(); allowed != "" {
				text += " Must be " + allowed + "."
			}
			value := fmt.Sprintf("`%v`", f.Value)
			if f.Value.IsZero() && !f.Value.CanInt() && !f.Value.CanFloat() && f.Value.Kind() != reflect.Bool {
				value = "" // an empty string or list
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", f.Key, value, strings.ReplaceAll(text, "|", `\|`))
		}
		if tag.Get("toml") == "objective" {
			page.WriteString("\nThe other keys are the objective's: `onering objectives show NAME` prints them with their defaults, and [objectives.md](objectives.md) says what they mean.\n")
		}
	}
	path := filepath.Join("..", "docs", "settings.md")
	if *updatePage {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page.String() {
		t.Error("docs/settings.md is not what the declarations say: go test ./train -run TestSettingsPage -update")
	}
}
