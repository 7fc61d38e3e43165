package report

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A group holds the runs of one configuration. They differ only in seeds, folders
// and the machine. A group has the same colour in every chart.
type group struct {
	name string
	runs []*Run
}

// incidental reports whether runs that differ in this key still have the same configuration.
func incidental(key string) bool {
	section, name, _ := strings.Cut(key, ".")
	switch section {
	case "output", "runtime", "eval":
		return true
	case "train":
		return name != "rounds" && name != "batch_size" && name != "epochs"
	}
	return name == "seed"
}

// varyingKeys lists the keys in whose values the runs differ, without incidental keys. The objective's name
// comes first. If some objectives lack a setting, it is listed only if runs of one objective differ in it.
func varyingKeys(runs []*Run) []string {
	keys := distinguishingKeys(runs)
	for key, first := range runs[0].Config {
		differs, shared := false, true
		for _, r := range runs {
			value, ok := r.Config[key]
			differs, shared = differs || value != first, shared && ok
		}
		if differs && shared && !incidental(key) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// distinguishingKeys lists the keys that tell the configurations apart: those in
// which runs of one objective differ, those outside of [objective] in which runs of
// different objectives differ, and the objective's name if there are several.
func distinguishingKeys(runs []*Run) []string {
	differ := map[string]bool{}
	first := map[string]*Run{} // the first run of each objective
	for _, r := range runs {
		name := r.Config["objective.name"]
		reference, known := first[name]
		if !known { // the first of an objective is compared with the first of all
			first[name], reference = r, runs[0]
		}
		for key, value := range reference.Config {
			other, ok := r.Config[key]
			shared := known || !strings.HasPrefix(key, "objective.") // each objective has settings of its own
			if ok && other != value && shared && !incidental(key) {
				differ[key] = true
			}
		}
	}
	if len(first) > 1 {
		differ["objective.name"] = true
	}
	return slices.SortedFunc(maps.Keys(differ), compareKeys)
}

// compareKeys orders keys alphabetically, with the objective's name before all others.
func compareKeys(a, b string) int {
	const first = "objective.name"
	switch {
	case a == b:
		return 0
	case a == first:
		return -1
	case b == first:
		return 1
	}
	return strings.Compare(a, b)
}

// groupRuns puts the runs of one configuration into one group. Groups are in the order of their first runs.
// Runs with the same Group are in one group even if their configurations differ.
func groupRuns(runs []*Run) []*group {
	keys := distinguishingKeys(runs)
	var groups []*group
	byConfiguration := map[string]*group{}
	for _, r := range runs {
		name, configuration := r.Group, r.Group
		if name == "" {
			name, configuration = nameConfiguration(r, keys)
		}
		g := byConfiguration[configuration]
		if g == nil {
			if slices.ContainsFunc(groups, func(g *group) bool { return g.name == name }) {
				name = r.Name // the first settings of two configurations are the same
			}
			g = &group{name: name}
			byConfiguration[configuration] = g
			groups = append(groups, g)
		}
		g.runs = append(g.runs, r)
	}
	for _, g := range groups {
		if len(g.runs) == 1 && g.runs[0].Group == "" {
			g.name = g.runs[0].Name
		}
	}
	return groups
}

// nameConfiguration names a run's configuration by its values of keys. configuration has all
// values; name has only the first ones if there are many.
func nameConfiguration(r *Run, keys []string) (name, configuration string) {
	var parts []string
	for _, key := range keys {
		value, ok := r.Config[key]
		if !ok || value == "" {
			continue // this run's objective does not have the key
		}
		switch key {
		case "objective.name":
			parts = append(parts, value)
		case "model.path":
			parts = append(parts, filepath.Base(value))
		default:
			_, short, _ := strings.Cut(key, ".")
			parts = append(parts, short+"="+value)
		}
	}
	configuration = strings.Join(parts, " ")
	if len(parts) == 0 {
		return r.Config["objective.name"], ""
	}
	const shown = 5 // the page's table shows every key
	if len(parts) > shown {
		parts = append(parts[:shown], "...")
	}
	return strings.Join(parts, " "), configuration
}
