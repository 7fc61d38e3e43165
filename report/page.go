package report

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"onering/internal/files"
	"os"
	"path/filepath"
	"sync"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed text.js
	textJS string
	//go:embed responses.js
	responsesJS string
	//go:embed page.js
	pageJS string
	//go:embed assets/echarts.common.min.js.gz
	echartsGz []byte
)

var pageTemplate = template.Must(template.New("report").Parse(pageHTML))

// echarts unpacks the chart library once.
var echarts = sync.OnceValues(func() (string, error) {
	z, err := gzip.NewReader(bytes.NewReader(echartsGz))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
})

// Limits on the size of the responses on a page, in bytes of JSON.
const (
	pageRolloutBytes = 3 << 20   // of all runs of a page together
	runRolloutBytes  = 400 << 10 // of one run
)

// Options are the caller's choices for a page.
type Options struct {
	// Title is shown at the top. If it is empty, the page shows the name of the run,
	// or how many runs there are.
	Title string
	// Tables are shown before everything else, such as the results of a sweep.
	Tables []Results
}

// Results is a table that the caller adds to a page, such as the results of a sweep.
type Results struct {
	Title   string     `json:"title"`
	Note    string     `json:"note"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// page is the data that page.js reads, as JSON.
type page struct {
	Runs     []runInfo     `json:"runs"`
	Figures  []figure      `json:"figures"`
	Table    summary       `json:"table"`
	Results  []Results     `json:"results"`
	Legend   []legend      `json:"legend"`
	Rollouts []runRollouts `json:"rollouts"`
	Heat     []heatMap     `json:"heat"`
	Differ   difference    `json:"differ"`
	// Supervised says that no run of the page samples responses.
	Supervised bool `json:"supervised,omitempty"`
}

// runInfo describes one run.
type runInfo struct {
	Name     string    `json:"name"`
	Group    string    `json:"group"`
	Color    string    `json:"color"`
	About    string    `json:"about"`
	Findings []finding `json:"findings"`
}

// legend names one group of runs and its colour.
type legend struct {
	Name  string `json:"name"`
	Color string `json:"color"`
	Runs  int    `json:"runs"`
}

// runRollouts are the responses of one run.
type runRollouts struct {
	Run      string        `json:"run"`
	Problems []problem     `json:"problems"`
	List     []rolloutView `json:"list"`
}

// WriteFile writes a page about runs to a file, atomically. It makes the folder of the file if there is none.
func WriteFile(path string, runs []*Run, o Options) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return files.WriteFile(path, func(w io.Writer) error { return Write(w, runs, o) })
}

// Write writes a page about runs: one self-contained HTML file. It renames runs that have the
// same name. If a run has no Rollouts yet, Write chooses some from its folder.
func Write(w io.Writer, runs []*Run, o Options) error {
	if len(runs) == 0 {
		return errors.New("report: no runs")
	}
	nameRuns(runs)
	for _, r := range runs {
		if r.Rollouts == nil {
			if err := r.ChooseRollouts(min(runRolloutBytes, pageRolloutBytes/len(runs))); err != nil {
				return err
			}
		}
	}
	p, err := newPage(runs, o)
	if err != nil {
		return err
	}
	data, err := json.Marshal(p) // escapes <, > and &: safe within a script element
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	library, err := echarts()
	if err != nil {
		return fmt.Errorf("report: chart library: %w", err)
	}
	title := fmt.Sprintf("%d runs", len(runs))
	if len(runs) == 1 {
		title = runs[0].Name
	}
	script := textJS + responsesJS + pageJS
	err = pageTemplate.Execute(w, map[string]any{
		"Title": cmp.Or(o.Title, title), "CSS": template.CSS(pageCSS), "ECharts": template.JS(library),
		"Script": template.JS(script), "Data": template.JS(data),
		"Hashes": scriptHash(library) + " " + scriptHash(script),
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// scriptHash returns the source expression of a script for the page's Content-Security-Policy. The browser runs
// only scripts whose hashes are listed there, so it does not run a script that is in the name of a run.
func scriptHash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// newPage collects the data of a page.
func newPage(runs []*Run, o Options) (page, error) {
	p := page{Figures: figures(runs), Table: tabulate(runs), Results: o.Tables, Differ: settingsDiffer(runs), Supervised: allSupervised(runs)}
	groups := groupRuns(runs)
	for k, g := range groups {
		if k < heatRuns { // the map shows the first run of a group
			m, ok, err := g.runs[0].heat(heatBytes / int64(min(heatRuns, len(groups))))
			if err != nil {
				return p, err
			}
			if ok {
				p.Heat = append(p.Heat, m)
			}
		}
		p.Legend = append(p.Legend, legend{g.name, color(k), len(g.runs)})
		for _, r := range g.runs {
			p.Runs = append(p.Runs, runInfo{Name: r.Name, Group: g.name, Color: color(k), About: r.about(), Findings: r.Findings()})
			if len(r.Rollouts) > 0 {
				p.Rollouts = append(p.Rollouts, runRollouts{r.Name, r.Problems, r.Rollouts})
			}
		}
	}
	return p, nil
}

// about summarizes the run's configuration in one line.
func (r *Run) about() string {
	c := r.Config
	if c == nil {
		return "no run.toml"
	}
	if r.supervised() {
		return fmt.Sprintf("supervised on %s, model %s; %d steps, learning rate %s", c["data.train"], c["model.path"], r.Steps.Len(), c["optimizer.learning_rate"])
	}
	return fmt.Sprintf("%s on %s, model %s; %d of %s rounds, %d steps, learning rate %s",
		c["objective.name"], c["data.train"], c["model.path"], r.Rounds.Len(), c["train.rounds"], r.Steps.Len(), c["optimizer.learning_rate"])
}
