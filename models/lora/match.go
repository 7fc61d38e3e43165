package lora

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"onering/internal/ordered"
	"onering/internal/strict"
	"onering/models"
)

// This file says which modules an adapter_config.json means, as PEFT does: a name is a
// path or the end of one, a pattern is one of Python. A path is that of the model's module,
// as model.layers.0.self_attn.q_proj.

// headModule is the head, also of models in which it is one tensor with the embedding.
const headModule = "lm_head"

// A product is the low-rank product of the module at a path.
type product struct {
	module string
	rank   int
	scale  float64
}

// modules lists the modules of a model that may have products: names within a layer,
// which the prefix of each layer makes paths.
type modules struct {
	prefixes, names, paths []string
	embedding              string
	naming                 fileNaming
}

// A fileNaming has what the names of a model's tensors begin with, and what the paths of their modules in
// PEFT's files begin with instead, if they differ; see models.Geometry.
type fileNaming [2]string

// path returns the path of a module of which the tensors have a name.
func (m fileNaming) path(name string) string {
	if rest, ok := strings.CutPrefix(name, m[0]); ok && m[0] != "" {
		return m[1] + rest
	}
	return name
}

// name returns the name of a tensor of an adapter's file without the AdapterPrefix.
func (m fileNaming) name(inFile string) (name string, ok bool) {
	path, ok := strings.CutPrefix(inFile, models.AdapterPrefix)
	return fileNaming{m[1], m[0]}.path(path), ok
}

// targets returns what adapter_config.json says for modules that have one of the names, but no
// module of another part of a larger model.
func (m fileNaming) targets(names []string) any {
	if m[1] == "" {
		return names
	}
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	return regexp.QuoteMeta(m[1]) + `(?:.*\.)?(?:` + strings.Join(quoted, "|") + ")"
}

func modulesOf(m models.Model) (b modules, err error) {
	arch, err := m.Architecture(models.Compute{})
	if err != nil {
		return b, err
	}
	g := arch.Geometry()
	b.names, b.embedding, b.naming = models.ModulesOf(arch), strings.TrimSuffix(g.Embedding, ".weight"), g.Modules
	for i := range m.Layers {
		b.prefixes = append(b.prefixes, arch.LayerPrefix(i))
		for _, name := range b.names {
			b.paths = append(b.paths, arch.LayerPrefix(i)+name)
		}
	}
	return b, nil
}

// products returns the products that PEFT gives a model with the config c, also for the head, and the modules of the
// model. Alphas and Ranks may give a module other numbers than Alpha and Rank, of which the scale is made.
func (c config) products(m models.Model) (list []product, b modules, err error) {
	if b, err = modulesOf(m); err != nil {
		return nil, b, err
	}
	if c.Targets.single && strings.EqualFold(c.Targets.list[0], allLinear) {
		c.Targets = targets{} // the paths of all modules in layers
		for _, name := range b.paths {
			c.Targets.list = append(c.Targets.list, b.naming.path(name))
		}
	}
	for _, name := range append(slices.Clone(b.paths), headModule, b.embedding) {
		path := b.naming.path(name)
		rank, alpha := int(c.Ranks.valueFor(path, float64(c.Rank))), c.Alphas.valueFor(path, c.Alpha)
		switch {
		case !c.hasProduct(path):
			continue
		case name == b.embedding:
			return nil, b, fmt.Errorf("target_modules has %s, an embedding, and only products of linear modules are "+
				"computed: merge it with PEFT's merge_and_unload", path)
		case c.RSLoRA:
			list = append(list, product{name, rank, alpha / math.Sqrt(float64(rank))})
		default:
			list = append(list, product{name, rank, alpha / float64(rank)})
		}
	}
	if len(list) == 0 {
		err = fmt.Errorf("target_modules: they name no module of a layer: it has %s (all-linear is all of them)", strings.Join(b.names, ", "))
	}
	return list, b, err
}

