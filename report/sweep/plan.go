// Package sweep plans, runs and compares sweeps. A sweep trains several variants of one run file,
// each with several seeds. docs/reports.md explains sweep files by example.
package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"onering/internal/files"
	"onering/internal/settings"
)

const (
	maxFile = 16 << 20 // bytes of a sweep file
	maxRuns = 100_000  // a larger grid is a mistake, and listing it would take too long
)

// A file is the TOML of a sweep file.
type file struct {
	Sweep struct {
		// Base is the run file that all runs start from, relative to the sweep
		// file. If it is empty, all runs start from the default settings.
		Base string `toml:"base"`
		// Seeds are the values of train.seed and data.seed.
		Seeds []int64 `toml:"seeds"`
		// Metric is the metric by which variants are compared, or a list of them. The
		// default is pass@1 of the first suite, or the reward if there is no suite.
		Metric any `toml:"metric"`
		// Baseline is the variant that is compared with every other variant. A pair that [[compare]] lists is
		// not compared again. Empty means no baseline.
		Baseline string `toml:"baseline"`
	} `toml:"sweep"`
	// Grid has a list of values for each of its keys, such as "objective.p". Every
	// variant runs with every combination of these values.
	Grid map[string][]any `toml:"grid"`
	// Variant has a name, sections of a run file, and optionally seeds.
	Variant []map[string]any `toml:"variant"`
	Compare []question       `toml:"compare"`
}

// A question asks how two variants compare. It is stated before the runs.
type question struct {
	First  string `toml:"first"`
	Second string `toml:"second"`
	// Claim is the expected answer and who expects it, such as "paper: positive".
	Claim string `toml:"claim"`
}

// A variant is one configuration of a sweep.
type variant struct {
	Name     string
	Seeds    []int64
	Settings []string // section.key=value, as --set takes them
}

// A Plan is the contents of a sweep file. It has a variant for every combination of the grid's values.
type Plan struct {
	File        string
	Base        string   // the path of the run file; "" means the default settings
	Metrics     []string // the first may be "", the default metric
	Variants    []variant
	Comparisons []question
}

// ReadPlan reads a sweep file. If the file can be read and is valid TOML, the error
// lists everything that is wrong with its contents.
func ReadPlan(path string) (*Plan, error) {
	var f file
	meta, err := decode(path, &f)
	if err != nil {
		return nil, err
	}
	p := &Plan{File: path, Metrics: []string{""}} // "" is the default metric
	var errs []error
	if m := reflect.ValueOf(&p.Metrics).Elem(); f.Sweep.Metric != nil && !settings.Decode(f.Sweep.Metric, m) && // a list of names
		!settings.Decode([]any{f.Sweep.Metric}, m) || len(p.Metrics) == 0 { // or one name
		errs = append(errs, fmt.Errorf("sweep.metric = %v: must be the name of a metric, or a list of names", f.Sweep.Metric))
	}
	for _, key := range meta.Undecoded() {
		if key[0] == "variant" {
			continue // readVariant checks the keys of a variant
		}
		if remedy := retired[key.String()]; remedy != "" {
			errs = append(errs, fmt.Errorf("%s is not read any more: %s", key, remedy))
		} else if retired[key[0]] == "" { // else the error about its table is enough
			errs = append(errs, fmt.Errorf("unknown key %q", key))
		}
	}
	if p.Base = f.Sweep.Base; p.Base != "" && !filepath.IsAbs(p.Base) {
		p.Base = filepath.Join(filepath.Dir(path), p.Base)
	}
	errs = append(errs, p.addVariants(f)...)
	errs = append(errs, p.addComparisons(f)...)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, err)
	}
	return p, errors.Join(errs...)
}

// retired are keys that earlier versions read, and what to do instead.
var retired = map[string]string{
	"tune":           "run a [grid] on seeds of its own, and state the best settings in the variants",
	"sweep.family":   "list all comparisons of a task in one file",
	"sweep.dynamics": "open report.html in the sweep's folder",
}

// Name returns the name that the folder and the tables of the sweep file at path have.
func Name(path string) string { return strings.TrimSuffix(filepath.Base(path), ".toml") }

// decode reads the TOML file at path into v.
func decode(path string, v any) (toml.MetaData, error) {
	text, err := files.Read(path, maxFile)
	if err != nil {
		return toml.MetaData{}, err
	}
	meta, err := settings.ReadTOML(text, v)
	if err != nil {
		err = settings.SyntaxError(path, err)
	}
	return meta, err
}

// Lacks reports whether the file at path is TOML without a [sweep], such as a run file.
func Lacks(path string) bool {
	var f struct{ Sweep map[string]any }
	_, err := decode(path, &f)
	return err == nil && f.Sweep == nil
}

// addVariants sets the variants of the plan, with every combination of the grid's values, and returns
// what is wrong with them.
func (p *Plan) addVariants(f file) (errs []error) {
	p.Variants = []variant{{Seeds: f.Sweep.Seeds}} // it gets its name from the grid
	if len(f.Variant) > 0 {
		p.Variants = nil
	}
	for i, v := range f.Variant {
		one, err := readVariant(v, f.Sweep.Seeds)
		if err != nil {
			errs = append(errs, fmt.Errorf("variant %d: %w", i+1, err))
		}
		p.Variants = append(p.Variants, one)
	}
	runs := 0
	for _, v := range p.Variants {
		runs += len(v.Seeds)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Grid)) {
		values := f.Grid[key]
		if len(values) == 0 {
			return append(errs, fmt.Errorf("grid.%q has no values: list one or more, or remove it", key))
		}
		if runs *= len(values); runs > maxRuns {
			return append(errs, fmt.Errorf("the grid has more than %d runs: list fewer values or seeds", maxRuns))
		}
		p.Variants = combineWith(p.Variants, key, values)
	}
	return append(errs, p.checkVariants()...)
}

