package eval

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"onering/data"
)

// A Suite is a set of held-out problems, in order.
type Suite struct {
	Name     string
	Problems []data.Problem
	// LeftOut are columns of the file that the problems lack; see
	// data.Report.LeftOut.
	LeftOut []string
}

// heldOutSums is how many problems the embedded task is evaluated on: enough
// for a standard error of about two points.
const heldOutSums = 512

// TrainingSeed is the seed of evaluations during training and of the order of the
// embedded task's held-out problems. It is the same for every run, so that runs can be
// compared.
const TrainingSeed = 1 << 40

// Open reads the suites that specs name: builtin:arithmetic, NAME=PATH, a path, or a name
// to be looked up in dir; see locate. A row without a problem or an answer is an error: a
// score without it would be that of another suite. Files of the same name get the names
// of their folders as prefixes.
func Open(specs []string, dir string, options func(spec string) data.Options) (suites []Suite, err error) {
	byName := map[string][]int{} // indexes of suites
	for i, spec := range specs {
		s, err := open(spec, dir, options(spec))
		if err != nil {
			return nil, err
		}
		byName[s.Name] = append(byName[s.Name], i)
		suites = append(suites, s)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		same := byName[name]
		names := map[string]bool{name: true}                               // the different names that these suites have so far
		for parts := 2; len(same) > 1 && len(names) < len(same); parts++ { // at first the folder and the file
			clear(names)
			for _, i := range same { // its name becomes the last parts of its path
				path := filepath.ToSlash(filepath.Clean(specs[i]))
				all := strings.Split(strings.TrimSuffix(path, filepath.Ext(path)), "/")
				suites[i].Name = strings.Join(all[max(0, len(all)-parts):], "/")
				if parts > maxParts {
					suites[i].Name = path
				}
				names[suites[i].Name] = true
			}
			if parts > maxParts && len(names) < len(same) {
				return nil, fmt.Errorf("eval: two suites are called %q: name one of them NAME=PATH", suites[same[0]].Name)
			}
		}
	}
	return suites, nil
}

// maxParts bounds how many folders of a path serve as a prefix to distinguish suites of
// equal names; beyond that, suites are named by their paths.
const maxParts = 64

// open reads one suite.
func open(spec, dir string, o data.Options) (Suite, error) {
	name, path, err := locate(spec, dir)
	if err != nil {
		return Suite{}, err
	}
	const heldOut = true // of the embedded task, which has another part for training
	problems, report, err := data.OpenProblems(path, o, heldOut)
	if err != nil {
		return Suite{}, err
	}
	switch list, ok := problems.(data.List); {
	case ok:
		return Suite{name, list, report.LeftOut}, nil
	case path == data.Arithmetic:
		return Suite{Name: name, Problems: problems.Take(TrainingSeed, 0, heldOutSums)}, nil // the first ones, by a seed that all runs share
	}
	return Suite{}, fmt.Errorf("eval: suite %q: %s is not a file of problems", name, path)
}

// First returns the suite limited to its first n problems, or all of them where n is 0.
func (s Suite) First(n int) Suite {
	if n > 0 {
		s.Problems = s.Problems[:min(n, len(s.Problems))]
	}
	return s
}

// plan gives each problem of the suite a distinct name, and computes the suite's digest.
func (s Suite) plan() suitePlan {
	out := suitePlan{Name: s.Name, Digest: data.List(s.Problems).Digest()}
	seen := map[string]int{}
	for _, p := range s.Problems {
		id := p.ID
		for seen[id] > 0 { // a repetition gets a number, which may not be the name of another problem
			seen[p.ID]++
			id = fmt.Sprintf("%s#%d", p.ID, seen[p.ID])
		}
		seen[id]++
		out.IDs = append(out.IDs, id)
	}
	return out
}

// keys are the sampler's keys of the problems. Keys follow from the texts, so that a
// problem's random draws do not depend on its file, its place and the other problems.
func (s Suite) keys() []uint64 {
	seen := map[string]uint64{}
	out := make([]uint64, len(s.Problems))
	for i, p := range s.Problems {
		h := sha256.Sum256([]byte(p.Text))
		// A repeated problem has its own draws.
		out[i] = binary.LittleEndian.Uint64(h[:]) + seen[p.Text]
		seen[p.Text]++
	}
	return out
}