// hasProduct reports whether the module at a path has a product.
func (c config) hasProduct(path string) bool {
	switch {
	case c.Exclude.matches(path) || matchAny(c.savedPatterns, path) || !c.Targets.matches(path):
		return false
	case len(c.Layers) == 0 || slices.Contains(c.Targets.list, path):
		return true
	}
	for _, p := range c.layerNumbers {
		if found := p.FindStringSubmatch(path); found != nil { // the first that matches counts
			return slices.ContainsFunc(c.Layers, func(l int) bool { return strconv.Itoa(l) == found[p.SubexpIndex("idx")] })
		}
	}
	return false
}

// replacedBySave lists those of a model's tensors that modules_to_save names: a name there is the
// end of the path of a module, or of one above it, even within a word.
func (c config) replacedBySave(tensors []string) []string {
	return slices.DeleteFunc(slices.Clone(tensors), func(tensor string) bool {
		for at, letter := range tensor {
			if letter == '.' && slices.ContainsFunc(c.Save, func(name string) bool { return strings.HasSuffix(tensor[:at], name) }) {
				return false
			}
		}
		return true
	})
}

const allLinear = "all-linear"

// targets are names of modules or, if there is a single text in place of a list, a pattern.
type targets struct {
	list    []string
	single  bool
	pattern []*regexp.Regexp // at most one
}

// UnmarshalJSON reads a text or a list of texts; null and "" are none.
func (t *targets) UnmarshalJSON(value []byte) (err error) {
	switch {
	case value[0] != '"':
		return strict.JSON(value, &t.list)
	case string(value) == `""`:
		return nil
	}
	t.single, t.list = true, make([]string, 1)
	if err = strict.JSON(value, &t.list[0]); err == nil {
		t.pattern, err = compile("^(?:", ")$", t.list...)
	}
	return err
}

// matches reports whether the targets include the module at a path.
func (t targets) matches(path string) bool {
	return matchAny(t.pattern, path) || !t.single && slices.ContainsFunc(t.list, func(name string) bool { return namesEndOf(name, path) })
}

// layers are numbers of layers, or one.
type layers []int

// UnmarshalJSON reads a number or a list of numbers.
func (l *layers) UnmarshalJSON(value []byte) error {
	if value[0] != '[' && value[0] != 'n' {
		value = slices.Concat([]byte("["), value, []byte("]"))
	}
	return strict.JSON(value, (*[]int)(l))
}

func namesEndOf(name, path string) bool { return path == name || strings.HasSuffix(path, "."+name) }

func matchAny(patterns []*regexp.Regexp, path string) bool {
	return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(path) })
}

// compile compiles patterns of Python, each between two parts of one of Go. What Go's
// patterns lack, or read in another way, is refused.
func compile(before, after string, list ...string) (out []*regexp.Regexp, err error) {
	for _, text := range list {
		p, err := regexp.Compile(before + text + after)
		wrong, _ := errors.AsType[*syntax.Error](err)
		if strings.Contains(text, "{,") {
			wrong = &syntax.Error{Expr: "{,"}
		}
		if wrong != nil {
			return nil, fmt.Errorf("the pattern %q has %q, which is not supported here: write it without, or name the modules one by one",
				text, strings.TrimSuffix(wrong.Expr, after))
		}
		out = append(out, p)
	}
	return out, nil
}

// patterns assign numbers to modules. The first that a module's path matches, from its
// beginning or from after a dot to its end, counts.
type patterns []pattern

type pattern struct {
	name  string
	path  []*regexp.Regexp // one
	value float64
}

// UnmarshalJSON reads an object from patterns to numbers, in its order.
func (list *patterns) UnmarshalJSON(value []byte) error {
	numbers := map[string]*float64{}
	if err := strict.JSON(value, &numbers); err != nil || string(value) == "null" {
		return err
	}
	return ordered.EachMember(value, func(name string, _ []byte, _ int) error {
		path, err := compile(`^(?:.*\.)?(?:`, `)$`, name)
		v := numbers[name]
		if v == nil || !(math.Abs(*v) <= math.MaxFloat32) {
			return fmt.Errorf("%q must be a number of float32", name)
		}
		*list = append(*list, pattern{name, path, *v})
		return err
	})
}

func (list patterns) valueFor(path string, usual float64) float64 {
	if i := slices.IndexFunc(list, func(p pattern) bool { return matchAny(p.path, path) }); i >= 0 {
		return list[i].value
	}
	return usual
}
