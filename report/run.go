package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/internal/stat"
	"onering/internal/strict"
)

// A Run is the part of a run folder's contents that reports need.
type Run struct {
	Name   string            // the name on the page; Write makes it unique
	Dir    string            // the run folder
	Group  string            // the name of its group, such as a variant of a sweep; if "", the configuration decides the group
	Config map[string]string // run.toml: section.key to the value as text

	Steps  *table // one row per optimizer step
	Rounds *table // one row per round
	Evals  *table // one row per evaluation

	Diagnoses []string // what the run itself found wrong, in order
	Early     string   // why train.stop_when ended the run; "" if it did not

	Rollouts []rolloutView // responses to show; see ChooseRollouts
	Problems []problem     // the problems of Rollouts

	newestVerdicts verdicts // verdicts of the newest rollouts file
	ess            essTally // sums over the rollouts files that ChooseRollouts read
}

// A table holds the records of one kind in columns. Row i was written after Step[i] optimizer steps.
type table struct {
	Step    []int
	Names   []string // names of the columns, sorted once the table is complete
	columns map[string][]float64
}

func newTable() *table { return &table{columns: map[string][]float64{}} }

// Len is the number of rows.
func (t *table) Len() int { return len(t.Step) }

// Column returns the values of a column, with NaN for rows that lack it. It returns nil if all rows lack it.
func (t *table) Column(name string) []float64 { return t.columns[name] }

// Last returns the last value of a column that is not NaN, or NaN if there is none.
func (t *table) Last(name string) float64 {
	x := append([]float64{math.NaN()}, stat.Finite(t.columns[name])...)
	return x[len(x)-1]
}

// First returns the first value of a column that is not NaN, or NaN if there is none.
func (t *table) First(name string) float64 {
	return append(stat.Finite(t.columns[name]), math.NaN())[0]
}

// add appends a row. If the row lacks a column, a later add or finish fills the gap with NaN.
func (t *table) add(step int, values map[string]any) {
	row := len(t.Step)
	t.Step = append(t.Step, step)
	for name, value := range values {
		x, ok := value.(float64)
		if !ok || name == "step" || name == "round" {
			continue
		}
		t.columns[name] = append(fill(t.columns[name], row), x)
	}
}

// finish makes all columns equally long and sorts their names.
func (t *table) finish() {
	for name, column := range t.columns {
		t.columns[name] = fill(column, t.Len())
	}
	t.Names = slices.Sorted(maps.Keys(t.columns))
}

// fill appends NaN to a column that has fewer than n values.
func fill(column []float64, n int) []float64 {
	for len(column) < n {
		column = append(column, math.NaN())
	}
	return column
}

// ReadRun reads a run folder. The run may still be in progress: ReadRun ignores a last line of metrics.jsonl
// that has no newline yet. It returns an error if the folder does not exist or has no metrics.jsonl.
func ReadRun(dir string) (*Run, error) {
	r := &Run{Dir: dir, Name: filepath.Base(filepath.Clean(dir)), Steps: newTable(), Rounds: newTable(), Evals: newTable()}
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("report: there is no folder %q; name the folder of a run", dir)
	}
	if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("report: %q is a file; name the folder of a run", dir)
	}
	if r.Config, err = readConfig(filepath.Join(dir, "run.toml")); err != nil {
		return nil, err
	}
	err = files.EachLine(filepath.Join(dir, "metrics.jsonl"), maxLine, r.addRecord)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("report: %s is not a run folder: it has no metrics.jsonl", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	for _, t := range []*table{r.Steps, r.Rounds, r.Evals} {
		t.finish()
	}
	return r, nil
}

// maxLine bounds a line of a file of a run, in bytes.
const maxLine = 64 << 20

// addRecord adds one line of metrics.jsonl to its table. It skips records of kinds that reports do not show.
func (r *Run) addRecord(line []byte) error {
	var values map[string]any
	if err := strict.JSON(line, &values); err != nil {
		return err
	}
	step, _ := values["step"].(float64)
	kind, _ := values["kind"].(string)
	if text, ok := values["text"].(string); ok && kind == "diagnosis" {
		r.Diagnoses = append(r.Diagnoses, text)
	}
	if reason, ok := values["reason"].(string); ok && kind == "early" {
		r.Early = reason
	}
	t := map[string]*table{"step": r.Steps, "round": r.Rounds, "eval": r.Evals}[kind]
	if t == nil {
		return nil
	}
	for _, name := range []string{"step", "round"} {
		at, _ := values[name].(float64)
		if at < 0 || at > math.MaxInt32 || at != math.Trunc(at) {
			return fmt.Errorf("%q is %v, not a count", name, values[name])
		}
	}
	t.add(int(step), values)
	return nil
}

// maxConfig bounds run.toml, in bytes.
const maxConfig = 1 << 20

// readConfig reads run.toml into a map from section.key to the value as text. It
// returns nil if the file does not exist.
func readConfig(path string) (map[string]string, error) {
	text, err := files.ReadIn(path, maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if _, err := settings.Saved(path, text); err != nil { // such as a file that is cut short
		return nil, fmt.Errorf("report: %w", err)
	}
	var sections map[string]map[string]any
	if _, err := settings.ReadTOML(text, &sections); err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	flat := map[string]string{}
	for section, keys := range sections {
		for key, value := range keys {
			flat[section+"."+key] = settingText(value)
		}
	}
	return flat, nil
}

// settingText returns the value of a key as text: a list or a table as JSON, but a list
// of a single text as that text.
func settingText(value any) string {
	switch v := value.(type) {
	case []any, []map[string]any, map[string]any:
		if list, ok := v.([]any); ok && len(list) == 1 {
			if text, ok := list[0].(string); ok {
				return text
			}
		}
		if text, err := json.Marshal(v); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(value)
}

// nameRuns makes the names of runs unique. Runs with equal names get names with more
// parent folders of their run folders.
func nameRuns(runs []*Run) {
	for depth := 1; depth <= 8; depth++ {
		count := map[string]int{}
		for _, r := range runs {
			count[r.Name]++
		}
		if len(count) == len(runs) {
			return
		}
		for _, r := range runs {
			if count[r.Name] > 1 {
				parts := strings.Split(filepath.ToSlash(filepath.Clean(r.Dir)), "/")
				r.Name = strings.Join(parts[max(0, len(parts)-depth-1):], "/")
			}
		}
	}
}
