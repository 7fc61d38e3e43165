package report

import (
	"maps"
	"slices"
	"strings"
)

// maxDiffer is the largest number of configurations whose settings the page compares.
const maxDiffer = 12

// A difference shows the settings that are not the same in all runs of a page, with a
// column for each configuration.
type difference struct {
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"` // the key, then the value in each configuration
	Left    int        `json:"left"` // how many configurations have no column
}

// settingsDiffer compares the settings of runs. A configuration whose runs differ in a
// key, such as the seed, shows all its values.
func settingsDiffer(runs []*Run) difference {
	const absent = "-"
	keys := map[string]map[string]bool{} // the values that each key has
	for _, r := range runs {
		for key := range r.Config {
			keys[key] = map[string]bool{}
		}
	}
	delete(keys, "output.dir") // the run's name tells its folder
	groups := groupRuns(runs)
	var d difference
	for _, g := range groups[:min(len(groups), maxDiffer)] {
		d.Columns = append(d.Columns, g.name)
	}
	d.Left = len(groups) - len(d.Columns)
	var partly [][]string // keys that some objectives lack come last
	for _, key := range slices.SortedFunc(maps.Keys(keys), compareKeys) {
		row := []string{key}
		for _, g := range groups {
			var values []string
			for _, r := range g.runs {
				value, ok := r.Config[key]
				if !ok {
					value = absent
				}
				keys[key][value] = true
				if !slices.Contains(values, value) {
					values = append(values, value)
				}
			}
			row = append(row, strings.Join(values, ", "))
		}
		switch row = row[:1+len(d.Columns)]; { // the other configurations only tell whether a key differs
		case len(keys[key]) < 2:
		case keys[key][absent]:
			partly = append(partly, row)
		default:
			d.Rows = append(d.Rows, row)
		}
	}
	d.Rows = append(d.Rows, partly...)
	return d
}
