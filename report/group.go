package report

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A group is the runs of one configuration: they differ in nothing but seeds,
// folders and the machine. It has one colour in every chart.
type group struct {
	name string
	runs []*Run
}

// incidental says that a key does not make another configuration.
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

// varying lists the keys in whose values the runs differ, those incidental left
// out; the objective's name is first. Settings that some of the objectives lack
// are listed if runs of one objective differ in them.
func varying(runs []*Run) []string {
	keys := within(runs)
	shared := map[string]int{}
	values := map[string]map[string]bool{}
	for _, r := range runs {
		for key, value := range r.Config {
			shared[key]++
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
		}
	}
	for key, n := range shared {
		if n == len(runs) && len(values[key]) > 1 && !incidental(key) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, byKey)
	return keys
}

// within lists the keys in which runs of one objective differ, and the
// objective's name if there are several: what it takes to tell them apart.
func within(runs []*Run) []string {
	differ := map[string]bool{}
	first := map[string]*Run{} // of each objective
	for _, r := range runs {
		name := r.Config["objective.name"]
		f := first[name]
		if f == nil {
			first[name] = r
			continue
		}
		for key, value := range f.Config {
			if other, ok := r.Config[key]; ok && other != value && !incidental(key) {
				differ[key] = true
			}
		}
	}
	var all *Run
	for _, f := range first {
		if all == nil {
			all = f
		}
		for key, value := range f.Config {
			other, ok := all.Config[key]
			if ok && other != value && !strings.HasPrefix(key, "objective.") && !incidental(key) {
				differ[key] = true
			}
		}
	}
	if len(first) > 1 {
		differ["objective.name"] = true
	}
	return slices.SortedFunc(maps.Keys(differ), byKey)
}

// byKey sorts keys, the objective's name before all others.
func byKey(a, b string) int {
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

// groupRuns puts runs of one configuration together, in the order of the first
// of each. A run that has a Group belongs to it whatever its configuration.
func groupRuns(runs []*Run) []*group {
	keys := within(runs)
	var groups []*group
	find := map[string]*group{}
	taken := map[string]bool{}
	for _, r := range runs {
		name, same := r.Group, r.Group
		if name == "" {
			name, same = describe(r, keys)
		}
		g := find[same]
		if g == nil {
			if taken[name] {
				name = r.Name
			}
			g = &group{name: name}
			find[same] = g
			taken[name] = true
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

// describe names a configuration by what sets it apart. The name is cut where
// it would be unreadable, whole is not.
func describe(r *Run, keys []string) (name, whole string) {
	var parts []string
	for _, key := range keys {
		value, ok := r.Config[key]
		if !ok || value == "" {
			continue // a key of another objective
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
	whole = strings.Join(parts, " ")
	if len(parts) == 0 {
		return r.Config["objective.name"], ""
	}
	const shown = 5 // the table has all
	if len(parts) > shown {
		parts = append(parts[:shown], "...")
	}
	return strings.Join(parts, " "), whole
}
