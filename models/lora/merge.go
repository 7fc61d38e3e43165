package lora

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/ordered"
	"onering/models"
)

// mergeable lists keys of adapters that the graphs cannot compute, since all layers share
// a graph, but Merge can: the names and shapes of the tensors reflect them.
var mergeable = []string{"rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform", "exclude_modules", "target_modules", "ensure_weight_tying"}

// A merging adds the tensors of an adapter to the weights of its model.
type merging struct {
	config
	ranks, alphas patterns
	file          *models.File
	model         *models.Weights
}

// Merge adds the adapter in the folder dir to the weights of its model: W + scale B A for
// each module that has a product, with any rank and scale. Modules of modules_to_save
// replace the model's.
func Merge(dir string, model *models.Weights) (err error) {
	path := filepath.Join(dir, configFile)
	text, err := files.ReadIn(path, 1<<20)
	if err != nil {
		return fmt.Errorf("lora: an adapter's folder needs its config: %w; name the folder that PEFT or onering wrote", err)
	}
	x := merging{model: model}
	if err := x.parse(text); err != nil {
		return fmt.Errorf("lora: %s: %w", path, err)
	}
	if x.file, err = models.OpenSafetensors(filepath.Join(dir, tensorFile)); err != nil {
		return fmt.Errorf("lora: %w", err)
	}
	defer func() { err = errors.Join(err, x.file.Close()) }()
	names := x.file.Names()
	errs := make([]error, len(names))
	models.AtOnce(runtime.GOMAXPROCS(0), len(names), func(i int) {
		if err := x.add(names[i]); err != nil {
			errs[i] = fmt.Errorf("lora: %s: tensor %q: %w", x.file.Path(), names[i], err)
		}
	})
	return cmp.Or(errs...)
}

// parse reads adapter_config.json.
func (x *merging) parse(text []byte) error {
	rest := map[string]json.RawMessage{}
	err := ordered.EachMember(text, func(key string, value []byte, _ int) (err error) {
		switch key {
		case "rank_pattern":
			x.ranks, err = readPatterns(key, value)
		case "alpha_pattern":
			x.alphas, err = readPatterns(key, value)
		}
		if !slices.Contains(mergeable, key) {
			rest[key] = slices.Clone(value)
		}
		return err
	})
	if err != nil {
		return err
	}
	if text, err = json.Marshal(rest); err == nil {
		x.config, err = parseConfig(text)
	}
	return err
}

// add merges a tensor into the weights; for an A or a B it merges their product.
func (x *merging) add(name string) error {
	module := strings.TrimPrefix(name, models.AdapterPrefix)
	switch {
	case strings.HasSuffix(name, models.AdapterB):
		if _, ok := x.file.Info(strings.TrimSuffix(name, models.AdapterB) + models.AdapterA); !ok {
			return errors.New("it has no lora_A beside it")
		}
		return nil // the B is merged together with its A
	case strings.HasSuffix(name, models.AdapterA):
		return x.product(strings.TrimSuffix(module, models.AdapterA), name, strings.TrimSuffix(name, models.AdapterA)+models.AdapterB)
	case strings.Contains(name, ".lora_"):
		return errors.New("onering merges the two matrices of a linear module only, and this tensor is of another kind: merge it with PEFT's merge_and_unload")
	}
	return x.replace(name, strings.Replace(module, ".modules_to_save.", ".", 1))
}

// tensor reads a tensor whose shape must have two given sizes; 0 allows any size.
func (x *merging) tensor(name string, rows, columns int) ([]float32, []int, error) {
	info, ok := x.file.Info(name)
	if !ok {
		return nil, nil, fmt.Errorf("there is no %q beside it", name)
	}
	if s := info.Shape; len(s) != 2 || rows > 0 && s[0] != rows || columns > 0 && s[1] != columns {
		return nil, nil, fmt.Errorf("%q has the shape %v: it is not one of this model", name, info.Shape)
	}
	data := make([]float32, info.Elements)
	return data, info.Shape, errors.Join(x.file.ReadFloat32(name, data, 0), finite(data))
}

func finite(data []float32) error {
	if i := slices.IndexFunc(data, func(v float32) bool { return v-v != 0 }); i >= 0 {
		return fmt.Errorf("it has %v at its element %d: the training that wrote it had failed; take an earlier checkpoint", data[i], i)
	}
	return nil
}

