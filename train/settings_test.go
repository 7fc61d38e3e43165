package train

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var updatePage = flag.Bool("update", false, "write docs/settings.md anew")

// TestSettingsPage has docs/settings.md say of every key what the comments of
// Config say, and no more.
func TestSettingsPage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*ast.StructType{}
	docs := map[string]string{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			s := s.(*ast.TypeSpec)
			if x, ok := s.Type.(*ast.StructType); ok {
				structs[s.Name.Name], docs[s.Name.Name] = x, g.Doc.Text()
			}
		}
	}
	keyOf := func(f *ast.Field) string {
		return reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("toml")
	}
	// Comments name fields; the page names keys.
	keys := map[string]string{}
	for name, s := range structs {
		if name == "Config" {
			continue
		}
		for _, f := range s.Fields.List {
			keys[f.Names[0].Name] = keyOf(f)
		}
	}
	word := regexp.MustCompile(`\b[A-Z]\w*`)
	said := func(text string) string {
		text = word.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(w string) string {
			if key := keys[w]; key != "" && key != "-" {
				return "`" + key + "`"
			}
			return w
		})
		return strings.ReplaceAll(text, "|", `\|`)
	}

	var page strings.Builder
	page.WriteString("# Settings\n\nEvery key of a run file, which may also be set with `--set section.key=value` or as `ONERING_SECTION_KEY`. `run.toml` in a run folder states them all. This page is made from the comments of [config.go](../train/config.go): `go test ./train -run TestSettingsPage -update`.\n")
	for _, section := range structs["Config"].Fields.List {
		kind := section.Type.(*ast.Ident).Name
		_, about, _ := strings.Cut(strings.Join(strings.Fields(docs[kind]), " "), kind+" ")
		about = strings.TrimPrefix(strings.TrimPrefix(about, "says "), "is ")
		fmt.Fprintf(&page, "\n## [%s]\n\n%s\n\n| key | |\n|---|---|\n", keyOf(section), strings.ToUpper(about[:1])+about[1:])
		last := ""
		for _, f := range structs[kind].Fields.List {
			key := keyOf(f)
			if key == "-" {
				continue
			}
			if text := said(f.Doc.Text()); text != "" {
				last = text
			}
			if last == "" {
				t.Errorf("%s.%s has no comment", keyOf(section), key)
			}
			fmt.Fprintf(&page, "| `%s` | %s |\n", key, last)
		}
		if keyOf(section) == "objective" {
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
		t.Error("docs/settings.md is not what the comments say: go test ./train -run TestSettingsPage -update")
	}
}
