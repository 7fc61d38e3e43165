package lora

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/ordered"
	"onering/models"
)

// A config is the content of adapter_config.json.
type config struct {
	Rank    int
	Alpha   float64
	RSLoRA  bool
	Dropout float64

	targets, exclude targets          // target_modules, exclude_modules
	layers           []*int           // layers_to_transform; nil for all
	indexes          []*regexp.Regexp // layers_pattern
	ranks, alphas    patterns         // rank_pattern, alpha_pattern
	save             []string         // modules_to_save
	saved            []*regexp.Regexp // modules_to_save, as PEFT keeps them from having products
	tying            bool             // ensure_weight_tying
	text             []byte
}

// only lists keys whose other values would change the computation, with the values that
// the graphs compute, as JSON. A key may also be absent or null.
var only = map[string][]string{
	"peft_type": {`"LORA"`},
	"task_type": {`"CAUSAL_LM"`},
	"bias":      {`"none"`},
	// The other types of bias change the weights of the base or need its data: the
	// adapter alone is then not the whole model.
	"init_lora_weights": {"true", "false", `"gaussian"`, `"orthogonal"`, `"eva"`},
}

// ignored are the keys that do not affect the computation.
var ignored = []string{"auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version", "megatron_core", "qalora_group_size", "eva_config", "runtime_config"}

const maxRank = 1 << 16

// anyIndex finds the number of a layer in a path: the first one.
var anyIndex = regexp.MustCompile(`^.*?\.[^.]*\.(?P<idx>\d+)\.`)

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

func parseConfig(text []byte) (config, error) {
	c := config{Rank: 8, Alpha: 8, text: text, indexes: []*regexp.Regexp{anyIndex}}
	err := ordered.EachMember(text, func(key string, value []byte, _ int) error {
		if slices.Contains([]string{"null", "false", "{}", "[]", `""`}, string(compact(value))) && key != "target_modules" || slices.Contains(ignored, key) {
			return nil
		}
		if known, err := c.read(key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		} else if known {
			return nil
		}
		switch want, known := only[key]; {
		case !known:
			return fmt.Errorf("%s is %.60s: onering has no such adapters, only LoRA without it", key, value)
		case !slices.Contains(want, string(value)):
			return fmt.Errorf("%s %.60s is not supported, only %s", key, value, strings.Join(want, ", "))
		}
		return nil
	})
	switch {
	case err != nil:
		return c, err
	case c.Rank < 1 || c.Rank > maxRank:
		return c, fmt.Errorf("r (%d) must be from 1 to %d", c.Rank, maxRank)
	case !(math.Abs(c.Alpha) <= math.MaxFloat32):
		return c, fmt.Errorf("lora_alpha (%v) must be a number of float32", c.Alpha)
	case c.layers != nil && (c.targets.pattern != nil || c.targets.all):
		return c, fmt.Errorf("layers_to_transform and a target_modules that is no list: PEFT refuses both together; name the modules in a list")
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

// read reads a key that says what the adapter computes; known is false for other keys.
func (c *config) read(key string, value []byte) (known bool, err error) {
	var into any
	var want string
	switch key {
	case "r":
		into, want = &c.Rank, "a whole number"
	case "lora_alpha":
		into, want = &c.Alpha, "a number"
	case "lora_dropout":
		into, want = &c.Dropout, "a number"
	case "use_rslora":
		into, want = &c.RSLoRA, "true or false"
	case "ensure_weight_tying":
		into, want = &c.tying, "true or false"
	case "target_modules":
		return true, c.targets.parse(value)
	case "exclude_modules":
		return true, c.exclude.parse(value)
	case "layers_to_transform":
		if value[0] != '[' { // one layer
			value = slices.Concat([]byte("["), value, []byte("]"))
		}
		into, want = &c.layers, "numbers of layers"
	case "layers_pattern":
		list, _, err := texts(value)
		if err == nil {
			c.indexes, err = compile(`^(?:(?:^|.*?\.)`, `\.(?P<idx>\d+)\.)`, list...)
		}
		return true, err
	case "rank_pattern":
		c.ranks, err = readPatterns(key, value, func(r float64) bool { return r >= 1 && r <= maxRank && r == math.Trunc(r) })
		return true, err
	case "alpha_pattern":
		c.alphas, err = readPatterns(key, value, func(a float64) bool { return math.Abs(a) <= math.MaxFloat32 })
		return true, err
	case "modules_to_save":
		into, want = &c.save, "a list of names"
	default:
		return false, nil
	}
	if json.Unmarshal(value, into) != nil || slices.Contains(c.layers, nil) {
		return true, fmt.Errorf("want %s, found %.60s", want, value)
	}
	c.saved, err = compile(`^(?:(^|.*\.)`, `($|\..*))`, c.save...)
	return true, err
}

// adapter returns the Adapter of model m that c describes. All layers share one graph, so
// they must have the same products.
func (c config) adapter(m models.Model) (*Adapter, error) {
	base, err := modulesOf(m)
	if err != nil {
		return nil, err
	}
	list, err := c.products(base)
	if err != nil {
		return nil, err
	}
	wrong := ""
	if whole := c.whole(append(slices.Clone(m.Layout().Names()), headTensor)); len(whole) > 0 {
		wrong = "modules_to_save has " + whole[0]
	}
	a := &Adapter{Adapter: models.Adapter{Rank: list[0].rank, Scale: list[0].scale}, unused: c.unused(list)}
	has := map[string]bool{}
	for _, p := range list {
		if name, first := strings.CutPrefix(p.module, base.prefixes[0]); first {
			a.Modules = append(a.Modules, name)
		}
		if p.module == headModule {
			wrong = "target_modules has " + headModule
		}
		if has[p.module] = true; p.rank != a.Rank || p.scale != a.Scale {
			wrong = fmt.Sprintf("%s has the rank %d and the scale %g, and %s %d and %g (target_modules, rank_pattern, alpha_pattern)", p.module, p.rank, p.scale, list[0].module, a.Rank, a.Scale)
		}
	}
	for i, path := range base.paths {
		if first := base.paths[i%len(base.names)]; has[path] != has[first] {
			wrong = fmt.Sprintf("one of %s and %s has low-rank products and the other has none (target_modules, exclude_modules, layers_to_transform)", first, path)
		}
	}
	if wrong != "" {
		return nil, fmt.Errorf("%s: all layers share one graph, which has low-rank products of layers alone: onering merge puts such an adapter into the weights of its model", wrong)
	}
	arch, err := m.Architecture(models.Compute{Adapter: &a.Adapter})
	if err != nil {
		return nil, err
	}
	a.layout = arch.AdapterLayout()
	return a, nil
}

// unused lists the patterns of c that no product matches.
func (c config) unused(list []product) (names []string) {
	for _, p := range slices.Concat(c.ranks, c.alphas) {
		if !slices.ContainsFunc(list, func(x product) bool { return matchAny(p.path, x.module) }) {
			names = append(names, p.name)
		}
	}
	return names
}

// short returns the last parts of modules' names, which PEFT accepts as targets.
func short(names []string) (out []string) {
	for _, name := range names {
		out = append(out, name[strings.LastIndex(name, ".")+1:])
	}
	slices.Sort(out)
	return out
}
