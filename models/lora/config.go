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
	"onering/internal/settings"
	"onering/models"
)

// A config is the content of adapter_config.json.
type config struct {
	Rank    int
	Alpha   float64
	RSLoRA  bool
	Dropout float64
	targets targets
	text    []byte
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

// Keys that do not affect the computation, and keys that are read.
var (
	ignored = []string{"auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version", "megatron_core", "qalora_group_size", "layers_pattern", "eva_config", "runtime_config"}
	read    = []string{"r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules"}
)

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
	c := config{Rank: 8, Alpha: 8, text: text}
	err := ordered.EachMember(text, func(key string, value []byte, _ int) error {
		if slices.Contains(read, key) {
			return c.read(key, value)
		}
		if slices.Contains(ignored, key) || slices.Contains([]string{"null", "false", "{}", "[]", `""`}, string(compact(value))) {
			return nil
		}
		want, known := only[key]
		switch {
		case slices.Contains(mergeable, key):
			return fmt.Errorf("%s is %.60s, and all layers share one graph: onering merge puts such an adapter into the weights of its model", key, value)
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
	case c.Rank < 1 || c.Rank > 1<<16:
		return c, fmt.Errorf("r (%d) must be from 1 to %d", c.Rank, 1<<16)
	case !(math.Abs(c.Alpha) <= math.MaxFloat32):
		return c, fmt.Errorf("lora_alpha (%v) must be a number of float32", c.Alpha)
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

func (c *config) read(key string, value []byte) error {
	if string(value) == "null" && key != "target_modules" {
		return nil
	}
	into, want := any(nil), ""
	switch key {
	case "r":
		into, want = &c.Rank, "a whole number"
	case "lora_alpha":
		into, want = &c.Alpha, "a number"
	case "lora_dropout":
		into, want = &c.Dropout, "a number"
	case "use_rslora":
		into, want = &c.RSLoRA, "true or false"
	case "target_modules":
		return c.targets.parse(value)
	}
	if json.Unmarshal(value, into) != nil {
		return fmt.Errorf("%s: want %s, found %.60s", key, want, value)
	}
	return nil
}

// adapter returns the Adapter of model m that c describes.
func (c config) adapter(m models.Model) (*Adapter, error) {
	base, err := modulesOf(m)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Adapter: models.Adapter{Rank: c.Rank, Scale: c.Alpha / float64(c.Rank)}}
	if c.RSLoRA {
		a.Scale = c.Alpha / math.Sqrt(float64(c.Rank))
	}
	if a.Modules, err = c.targets.of(base); err != nil && c.targets.setting {
		return nil, &settings.Error{Key: "lora.targets", Remedy: err.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("target_modules: %w", err)
	}
	arch, err := m.Architecture(models.Compute{Adapter: &a.Adapter})
	if err != nil {
		return nil, err
	}
	a.layout = arch.AdapterLayout()
	return a, nil
}

// modules lists the products of a model that an adapter may change: their names without
// the prefixes of the layers.
type modules struct {
	prefixes, names []string
}

func modulesOf(m models.Model) (out modules, err error) {
	arch, err := m.Architecture(models.Compute{})
	if err != nil {
		return out, err
	}
	for i := range m.Layers {
		out.prefixes = append(out.prefixes, arch.LayerPrefix(i))
	}
	out.names = models.ModulesOf(arch)
	return out, nil
}

// short returns the last parts of modules' names, which PEFT accepts as targets.
func short(names []string) (out []string) {
	for _, name := range names {
		out = append(out, name[strings.LastIndex(name, ".")+1:])
	}
	slices.Sort(out)
	return out
}

const allLinear = "all-linear"

// targets is the value of target_modules: names, a pattern or all.
type targets struct {
	setting bool // the value is from a run file, not from target_modules
	names   []string
	pattern *regexp.Regexp
	all     bool
}

func (t *targets) parse(value []byte) (err error) {
	if json.Unmarshal(value, &t.names) == nil && t.names != nil {
		return nil
	}
	var text string
	switch {
	case string(value) == "null" || json.Unmarshal(value, &text) != nil:
		return fmt.Errorf("target_modules: want names of modules or a pattern, found %.60s", value)
	case text == allLinear:
		t.all = true
	default:
		if t.pattern, err = regexp.Compile("^(?:" + text + ")$"); err != nil {
			return fmt.Errorf("target_modules: %w", err)
		}
	}
	return nil
}

// matches says whether the targets include a module, given its path.
func (t targets) matches(path string) bool {
	return t.all || t.pattern != nil && t.pattern.MatchString(path) ||
		slices.ContainsFunc(t.names, func(name string) bool { return covers(name, path) })
}

func covers(name, path string) bool { return path == name || strings.HasSuffix(path, "."+name) }

// of returns the targets among a model's modules. Each layer must have the same targets,
// since one graph serves all layers.
func (t targets) of(base modules) (found []string, err error) {
	for _, name := range t.names {
		known := false
		for _, prefix := range base.prefixes {
			known = known || slices.ContainsFunc(base.names, func(m string) bool { return covers(name, prefix+m) })
		}
		if !known {
			return nil, fmt.Errorf("%q is no module of a layer: it has %s (all-linear is all of them)", name, strings.Join(base.names, ", "))
		}
	}
	for _, m := range base.names {
		first := t.matches(base.prefixes[0] + m)
		for _, prefix := range base.prefixes[1:] {
			if t.matches(prefix+m) != first {
				return nil, fmt.Errorf("one of %s%s and %s%s has low-rank products and the other has none: all layers share one graph, so they must have the same", base.prefixes[0], m, prefix, m)
			}
		}
		if first {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("they name no module of a layer: it has %s (all-linear is all of them)", strings.Join(base.names, ", "))
	}
	return found, nil
}
