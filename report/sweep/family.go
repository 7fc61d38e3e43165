package sweep

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"onering/internal/files"
)

// A family is the sweeps of one task, whose comparisons are corrected together: the number
// of comparisons of each, by its name.
type family map[string]int

// holmTitle is the heading of p-values that are corrected for a number of comparisons.
const holmTitle = "p, Holm of %d"

// Name returns the name that the folder and the tables of the sweep file at path have.
func Name(path string) string { return strings.TrimSuffix(filepath.Base(path), ".toml") }

// addFamily reads the other sweep files of the family. Each must name the same family, or
// the tables would contradict each other.
func (p *Plan) addFamily() error {
	p.family = family{Name(p.File): len(p.Comparisons) * len(p.Metrics)}
	for _, path := range p.relatives[1:] {
		q, err := readAlone(path)
		if err == nil && !slices.Equal(slices.Sorted(slices.Values(p.relatives)), slices.Sorted(slices.Values(q.relatives))) {
			err = fmt.Errorf("%s has another family, %q instead of %q: name the same files in both", path, q.relatives, p.relatives)
		}
		if _, twice := p.family[Name(path)]; err == nil && twice {
			err = fmt.Errorf("two files are called %s: rename one", Name(path))
		}
		if err != nil {
			return fmt.Errorf("%s: sweep.family: %v", p.File, err)
		}
		p.family[Name(path)] = len(q.Comparisons) * len(q.Metrics)
	}
	return nil
}

// pages returns the texts with the tables of the family's other sweeps: the page, or
// without one the tables in the folders beside out.
func (f family) pages(page, out string) (texts []string, err error) {
	paths := []string{page}
	if page == "" {
		paths = files.Glob(filepath.Dir(filepath.Clean(out)), "*/tables.md")
	}
	for i := 0; i < len(paths) && len(f) > 1; i++ {
		text, failed := os.ReadFile(paths[i])
		texts, err = append(texts, string(text)), errors.Join(err, failed)
	}
	return texts, err
}

// tests returns the p-values of the family's sweeps except own, each from the first text
// that has some. A comparison without a p-value counts as 1, so that the others are
// corrected by the whole family; such comparisons come last.
func (f family) tests(own string, texts ...string) (tests []*pairedTest) {
	missing := 0
	for _, name := range slices.Sorted(maps.Keys(f)) {
		before := len(tests)
		for i := 0; name != own && len(tests) == before && i < len(texts); i++ {
			eachComparison(texts[i], name, func(p string, _ *string) {
				if x, err := strconv.ParseFloat(p, 64); err == nil && !math.IsNaN(x) {
					tests = append(tests, &pairedTest{P: x})
				}
			})
		}
		if name != own {
			missing += max(0, f[name]+before-len(tests))
		}
	}
	return append(tests, slices.Repeat([]*pairedTest{{P: 1}}, missing)...)
}

// correct corrects the comparisons in the blocks that the family's sweeps have in a page.
func (f family) correct(page string) string {
	tests := f.tests("", page)
	adjust(tests)
	title := fmt.Sprintf(holmTitle, len(tests))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		page = eachComparison(page, name, func(p string, holm *string) {
			if p == "p" {
				*holm = title
			} else if p != "NaN" {
				*holm, tests = fmt.Sprintf("%.3g", tests[0].Adjusted), tests[1:]
			}
		})
	}
	return page
}

// eachComparison calls edit with the p-value of the heading and of each row of the
// comparisons in a block of a page, and with the corrected p-value, which edit may
// change. It returns the changed page. A page without the block is unchanged.
func eachComparison(page, name string, edit func(p string, holm *string)) string {
	page, _ = replaceBlock(page, name, func(block string) string {
		lines, at := strings.Split(block, "\n"), -1
		for i, text := range lines {
			cells := strings.Split(text, " | ")
			if cells[0] == "| comparison" {
				at = slices.Index(cells, "p")
			}
			if at > 0 && at+1 < len(cells) {
				edit(cells[at], &cells[at+1])
				lines[i] = strings.Join(cells, " | ")
			}
		}
		return strings.Join(lines, "\n")
	})
	return page
}
