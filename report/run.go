package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// A Run is what a run folder holds, as far as reports need it.
type Run struct {
	Name   string            // how the report calls it; unique within a report
	Dir    string            // the run folder
	Group  string            // what it is a run of, such as a variant of a sweep; "" groups by configuration
	Config map[string]string // run.toml, by section.key; values as text

	Steps  *Table // one row per optimizer step
	Rounds *Table // one row per round
	Evals  *Table // one row per evaluation

	Rollouts []Rollout // a choice of those in the folder; see ChooseRollouts

	newest verdicts // of the newest rollouts file
	ess    essTally // of the rollouts files that were read
}

// A Table is the records of one kind, by column. Row i was written after
// Step[i] optimizer steps, in round Round[i].
type Table struct {
	Step, Round []int
	names       []string // in the order of first appearance
	columns     map[string][]float64
}

func newTable() *Table { return &Table{columns: map[string][]float64{}} }

// Len is the number of rows.
func (t *Table) Len() int { return len(t.Step) }

// Names lists the columns in the order in which they were logged.
func (t *Table) Names() []string { return t.names }

// Column returns the values of a name, NaN where a row lacks it; nil if all
// rows do.
func (t *Table) Column(name string) []float64 { return t.columns[name] }

// Last returns the last value of a name that is a number, NaN if there is none.
func (t *Table) Last(name string) float64 {
	for _, v := range slices.Backward(t.columns[name]) {
		if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// First returns the first value of a name that is a number, NaN if there is none.
func (t *Table) First(name string) float64 {
	for _, v := range t.columns[name] {
		if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// add appends a row. Columns that it lacks are filled with NaN later.
func (t *Table) add(step, round int, values map[string]any) {
	row := len(t.Step)
	t.Step = append(t.Step, step)
	t.Round = append(t.Round, round)
	for name, value := range values {
		x, ok := value.(float64)
		if !ok || name == "step" || name == "round" {
			continue
		}
		column, ok := t.columns[name]
		if !ok {
			t.names = append(t.names, name)
		}
		for len(column) < row {
			column = append(column, math.NaN())
		}
		t.columns[name] = append(column, x)
	}
}

// finish makes all columns equally long and their order independent of maps.
func (t *Table) finish() {
	slices.Sort(t.names)
	for name, column := range t.columns {
		for len(column) < t.Len() {
			column = append(column, math.NaN())
		}
		t.columns[name] = column
	}
}

// ReadRun reads a run folder, of a run that may still be going on: a line that
// is being written is left out. A folder without metrics.jsonl is an error.
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
	f, err := os.Open(filepath.Join(dir, "metrics.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("report: %s is not a run folder: it has no metrics.jsonl", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	defer f.Close()
	if err := r.readMetrics(f); err != nil {
		return nil, fmt.Errorf("report: %s: %w", f.Name(), err)
	}
	return r, nil
}

func (r *Run) readMetrics(f io.Reader) error {
	in := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			break // what is left has no end as yet
		}
		if err != nil {
			return err
		}
		if err := r.addRecord(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	for _, t := range []*Table{r.Steps, r.Rounds, r.Evals} {
		t.finish()
	}
	return nil
}

// addRecord adds one line of metrics.jsonl. Kinds that reports do not know are
// skipped.
func (r *Run) addRecord(line []byte) error {
	var values map[string]any
	if err := json.Unmarshal(line, &values); err != nil {
		return err
	}
	step, _ := values["step"].(float64)
	round, _ := values["round"].(float64)
	t := map[any]*Table{"step": r.Steps, "round": r.Rounds, "eval": r.Evals}[values["kind"]]
	if t != nil {
		t.add(int(step), int(round), values)
	}
	return nil
}

// readConfig reads run.toml flat; a folder without one has no configuration.
func readConfig(path string) (map[string]string, error) {
	var sections map[string]map[string]any
	_, err := toml.DecodeFile(path, &sections)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	flat := map[string]string{}
	for section, keys := range sections {
		for key, value := range keys {
			flat[section+"."+key] = fmt.Sprint(value)
		}
	}
	return flat, nil
}

// nameRuns makes the names unique: by the folders above where the last one is
// not enough.
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
				r.Name = lastElements(r.Dir, depth+1)
			}
		}
	}
}

func lastElements(path string, n int) string {
	parts := strings.Split(filepath.ToSlash(filepath.Clean(path)), "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}
