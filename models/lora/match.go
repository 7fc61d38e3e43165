package lora

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"onering/internal/ordered"
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
}

func modulesOf(m models.Model) (b modules, err error) {
	arch, err := m.Architecture(models.Compute{})
	if err != nil {
		return b, err
	}
	b.names, b.embedding = models.ModulesOf(arch), strings.TrimSuffix(arch.Geometry().Embedding, ".weight")
	for i := range m.Layers {
		b.prefixes = append(b.prefixes, arch.LayerPrefix(i))
		for _, name := range b.names {
			b.paths = append(b.paths, arch.LayerPrefix(i)+name)
		}
	}
	return b, nil
}

// products returns the products that PEFT gives a model with the config c.
func (c config) products(b modules) (list []product, err error) {
	if c.targets.all {
		c.targets.names = b.paths
	}
	for _, path := range append(slices.Clone(b.paths), headModule, b.embedding) {
		switch p := (product{path, int(c.ranks.of(path, float64(c.Rank))), c.alphas.of(path, c.Alpha)}); {
		case !c.adapts(path):
			continue
		case path == b.embedding:
			return nil, fmt.Errorf("target_modules has %s, an embedding, and only products of linear modules are computed: merge it with PEFT's merge_and_unload", path)
		case c.RSLoRA:
			list = append(list, product{path, p.rank, p.scale / math.Sqrt(float64(p.rank))})
		default:
			list = append(list, product{path, p.rank, p.scale / float64(p.rank)})
		}
	}
	if len(list) == 0 {
		err = fmt.Errorf("target_modules: they name no module of a layer: it has %s (all-linear is all of them)", strings.Join(b.names, ", "))
	}
	return list, err
}

// adapts reports whether the module at a path has a product.
func (c config) adapts(path string) bool {
	switch {
	case c.exclude.matches(path) || matchAny(c.saved, path) || !c.targets.matches(path):
		return false
	case c.layers == nil || slices.Contains(c.targets.names, path):
		return true
	}
	for _, p := range c.indexes {
		if found := p.FindStringSubmatch(path); found != nil { // the first that matches counts
			return slices.ContainsFunc(c.layers, func(l *int) bool { return strconv.Itoa(*l) == found[p.SubexpIndex("idx")] })
		}
	}
	return false
}

// whole lists those of a model's tensors that modules_to_save names: a name there is the
// end of the path of a module, or of one above it, even within a word.
func (c config) whole(tensors []string) []string {
	return slices.DeleteFunc(slices.Clone(tensors), func(tensor string) bool {
		for at, letter := range tensor {
			if letter == '.' && slices.ContainsFunc(c.save, func(name string) bool { return strings.HasSuffix(tensor[:at], name) }) {
				return false
			}
		}
		return true
	})
}

const allLinear = "all-linear"

// targets is the value of target_modules or exclude_modules: names, a pattern, or all.
type targets struct {
	names   []string
	pattern []*regexp.Regexp // at most one
	all     bool
}

func (t *targets) parse(value []byte) error {
	list, single, err := texts(value)
	switch {
	case err != nil:
		return err
	case !single:
		t.names = list
	default:
		t.all = strings.EqualFold(list[0], allLinear) // as exclude_modules it is a pattern that matches nothing
		t.pattern, err = compile("^(?:", ")$", list...)
	}
	return err
}

// matches reports whether the targets include the module at a path.
func (t targets) matches(path string) bool {
	return matchAny(t.pattern, path) || slices.ContainsFunc(t.names, func(name string) bool { return covers(name, path) })
}

func covers(name, path string) bool { return path == name || strings.HasSuffix(path, "."+name) }

func matchAny(patterns []*regexp.Regexp, path string) bool {
	return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(path) })
}

// texts reads a text or a list of texts.
func texts(value []byte) (list []string, single bool, err error) {
	var text string
	switch {
	case json.Unmarshal(value, &list) == nil && list != nil:
		return list, false, nil
	case string(value) != "null" && json.Unmarshal(value, &text) == nil:
		return []string{text}, true, nil
	}
	return nil, false, fmt.Errorf("want names of modules or a pattern, found %.60s", value)
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
			return nil, fmt.Errorf("the pattern %q has %q, which is not supported here: write it without, or name the modules one by one", text, strings.TrimSuffix(wrong.Expr, after))
		}
		out = append(out, p)
	}
	return out, nil
}

// patterns assign numbers to modules. The first that a module's path matches, from its
// beginning or from after a dot to its end, counts.
type patterns []pattern

type pattern struct {
	name  string           // for messages
	path  []*regexp.Regexp // one
	value float64
}

func readPatterns(key string, value []byte, valid func(float64) bool) (list patterns, err error) {
	err = ordered.EachMember(value, func(name string, value []byte, _ int) error {
		p := pattern{name: fmt.Sprintf("%s %q", key, name)}
		if json.Unmarshal(value, &p.value) != nil || string(value) == "null" || !valid(p.value) {
			return fmt.Errorf("%q: want a number (ranks are whole and above 0), found %.60s", name, value)
		}
		p.path, err = compile(`^(?:.*\.)?(?:`, `)$`, name)
		list = append(list, p)
		return err
	})
	return list, err
}

func (list patterns) of(path string, usual float64) float64 {
	if i := slices.IndexFunc(list, func(p pattern) bool { return matchAny(p.path, path) }); i >= 0 {
		return list[i].value
	}
	return usual
}
