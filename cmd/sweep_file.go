package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"onering/train/sweep"
)

// A sweepFile is what a sweep is made of; docs/experiments.md explains it by
// example.
type sweepFile struct {
	Sweep struct {
		// Base is the run file of all runs, relative to the sweep's; empty is
		// what train runs without --config.
		Base string `toml:"base"`
		// Seeds are the values of train.seed and data.seed.
		Seeds []int64 `toml:"seeds"`
		// Metric is what variants are compared by; empty is pass@1 of the first
		// suite, or the reward where there is none.
		Metric string `toml:"metric"`
		// Baseline is compared with every variant that [[compare]] does not
		// compare with it; empty is none.
		Baseline string `toml:"baseline"`
		// Dynamics are the variants whose course is drawn for --update.
		Dynamics []string `toml:"dynamics"`
	} `toml:"sweep"`
	// Grid has values for keys such as "objective.p"; its product is taken with
	// the variants.
	Grid map[string][]any `toml:"grid"`
	// Variant has a name, optionally seeds of its own, and sections of a run file.
	Variant []map[string]any `toml:"variant"`
	Compare []struct {
		First  string `toml:"first"`
		Second string `toml:"second"`
		Claim  string `toml:"claim"`
	} `toml:"compare"`
}

// A variant is one configuration of a sweep.
type variant struct {
	name  string
	seeds []int64
	sets  []string // as of --set
}

// A sweepPlan is a sweepFile with its product taken.
type sweepPlan struct {
	file        string
	base        string // "" is the default run
	metric      string
	variants    []variant
	comparisons []sweep.Comparison
	dynamics    []string
}

// readSweep reads a sweep's file. All that is wrong with it is reported at once.
func readSweep(path string) (*sweepPlan, error) {
	var f sweepFile
	meta, err := toml.DecodeFile(path, &f)
	var at *fs.PathError
	if errors.As(err, &at) {
		return nil, usageError{unreadable("sweep", path, err, "name a sweep file, such as runs/paper/sweep-main.toml")}
	}
	if err != nil {
		return nil, usageError{syntaxError(path, err)}
	}
	var errs []error
	for _, key := range meta.Undecoded() {
		if key[0] == "variant" {
			continue // readVariant has them; the decoder does not count keys within a map
		}
		errs = append(errs, fmt.Errorf("%s: unknown key %q", path, key))
	}
	p := &sweepPlan{file: path, metric: f.Sweep.Metric}
	if f.Sweep.Base != "" {
		p.base = filepath.Join(filepath.Dir(path), f.Sweep.Base)
	}
	base := []variant{{seeds: f.Sweep.Seeds}}
	if len(f.Variant) > 0 {
		base = nil
	}
	for i, v := range f.Variant {
		one, err := readVariant(v, f.Sweep.Seeds)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: variant %d: %w", path, i+1, err))
		}
		base = append(base, one)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Grid)) {
		base = product(base, key, f.Grid[key])
	}
	seen := map[string]bool{}
	for _, v := range base {
		switch {
		case v.name == "":
			errs = append(errs, fmt.Errorf("%s: neither [[variant]] nor [grid] says what to run", path))
		case seen[v.name]:
			errs = append(errs, fmt.Errorf("%s: two variants are named %q", path, v.name))
		case len(v.seeds) == 0:
			errs = append(errs, fmt.Errorf("%s: variant %q has no seeds: set seeds in [sweep]", path, v.name))
		}
		seen[v.name] = true
	}
	p.variants = base
	compared := map[string]bool{}
	for _, c := range f.Compare {
		for _, name := range []string{c.First, c.Second} {
			if !seen[name] {
				errs = append(errs, fmt.Errorf("%s: [[compare]] names %q, which is no variant", path, name))
			}
		}
		p.comparisons = append(p.comparisons, sweep.Comparison{First: c.First, Second: c.Second, Claim: c.Claim})
		compared[c.First+"\x00"+c.Second], compared[c.Second+"\x00"+c.First] = true, true
	}
	for _, name := range f.Sweep.Dynamics {
		if !seen[name] {
			errs = append(errs, fmt.Errorf("%s: sweep.dynamics names %q, which is no variant", path, name))
		}
	}
	p.dynamics = f.Sweep.Dynamics
	if b := f.Sweep.Baseline; b != "" {
		if !seen[b] {
			errs = append(errs, fmt.Errorf("%s: sweep.baseline names %q, which is no variant", path, b))
		}
		for _, v := range base {
			if v.name != b && !compared[v.name+"\x00"+b] {
				p.comparisons = append(p.comparisons, sweep.Comparison{First: v.name, Second: b})
			}
		}
	}
	if len(errs) > 0 {
		return nil, usageError{errors.Join(errs...)}
	}
	return p, nil
}

// readVariant turns a variant's sections into settings.
func readVariant(v map[string]any, seeds []int64) (variant, error) {
	one := variant{seeds: seeds}
	for _, section := range slices.Sorted(maps.Keys(v)) {
		switch x := v[section].(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(x)) {
				one.sets = append(one.sets, setText(section+"."+key, x[key]))
			}
		case string:
			if section != "name" {
				return one, fmt.Errorf("key %q: a setting stands in its section, such as objective = { name = \"grpo\" }", section)
			}
			one.name = x
		case []any:
			if section != "seeds" {
				return one, fmt.Errorf("unknown key %q", section)
			}
			one.seeds = nil
			for _, s := range x {
				n, ok := s.(int64)
				if !ok {
					return one, fmt.Errorf("seed %v is no integer", s)
				}
				one.seeds = append(one.seeds, n)
			}
		default:
			return one, fmt.Errorf("unknown key %q", section)
		}
	}
	if one.name == "" {
		return one, errors.New("it has no name")
	}
	return one, nil
}

// product gives every variant each of a key's values.
func product(variants []variant, key string, values []any) []variant {
	_, short, _ := strings.Cut(key, ".")
	var out []variant
	for _, v := range variants {
		for _, value := range values {
			w := v
			w.name = strings.TrimSpace(fmt.Sprintf("%s %s=%v", v.name, short, value))
			w.sets = append(slices.Clone(v.sets), setText(key, value))
			out = append(out, w)
		}
	}
	return out
}

// setText is a setting as --set takes it. JSON is TOML as far as settings go.
func setText(path string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return path + "=" + fmt.Sprint(value) // refused where it is applied
	}
	return path + "=" + string(text)
}

// slug is a variant's name as a folder: "p = 0.5" is p=0.5.
func slug(name string) string {
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
