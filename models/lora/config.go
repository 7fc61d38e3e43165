package lora

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onering/internal/files"
	"onering/internal/ordered"
	"onering/internal/strict"
	"onering/models"
)

// A config is the content of adapter_config.json.
type config struct {
	Rank    int      `json:"r"`
	Alpha   float64  `json:"lora_alpha"`
	RSLoRA  bool     `json:"use_rslora"`
	Dropout float64  `json:"lora_dropout"`
	Tying   bool     `json:"ensure_weight_tying"`
	Targets targets  `json:"target_modules"`
	Exclude targets  `json:"exclude_modules"`
	Layers  layers   `json:"layers_to_transform"` // none stands for all
	Indexes targets  `json:"layers_pattern"`
	Ranks   patterns `json:"rank_pattern"`
	Alphas  patterns `json:"alpha_pattern"`
	Save    []string `json:"modules_to_save"`

	layerNumbers  []*regexp.Regexp // of Indexes: the number of a layer in a path is idx
	savedPatterns []*regexp.Regexp // of Save: PEFT gives what they match no products
	text          []byte
}

// computedValues lists keys whose other values would change the computation, with the values that
// the graphs compute, as JSON. A key may also be absent or null.
var computedValues = map[string][]string{
	"peft_type": {`"LORA"`},
	"task_type": {`"CAUSAL_LM"`},
	"bias":      {`"none"`},
	// The other types of bias change the weights of the base or need its data: the
	// adapter alone is then not the whole model.
	"init_lora_weights": {"true", "false", `"gaussian"`, `"orthogonal"`, `"eva"`},
}

