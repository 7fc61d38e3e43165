package eval

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A Suite is the problems that a model is held against, in order.
type Suite struct {
	Name string `json:"name"`
	// IDs are the problems' names, distinct within the suite.
	IDs []string `json:"problems"`
	// Digest tells prompts and answers apart from others of the same names.
	Digest string `json:"digest"`
}

// A Benchmark is a suite that people report.
type Benchmark struct {
	Name     string
	Title    string // in tables
	Problems int
	// Files are the names its file or folder may have, without extension.
	Files []string
}

// Benchmarks are the five of the paper's Table 2, in its order. Their files are
// those of the evaluation suite of sail-sg/understand-r1-zero, whose folders
// have the second names.
var Benchmarks = []Benchmark{
	{"aime24", "AIME24", 30, []string{"aime24", "aime"}},
	{"amc", "AMC", 83, []string{"amc"}},
	{"math500", "MATH500", 500, []string{"math500", "math"}},
	{"minerva", "Minerva", 272, []string{"minerva"}},
	{"olympiadbench", "Oly.", 675, []string{"olympiadbench", "olympiad_bench"}},
}

// Find returns the benchmark of that name.
func Find(name string) (Benchmark, bool) {
	for _, b := range Benchmarks {
		if b.Name == name {
			return b, true
		}
	}
	return Benchmark{}, false
}

// title is how tables call a suite.
func title(name string) string {
	if b, ok := Find(name); ok {
		return b.Title
	}
	return name
}

// Incomplete returns a warning where a suite with a benchmark's name has another
// number of problems: its score is then not that of the benchmark.
func Incomplete(name string, problems int) (warning string, ok bool) {
	b, known := Find(name)
	if !known || b.Problems == problems {
		return "", false
	}
	return fmt.Sprintf("%s has %d problems here, the benchmark %d: the score is not the benchmark's", name, problems, b.Problems), true
}

// extensions are those of files that hold problems.
var extensions = []string{".jsonl", ".json", ".parquet", ".arrow", ".csv", ".jsonl.gz", ".jsonl.zst"}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// Locate finds the file of a suite: spec is NAME=PATH, a path, or a name to be
// looked up in dir (as NAME.jsonl, NAME.parquet, a folder NAME ...).
func Locate(spec, dir string) (name, path string, err error) {
	if name, path, ok := strings.Cut(spec, "="); ok && word.MatchString(name) && !exists(spec) {
		if path == "" {
			return "", "", fmt.Errorf("evaluation: suite %q names no file: write %s=PATH", spec, name)
		}
		return name, path, nil
	}
	names := []string{spec}
	b, known := Find(spec)
	if known {
		names = b.Files
	}
	if dir != "" && word.MatchString(spec) {
		for _, n := range names {
			for _, end := range append(extensions, "") {
				path := filepath.Join(dir, n+end)
				switch {
				case !exists(path):
				case known:
					return spec, path, nil
				default:
					return nameOf(path), path, nil
				}
			}
		}
		if !exists(spec) {
			return "", "", fmt.Errorf("evaluation: suite %q is not in %s: looked for %s with %s, and for such a folder", spec, dir, strings.Join(names, " and "), strings.Join(extensions, ", "))
		}
	}
	if known && !exists(spec) {
		return "", "", fmt.Errorf("evaluation: where is %s? Name its file (%s=PATH) or the folder of the suites", spec, spec)
	}
	return nameOf(spec), spec, nil
}

// nameOf is a file's name without its extension.
func nameOf(path string) string {
	base := filepath.Base(path)
	for _, end := range extensions {
		base = strings.TrimSuffix(base, end)
	}
	return base
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
