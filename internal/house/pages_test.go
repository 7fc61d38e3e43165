package house

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks: every link of a page to a place in the repository leads somewhere.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"docs/*.md", "docs/lab/*.md", "runs/results/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	link := regexp.MustCompile(`\]\(([^)#\s:]*)(#[^)\s]*)?\)`)
	count := 0
	for _, page := range append(pages, "README.md", "AGENTS.md", "CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, section := m[1], strings.TrimPrefix(m[2], "#")
			if target == "" {
				target = path.Base(page)
			}
			file := path.Join(path.Dir(page), target)
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if count++; section != "" && strings.HasSuffix(file, ".md") && !hasSection(t, file, section) {
				t.Errorf("%s links to %s, which has no section %q", page, file, section)
			}
		}
	}
	if count == 0 {
		t.Error("no page has a link")
	}
}

// hasSection says whether a page has a heading that is linked to as #anchor.
func hasSection(t *testing.T, page, anchor string) bool {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		title := strings.TrimLeft(line, "#")
		if title == line {
			continue
		}
		title = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		if strings.ReplaceAll(title, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// pageWords are the most words of a page.
var pageWords = map[string]int{"docs/architecture.md": 3000, "docs/spine.md": 1300, "AGENTS.md": 700}

// TestPageWords: the pages that one reads first are short.
func TestPageWords(t *testing.T) {
	for page, most := range pageWords {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
		} else if n := len(strings.Fields(string(text))); n > most {
			t.Errorf("%s has %d words, more than %d", page, n, most)
		}
	}
}

// TestSpine: a name that docs/spine.md and docs/architecture.md give with a file, as in
// `name` ([file](../file)), is declared in that file.
func TestSpine(t *testing.T) {
	text := ""
	for _, page := range []string{"docs/spine.md", "docs/architecture.md"} {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	stops := regexp.MustCompile("`([A-Za-z.]+)` \\(\\[[^\\]]*\\]\\(\\.\\./([^)]+\\.go)\\)\\)").FindAllStringSubmatch(text, -1)
	if len(stops) < 60 {
		t.Errorf("the pages have %d stops", len(stops))
	}
	for _, stop := range stops {
		source, err := os.ReadFile(stop[2])
		if err != nil {
			t.Error(err)
			continue
		}
		name := stop[1][strings.LastIndex(stop[1], ".")+1:]
		if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)` + name + `\b`).Match(source) {
			t.Errorf("%s does not declare %s", stop[2], stop[1])
		}
	}
}