// Keys that do not affect the computation, and keys that are read.
var (
	ignoredKeys = []string{"auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version",
		"megatron_core", "qalora_group_size", "eva_config", "runtime_config"}
	readKeys = []string{"r", "lora_alpha", "use_rslora", "lora_dropout", "ensure_weight_tying", "target_modules",
		"exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "modules_to_save"}
)

const maxRank = 1 << 16

// anyIndex finds the number of a layer in a path: the first one.
const anyIndex = `^.*?\.[^.]*\.(?P<idx>\d+)\.`

func readConfig(path string) (config, error) {
	text, err := files.ReadIn(path, 1<<20)
	if err != nil {
		return config{}, fmt.Errorf("lora: an adapter's folder needs its config: %w; name the folder that PEFT or onering wrote", err)
	}
	c, err := parseConfig(text)
	if err != nil {
		return config{}, fmt.Errorf("lora: %s: %w", path, err)
	}
	return c, nil
}

// parseConfig reads the text of an adapter_config.json, with PEFT's defaults. A key that it does not know or compute is
// an error unless its value is empty. It compiles layers_pattern and modules_to_save to layerNumbers and savedPatterns.
func parseConfig(text []byte) (config, error) {
	c := config{Rank: 8, Alpha: 8, text: text}
	if err := strict.JSON(text, &c); err != nil {
		return c, err
	}
	err := ordered.EachMember(text, func(key string, value []byte, _ int) error {
		empty := slices.Contains([]string{"null", "false", "{}", "[]", `""`}, string(compact(value)))
		switch want, known := computedValues[key]; { // of these keys, only the values in want are computed
		case empty || slices.Contains(ignoredKeys, key) || slices.Contains(readKeys, key) || slices.Contains(want, string(value)):
			return nil // ignoredKeys do not affect the computation, and readKeys are fields of config
		case !known: // a key of another kind of adapter, or of a variant of LoRA
			return fmt.Errorf("%s is %.60s: onering has no such adapters, only LoRA without it", key, value)
		default:
			return fmt.Errorf("%s %.60s is not supported, only %s", key, value, strings.Join(want, ", "))
		}
	})
	if err != nil {
		return c, err
	}
	// layers_pattern, in c.Indexes, names what comes before a layer's number, such as layers in model.layers.0.mlp.
	if c.layerNumbers, err = compile(`^(?:(?:^|.*?\.)`, `\.(?P<idx>\d+)\.)`, c.Indexes.list...); err != nil {
		return c, fmt.Errorf("layers_pattern: %w", err)
	}
	if len(c.layerNumbers) == 0 {
		c.layerNumbers = []*regexp.Regexp{regexp.MustCompile(anyIndex)}
	}
	// modules_to_save, in c.Save, names whole words of a path, between dots or its ends.
	if c.savedPatterns, err = compile(`^(?:(^|.*\.)`, `($|\..*))`, c.Save...); err != nil {
		return c, fmt.Errorf("modules_to_save: %w", err)
	}
	fractional := func(p pattern) bool { return !(p.value >= 1 && p.value <= maxRank && p.value == math.Trunc(p.value)) }
	switch i := slices.IndexFunc(c.Ranks, fractional); {
	case c.Rank < 1 || c.Rank > maxRank:
		return c, fmt.Errorf("r (%d) must be from 1 to %d", c.Rank, maxRank)
	case i >= 0:
		return c, fmt.Errorf("rank_pattern: %q (%g) must be a whole number from 1 to %d", c.Ranks[i].name, c.Ranks[i].value, maxRank)
	case !(math.Abs(c.Alpha) <= math.MaxFloat32):
		return c, fmt.Errorf("lora_alpha (%v) must be a number of float32", c.Alpha)
	case len(c.Layers) > 0 && c.Targets.single:
		return c, errors.New("layers_to_transform and a target_modules that is not a list: PEFT refuses both together; name the modules in a list")
	}
	return c, nil
}

// compact removes spaces from JSON, so that empty lists and objects are recognized.
func compact(value []byte) []byte {
	if len(value) > 64 {
		return value
	}
	return []byte(strings.Join(strings.Fields(string(value)), ""))
}

// adapterOf returns the Adapter of model m that c describes. All layers share one graph, so
// they must have the same products, of one rank and scale, and nothing else may be trained.
func (c config) adapterOf(m models.Model) (*Adapter, error) {
	list, base, err := c.products(m)
	if err != nil {
		return nil, err
	}
	wrong := ""
	if whole := c.replacedBySave(append(slices.Clone(m.Layout().Names()), headTensor)); len(whole) > 0 {
		wrong = "modules_to_save has " + whole[0]
	}
	a := &Adapter{Adapter: models.Adapter{Rank: list[0].rank, Scale: list[0].scale}, unusedPatterns: c.unusedPatterns(list)}
	has := map[string]bool{}
	for _, p := range list {
		if name, first := strings.CutPrefix(p.module, base.prefixes[0]); first { // a module of the first layer
			a.Modules = append(a.Modules, name)
		}
		if p.module == headModule {
			wrong = "target_modules has " + headModule
		}
		has[p.module] = true
		if p.rank != a.Rank || p.scale != a.Scale {
			wrong = fmt.Sprintf("%s has the rank %d and the scale %g, and %s %d and %g (target_modules, rank_pattern, alpha_pattern)",
				p.module, p.rank, p.scale, list[0].module, a.Rank, a.Scale)
		}
	}
	for i, path := range base.paths { // compares each with the same module in the first layer
		if first := base.paths[i%len(base.names)]; has[path] != has[first] {
			wrong = fmt.Sprintf("one of %s and %s has low-rank products and the other has none (target_modules, exclude_modules, layers_to_transform)", first, path)
		}
	}
	if wrong != "" {
		return nil, fmt.Errorf("%s: all layers share one graph, which has low-rank products of layers alone: onering "+
			"merge puts such an adapter into the weights of its model", wrong)
	}
	arch, err := m.Architecture(models.Compute{Adapter: &a.Adapter})
	if err != nil {
		return nil, err
	}
	a.layout, a.naming = arch.AdapterLayout(), base.naming
	return a, nil
}

// unusedPatterns lists the patterns of c that no product matches.
func (c config) unusedPatterns(list []product) (names []string) {
	for _, p := range slices.Concat(c.Ranks, c.Alphas) {
		if !slices.ContainsFunc(list, func(x product) bool { return matchAny(p.path, x.module) }) {
			names = append(names, strconv.Quote(p.name))
		}
	}
	return names
}

// lastParts returns the last parts of modules' names, which PEFT accepts as targets.
func lastParts(names []string) (out []string) {
	for _, name := range names {
		out = append(out, name[strings.LastIndex(name, ".")+1:])
	}
	slices.Sort(out)
	return slices.Compact(out)
}