// checkVariants returns what is wrong with the variants. No two runs may have the same
// folder: the second would seem finished, and a comparison would count the first twice.
func (p *Plan) checkVariants() (errs []error) {
	seen, folders := map[string]bool{}, map[string]string{}
	for _, v := range p.Variants {
		folder := folderName(v.Name)
		seeds := slices.Sorted(slices.Values(v.Seeds))
		switch {
		case v.Name == "":
			errs = append(errs, errors.New("neither [[variant]] nor [grid] says what to run"))
		case seen[v.Name]:
			errs = append(errs, fmt.Errorf("two variants are named %q", v.Name))
		case folders[folder] != "":
			errs = append(errs, fmt.Errorf("variants %q and %q would both have the folder %q: rename one", folders[folder], v.Name, folder))
		case len(v.Seeds) == 0:
			errs = append(errs, fmt.Errorf("variant %q has no seeds: set seeds in [sweep]", v.Name))
		case len(slices.Compact(seeds)) < len(v.Seeds):
			errs = append(errs, fmt.Errorf("variant %q has a seed twice: %d", v.Name, v.Seeds))
		}
		seen[v.Name], folders[folder] = true, v.Name
	}
	return errs
}

// addComparisons sets the comparisons of the plan. It returns the errors in them and in
// other places that name variants.
func (p *Plan) addComparisons(f file) (errs []error) {
	known := func(name string) bool {
		return slices.ContainsFunc(p.Variants, func(v variant) bool { return v.Name == name })
	}
	compared := map[[2]string]bool{}
	for _, c := range f.Compare {
		for _, name := range []string{c.First, c.Second} {
			if !known(name) {
				errs = append(errs, fmt.Errorf("[[compare]] names %q, which is not a variant", name))
			}
		}
		p.Comparisons = append(p.Comparisons, c)
		compared[[2]string{c.First, c.Second}], compared[[2]string{c.Second, c.First}] = true, true
	}
	b := f.Sweep.Baseline
	if b == "" {
		return errs
	}
	if !known(b) {
		errs = append(errs, fmt.Errorf("sweep.baseline names %q, which is not a variant", b))
	}
	for _, v := range p.Variants {
		if v.Name != b && !compared[[2]string{v.Name, b}] {
			p.Comparisons = append(p.Comparisons, question{First: v.Name, Second: b})
		}
	}
	return errs
}

// readVariant reads one [[variant]].
func readVariant(v map[string]any, seeds []int64) (variant, error) {
	one := variant{Seeds: seeds}
	for _, section := range slices.Sorted(maps.Keys(v)) {
		switch x := v[section].(type) {
		case map[string]any:
			if section == "tune" {
				return one, fmt.Errorf("tune is not read any more: %s", retired[section])
			}
			for _, key := range slices.Sorted(maps.Keys(x)) {
				one.Settings = append(one.Settings, settingText(section+"."+key, x[key]))
			}
		case string:
			if section != "name" {
				return one, fmt.Errorf("key %q: write a setting in its section, such as objective = { name = \"grpo\" }", section)
			}
			one.Name = x
		case []any:
			if section != "seeds" {
				return one, fmt.Errorf("unknown key %q", section)
			}
			one.Seeds = nil
			for _, s := range x {
				n, ok := s.(int64)
				if !ok {
					return one, fmt.Errorf("seed %v is not an integer", s)
				}
				one.Seeds = append(one.Seeds, n)
			}
		default:
			return one, fmt.Errorf("unknown key %q", section)
		}
	}
	if one.Name == "" {
		return one, errors.New("it has no name")
	}
	return one, nil
}

// combineWith returns a copy of every variant for each value of key. The names of the copies end with KEY=VALUE.
func combineWith(variants []variant, key string, values []any) []variant {
	_, short, _ := strings.Cut(key, ".")
	var out []variant
	for _, v := range variants {
		for _, value := range values {
			w := v
			w.Name = strings.TrimSpace(fmt.Sprintf("%s %s=%v", v.Name, short, value))
			w.Settings = append(slices.Clone(v.Settings), settingText(key, value))
			out = append(out, w)
		}
	}
	return out
}

// settingText formats a setting as the flag --set expects it.
func settingText(path string, value any) string { return path + "=" + tomlText(value) }

// tomlText writes a value as TOML, which is JSON except for tables.
func tomlText(value any) string {
	var parts []string
	switch x := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, tomlText(key)+" = "+tomlText(x[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any, []map[string]any:
		for _, element := range reflect.ValueOf(x).Seq2() {
			parts = append(parts, tomlText(element.Interface()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // applying the setting reports the bad value
	}
	return string(text)
}

// folderName converts a variant's name into the name of a folder: "p = 0.5" becomes "p=0.5".
func folderName(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), " = ", "=")
	var b strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', strings.ContainsRune(".=_", r):
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-.")
}
