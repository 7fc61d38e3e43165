package house

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// sizes are those of the repository at the last release. Nothing may be more than a
// hundredth, and one, above it: to say so here needs a reason in the commit.
var sizes = []struct {
	name    string
	release int
	of      func(h *house) int
}{
	{"lines outside tests", 119900, (*house).lines},
	{"packages", 112, func(h *house) int { return len(h.packages()) }},
	{"exported names", 1205, (*house).exported},
	{"packages of ours that cmd imports", 29, func(h *house) int { return len(h.imports("cmd")) }},
	{"packages of ours that train imports", 11, func(h *house) int { return len(h.imports("train")) }},
	{"files of the largest package but cmd", 26, (*house).mostFiles},
	{"structs with more than 24 methods", 14, (*house).wideTypes},
	{"files of cmd", 30, func(h *house) int { return len(h.packages()["cmd"]) }},
	{"lines of train, cmd and eval with AgreeOn", 7, func(h *house) int { return h.mentions("AgreeOn(", "train", "cmd", "eval") }},
	{"lines of the spine", 13050, (*house).spineLines},
}

// TestGrowth prints each figure beside that of the last release.
func TestGrowth(t *testing.T) {
	h := load(t)
	for _, c := range sizes {
		n, most := c.of(h), c.release+c.release/100+1
		t.Logf("%7d, %7d at the last release: %s", n, c.release, c.name)
		if n > most {
			t.Errorf("there are %d %s, more than %d", n, c.name, most)
		}
		if n == 0 {
			t.Errorf("no %s were found", c.name)
		}
	}
}

// spine are the packages and files that one reads to follow a problem to an update:
// prompt, response, score, advantage, weight, gradient. docs/spine.md walks them.
var spine = []string{
	"train", "train/rl", "train/learn", "sampler", "objectives", "reward",
	"runtime/decoder.go", "runtime/decoder_sample.go", "runtime/cache.go", "runtime/prefill.go", "runtime/rows.go",
	"runtime/pass.go", "runtime/packed.go", "runtime/head.go", "runtime/layers.go", "runtime/learner.go",
	"runtime/optimizer.go", "runtime/ring.go",
}

// besides are files of the spine's packages that the walk leaves out: estimates of memory,
// failures and their replay, settings, the order of problems, what a varying grader said, the
// cache of chat, several rewards in one, how a run is saved and resumed, episodes of several
// turns, and the commands weights and step.
var besides = []string{
	"train/saver.go", "train/pusher.go", "train/plan.go", "train/learned.go", "train/rl/resume.go", "train/rl/checkpoint.go",
	"train/rl/estimate", "train/learn/estimate.go", "train/learn/nonfinite.go", "train/learn/explain.go", "train/rl/failure.go", "train/rl/replay.go", "train/rl/step.go",
	"train/rl/config", "train/rl/order", "train/rl/grades.go", "train/rl/weights.go", "train/rl/turns.go", "sampler/arrivals.go", "sampler/kept.go", "reward/combined.go", "objectives/evaluate.go",
}

func (h *house) spineLines() int {
	n := 0
	for _, f := range h.files {
		on := slices.ContainsFunc(spine, func(s string) bool { return f.path == s || f.folder == s })
		off := slices.ContainsFunc(besides, func(s string) bool { return strings.HasPrefix(f.path, s) })
		if on && !off && !f.test {
			n += f.lines()
		}
	}
	return n
}

func (h *house) lines() int {
	n := 0
	for _, f := range h.files {
		if !f.test {
			n += f.lines()
		}
	}
	return n
}

// exported counts the exported functions, types, constants and variables by package. A
// name that has a declaration for each system counts once.
func (h *house) exported() int {
	names := map[string]bool{}
	for _, f := range h.files {
		if f.test {
			continue
		}
		add := func(name *ast.Ident) {
			if name.IsExported() {
				names[f.folder+"."+name.Name] = true
			}
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name)
						}
					}
				}
			}
		}
	}
	return len(names)
}

// imports lists the packages of ours that a package imports outside its tests.
func (h *house) imports(folder string) map[string]bool {
	list := map[string]bool{}
	for _, f := range h.packages()[folder] {
		for _, name := range f.imports() {
			if ours, ok := strings.CutPrefix(name, "onering/"); ok {
				list[ours] = true
			}
		}
	}
	return list
}

// mentions counts the lines outside tests that hold a text, in folders and below them.
func (h *house) mentions(text string, folders ...string) int {
	n := 0
	for _, f := range h.files {
		if f.test || !slices.ContainsFunc(folders, func(s string) bool { return strings.HasPrefix(f.path, s+"/") }) {
			continue
		}
		for line := range strings.Lines(f.text) {
			if strings.Contains(line, text) {
				n++
			}
		}
	}
	return n
}