// Longest is the number of tokens of the longest prompt of the suites.
func Longest(p *data.Prompter, suites []Suite) (int, error) {
	longest := 0
	for _, s := range suites {
		for _, q := range s.Problems {
			_, ids, err := p.Prompt(q)
			if err != nil {
				return 0, err
			}
			longest = max(longest, len(ids))
		}
	}
	return longest, nil
}

// Warnings say what weakens the scores of the suite.
func (s Suite) Warnings() []string {
	var out []string
	if b, known := findBenchmark(s.Name); known && b.Problems != len(s.Problems) {
		out = append(out, fmt.Sprintf("%s has %d problems here, the benchmark %d: the score is not the benchmark's", s.Name, len(s.Problems), b.Problems))
	}
	if len(s.LeftOut) > 0 {
		out = append(out, fmt.Sprintf("%s: columns are left out because they take too much memory: %s", s.Name, strings.Join(s.LeftOut, ", ")))
	}
	return out
}

// A benchmark is a suite whose scores are published.
type benchmark struct {
	Name     string
	Title    string // its name in tables
	Problems int
	// Files are the names its file or folder may have, without extension.
	Files []string
}

// Benchmarks are the five of the paper's Table 2, in its order. The evaluation suite of
// sail-sg/understand-r1-zero has their files, in folders of the second names.
var Benchmarks = []benchmark{
	{"aime24", "AIME24", 30, []string{"aime24", "aime"}},
	{"amc", "AMC", 83, []string{"amc"}},
	{"math500", "MATH500", 500, []string{"math500", "math"}},
	{"minerva", "Minerva", 272, []string{"minerva"}},
	{"olympiadbench", "Oly.", 675, []string{"olympiadbench", "olympiad_bench"}},
}

// findBenchmark returns the benchmark of that name.
func findBenchmark(name string) (b benchmark, known bool) {
	i := slices.IndexFunc(Benchmarks, func(b benchmark) bool { return b.Name == name })
	if i >= 0 {
		b = Benchmarks[i]
	}
	return b, i >= 0
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// locate finds the file of a suite: spec is NAME=PATH, a path, or a name to be
// looked up in dir (as NAME.jsonl, NAME.parquet, a folder NAME ...).
func locate(spec, dir string) (name, path string, err error) {
	if name, path, ok := strings.Cut(spec, "="); ok && word.MatchString(name) && !exists(spec) {
		if path == "" {
			return "", "", fmt.Errorf("eval: suite %q names no file: write %s=PATH", spec, name)
		}
		return name, path, nil
	}
	if name, ok := strings.CutPrefix(spec, "builtin:"); ok {
		return name, spec, nil
	}
	names := []string{spec}
	b, known := findBenchmark(spec)
	if known {
		names = b.Files
	}
	if dir != "" && word.MatchString(spec) {
		for _, n := range names {
			path, ok := find(dir, n)
			if ok && known {
				return spec, path, nil
			}
			if ok {
				return nameOf(path), path, nil
			}
		}
		if !exists(spec) {
			return "", "", fmt.Errorf("eval: suite %q is not in %s: looked for %s with %s, and for such a folder", spec,
				dir, strings.Join(names, " and "), strings.Join(data.Extensions(), ", "))
		}
	}
	if known && !exists(spec) {
		return "", "", fmt.Errorf("eval: where is %s? Name its file (%s=PATH) or the folder of the suites", spec, spec)
	}
	return nameOf(spec), spec, nil
}

// nameOf is a file's name without its extension.
func nameOf(path string) string {
	name, _ := data.Split(filepath.Base(path))
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// find returns the data file in dir that has this name and an extension, or else the
// folder of this name. Among several files the order of data.Formats decides, then the
// shortest name.
func find(dir, name string) (path string, ok bool) {
	path = filepath.Join(dir, name)
	ok = exists(path)
	entries, _ := os.ReadDir(dir)
	extensions, best, length := data.Extensions(), math.MaxInt, 0
	for _, e := range entries {
		stem, ext := data.Split(e.Name())
		rank := slices.Index(extensions, strings.ToLower(ext))
		if stem == name && ext != "" && (rank < best || rank == best && len(e.Name()) < length) {
			path, ok, best, length = filepath.Join(dir, e.Name()), true, rank, len(e.Name())
		}
	}
	return path, ok
}
