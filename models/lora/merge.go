package lora

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"onering/models"
)

// A merging adds the tensors of an adapter to the weights of its model.
type merging struct {
	config
	products []product
	model    *models.Weights
	// tied says that the head and the embedding are one tensor, embedding.
	tied         bool
	embedding    string // the embedding's name
	naming       fileNaming
	replacements map[string]string // from tensors of the adapter to those of the model that they replace
}

// Merge adds the adapter in the folder dir to the weights of its model m: W + scale B A for
// each module that has a product, with any rank and scale. Modules of modules_to_save
// replace the model's, and so do other tensors that have the names of the model's.
func Merge(dir string, m models.Model, model *models.Weights) error {
	path := filepath.Join(dir, configFile)
	c, err := readConfig(path)
	if err != nil {
		return err
	}
	products, base, err := c.products(m)
	if err != nil {
		return fmt.Errorf("lora: %s: %w", path, err)
	}
	products = slices.DeleteFunc(products, func(p product) bool { // layers of different kinds have different modules
		_, _, has := model.View(p.module + ".weight")
		return !has && p.module != headModule
	})
	merging := merging{config: c, products: products, model: model, embedding: base.embedding + ".weight", naming: base.naming, replacements: map[string]string{}}
	_, _, untied := model.View(headTensor)
	merging.tied = !untied
	f, err := openTensors(dir, nil) // unchecked: the layout depends on the names in the file
	if err != nil {
		return err
	}
	layout, err := merging.layout(f.Names())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("lora: %s: %w", path, err)
	}
	tensors, err := readTensors(dir, layout, c.unusedPatterns(products))
	if err != nil {
		return err
	}
	defer tensors.Close()
	if err := merging.checkTied(tensors); err != nil {
		return fmt.Errorf("lora: %s: %w", path, err)
	}
	for from, to := range merging.replacements {
		data, _, _ := tensors.View(from)
		w, _, _ := model.View(to) // a head that is the embedding has none of its own
		copy(w, data)
	}
	models.AtOnce(runtime.GOMAXPROCS(0), len(products), func(i int) {
		p := products[i]
		w, shape, _ := model.View(p.module + ".weight")
		a, _, _ := tensors.View(models.AdapterPrefix + p.module + models.AdapterA)
		b, _, _ := tensors.View(models.AdapterPrefix + p.module + models.AdapterB)
		addProduct(w, a, b, shape[1], p.scale)
	})
	return nil
}

// layout returns the tensors that the adapter must have: A and B of each product, and those that replace
// the model's, which it adds to x.replacements. These are what modules_to_save names, and of names, those of
// the adapter's file, the ones that the model has, too.
func (x *merging) layout(names []string) (*models.Layout, error) {
	var table []models.Fused
	shapes, has := map[string][]int{}, map[string]bool{}
	for _, t := range x.model.Tensors() {
		shapes[t.Name] = t.Shape
	}
	for _, p := range x.products {
		shape := shapes[p.module+".weight"]
		if shape == nil {
			return nil, fmt.Errorf("target_modules has %s, and %w", p.module, errTied)
		}
		has[p.module] = true
		table = append(table, models.Plain(models.AdapterPrefix+p.module+models.AdapterA, p.rank, shape[1]),
			models.Plain(models.AdapterPrefix+p.module+models.AdapterB, shape[0], p.rank))
	}
	if x.tied {
		shapes[headTensor] = shapes[x.embedding]
	}
	for _, name := range x.config.replacedBySave(slices.Sorted(maps.Keys(shapes))) {
		if module := name[:strings.LastIndex(name, ".")]; has[module] {
			return nil, fmt.Errorf("both target_modules and modules_to_save have %s: PEFT refuses that, too", module)
		}
		x.replacements[models.AdapterPrefix+name] = name
	}
	for _, from := range names {
		to, ours := x.naming.name(strings.Replace(from, ".base_layer.", ".", 1))
		// PEFT has the model's tensor under base_layer if its module has a product, and else under its own name.
		if module := to[:max(0, strings.LastIndex(to, "."))]; ours && shapes[to] != nil && has[module] == strings.Contains(from, ".base_layer.") {
			x.replacements[from] = to
		}
	}
	for _, from := range slices.Sorted(maps.Keys(x.replacements)) {
		table = append(table, models.Plain(from, shapes[x.replacements[from]]...))
	}
	l, err := models.NewLayout(table)
	if err == nil {
		l.Modules = x.naming
	}
	return l, err
}

const headTensor = headModule + ".weight"

var errTied = errors.New("the head and the embedding are one tensor in this model (tie_word_embeddings): its " +
	"folder cannot hold two; save the model untied with transformers first")

// checkTied refuses tensors that would part the head from the embedding of a model in which they are one.
func (x *merging) checkTied(tensors *models.Weights) error {
	head, _, hasHead := tensors.View(models.AdapterPrefix + headTensor)
	embedding, _, hasEmbedding := tensors.View(models.AdapterPrefix + x.embedding)
	embeddingAlone := hasEmbedding && !x.Tying && len(x.config.replacedBySave([]string{x.embedding})) > 0
	if x.tied && (hasHead && !slices.Equal(head, embedding) || !hasHead && embeddingAlone) {
		return fmt.Errorf("modules_to_save has one of %s and %s, or both with different numbers, and %w", headModule, x.embedding, errTied)
	}
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