// product adds the product of a module.
func (x *merging) product(module, nameA, nameB string) error {
	w, shape, ok := x.model.View(module + ".weight")
	if !ok || len(shape) != 2 {
		return fmt.Errorf("%s is no matrix of this model", module)
	}
	a, shapeA, err := x.tensor(nameA, 0, shape[1])
	if err != nil {
		return err
	}
	rank := shapeA[0]
	if stated := x.ranks.of(module, float64(x.Rank)); float64(rank) != stated {
		return fmt.Errorf("its rank is %d, and %s states %g (r, rank_pattern)", rank, configFile, stated)
	}
	b, _, err := x.tensor(nameB, shape[0], rank)
	if err != nil {
		return err
	}
	scale := x.alphas.of(module, x.Alpha) / float64(rank)
	if x.RSLoRA {
		scale = x.alphas.of(module, x.Alpha) / math.Sqrt(float64(rank))
	}
	addProduct(w, a, b, shape[1], scale)
	return nil
}

// replace replaces a tensor of the model by the adapter's, which was trained completely.
// If the model's head is its embedding, an adapter may not replace only one of the two.
func (x *merging) replace(name, to string) error {
	const head = "lm_head.weight"
	_, _, hasHead := x.model.View(head)
	w, shape, ok := x.model.View(to)
	embedding := strings.HasSuffix(to, "embed_tokens.weight")
	info, _ := x.file.Info(name)
	data := make([]float32, info.Elements)
	if err := errors.Join(x.file.ReadFloat32(name, data, 0), finite(data)); err != nil {
		return err
	}
	if !hasHead && (to == head || embedding) {
		for _, other := range x.file.Names() {
			info, _ := x.file.Info(other)
			twin := other != name && (strings.HasSuffix(other, "embed_tokens.weight") || strings.HasSuffix(other, head)) && info.Elements == len(data)
			if values := make([]float32, info.Elements); twin && x.file.ReadFloat32(other, values, 0) == nil && slices.Equal(values, data) {
				if !embedding {
					return nil // the embedding and the head agree
				}
				hasHead = true
			}
		}
		if !hasHead {
			return errors.New("modules_to_save has one of lm_head and embed_tokens, which are one tensor in this model (tie_word_embeddings): its folder cannot hold two; save the model untied with transformers first")
		}
	}
	if !ok || !slices.Equal(shape, info.Shape) {
		return fmt.Errorf("modules_to_save: it has the shape %v, and the model has %v for %s", info.Shape, shape, to)
	}
	copy(w, data)
	return nil
}

// addProduct adds scale B A to a weight with in columns.
func addProduct(w, a, b []float32, in int, scale float64) {
	rank, sum := len(a)/in, make([]float64, in)
	for i := range len(w) / in {
		clear(sum)
		for k, v := range b[i*rank : (i+1)*rank] {
			for j, x := range a[k*in : (k+1)*in] {
				sum[j] += float64(v) * float64(x)
			}
		}
		row := w[i*in : (i+1)*in]
		for j, x := range sum {
			row[j] = float32(float64(row[j]) + scale*x)
		}
	}
}

// patterns assign numbers to modules: the first pattern that matches the end of a module's name
// counts.
type patterns []pattern

type pattern struct {
	name  *regexp.Regexp
	value float64
}

func readPatterns(key string, value []byte) (list patterns, err error) {
	if string(value) == "null" {
		return nil, nil
	}
	err = ordered.EachMember(value, func(name string, value []byte, _ int) error {
		p := pattern{}
		var err error
		if p.name, err = regexp.Compile(`^(?:.*\.)?(?:` + strings.TrimPrefix(name, "^") + `)$`); err != nil {
			return fmt.Errorf("%s: %q: %w", key, name, err)
		}
		if json.Unmarshal(value, &p.value) != nil || !(p.value > 0) {
			return fmt.Errorf("%s: %q: want a number above 0, found %.60s", key, name, value)
		}
		list = append(list, p)
		return nil
	})
	return list, err
}

func (list patterns) of(module string, usual float64) float64 {
	for _, p := range list {
		if p.name.MatchString(module) {
			return p.value
		}
	}
	return usual
}
