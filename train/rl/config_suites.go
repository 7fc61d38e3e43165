package rl

import (
	"fmt"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/sampler"
)

// A suite is a file of held-out problems, with the settings of [eval] that it states for itself.
type suite struct {
	Path string `toml:"path"`
	suiteRules
	stated []string // keys that the suite states
}

// suites are the suites on which a run is evaluated. A run file states a list of texts and tables.
type suites []suite

var suiteTables = settings.Tables[suite]{Key: "eval.suites", Kind: "a suite"}

// Wanted implements settings.Special.
func (suites) Wanted() string {
	return `a list of files and tables such as ["a.jsonl", {path = "b.jsonl", temperature = 0.6, samples = 16}]`
}

// UnmarshalTOML takes a list of texts and tables, or names with commas between them.
func (s *suites) UnmarshalTOML(value any) error {
	if text, ok := value.(string); ok && !strings.ContainsAny(text, "[{") { // a text with these is one path, or a list that Read refuses
		var names []any
		for _, name := range settings.SplitList(text) {
			names = append(names, name)
		}
		value = names
	}
	list, stated, err := suiteTables.Read(value, s.Wanted())
	if err != nil {
		return err
	}
	for i := range list {
		list[i].stated = stated[i]
		if slices.Contains(stated[i], "extract") { // a field of suiteRules, which Read therefore takes
			return fmt.Errorf("%s: extract is the same for all suites: set eval.extract", list[i].Path)
		}
	}
	*s = list
	return nil
}

// MarshalTOML writes what UnmarshalTOML reads.
func (s suites) MarshalTOML() ([]byte, error) {
	texts, err := suiteTables.Write(s, func(i int, f settings.Field) bool { return slices.Contains(s[i].stated, f.Key) })
	return []byte("[" + strings.Join(texts, ", ") + "]"), err
}

// Paths are the names of the suites, as the run file has them.
func (s suites) Paths() (paths []string) {
	for _, one := range s {
		paths = append(paths, one.Path)
	}
	return paths
}

// Alone returns [eval] for the i-th suite: with the settings that the suite states. If it
// states a temperature of 0, it has one sample and ignores the filters of [eval].
func (c evalConfig) Alone(i int) evalConfig {
	own := c.Suites[i]
	c.Suites = suites{own}
	if slices.Contains(own.stated, "temperature") && own.Temperature == 0 {
		c.Samples, c.Sampling = 1, sampler.Plain(c.MaxNewTokens)
	}
	into := settings.Fields(&c.suiteRules)
	for j, f := range settings.Fields(&own.suiteRules) {
		if slices.Contains(own.stated, f.Key) {
			into[j].Value.Set(f.Value)
		}
	}
	return c
}

// suites checks eval.suites: a suite's settings must fit together with those of [eval] that it does not state.
func (v *validator) suites(e evalConfig) {
	for i, s := range e.Suites {
		v.check("eval.suites", e.Suites.Paths(), s.Path != "", "must not hold an empty name")
		if len(s.stated) <= 1 { // only the path
			continue
		}
		var own validator
		own.rules(e.Alone(i).suiteRules)
		for _, err := range own.errs {
			v.check("eval.suites", s.Path, false, fmt.Sprint("its ", strings.TrimPrefix(err.Error(), "eval.")))
		}
	}
}
