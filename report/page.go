package report

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"sync"

	"onering/models"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed text.js
	textJS string
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

// rolloutBytes bounds the responses of a page, all runs together; rolloutRun
// those of one run.
const (
	rolloutBytes = 3 << 20
	rolloutRun   = 400 << 10
)

// Options say how a page is made.
type Options struct {
	// Title stands at the top. Empty is the name of the run, or their number.
	Title string
	// Tables are shown first, such as a sweep's results.
	Tables []Results
}

// Results are a table that comes with the runs, such as that of a sweep.
type Results struct {
	Title   string     `json:"title"`
	Note    string     `json:"note"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// page is what the script of a page reads.
type page struct {
	Runs     []runPart `json:"runs"`
	Figures  []figure  `json:"figures"`
	Table    summary   `json:"table"`
	Results  []Results `json:"results"`
	Legend   []legend  `json:"legend"`
	Rollouts []rollset `json:"rollouts"`
}

type runPart struct {
	Name     string    `json:"name"`
	Group    string    `json:"group"`
	Color    string    `json:"color"`
	About    string    `json:"about"`
	Findings []Finding `json:"findings"`
}

type legend struct {
	Name  string `json:"name"`
	Color string `json:"color"`
	Runs  int    `json:"runs"`
}

type rollset struct {
	Run  string    `json:"run"`
	List []Rollout `json:"list"`
}

// WriteFile writes a page about runs to a file, whole or not at all. It makes the
// folder of the file if there is none.
func WriteFile(path string, runs []*Run, o Options) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return models.WriteFile(path, func(w io.Writer) error { return Write(w, runs, o) })
}

// Write writes a page about runs: one self-contained HTML file. Runs are
// renamed where two would have the same name. Rollouts are chosen from the
// folders of runs that have none yet.
func Write(w io.Writer, runs []*Run, o Options) error {
	if len(runs) == 0 {
		return errors.New("report: no runs")
	}
	nameRuns(runs)
	for _, r := range runs {
		if r.Rollouts == nil {
			if err := r.ChooseRollouts(min(rolloutRun, rolloutBytes/len(runs))); err != nil {
				return err
			}
		}
	}
	data, err := json.Marshal(describePage(runs, o)) // escapes <, > and &: safe within a script element
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	library, err := echarts()
	if err != nil {
		return fmt.Errorf("report: chart library: %w", err)
	}
	title := o.Title
	if title == "" && len(runs) == 1 {
		title = runs[0].Name
	} else if title == "" {
		title = fmt.Sprintf("%d runs", len(runs))
	}
	script := textJS + pageJS
	err = pageTemplate.Execute(w, map[string]any{
		"Title": title, "CSS": template.CSS(pageCSS), "ECharts": template.JS(library),
		"Script": template.JS(script), "Data": template.JS(data),
		"Hashes": scriptHash(library) + " " + scriptHash(script),
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// scriptHash names a script in the page's Content-Security-Policy. A browser runs
// the scripts named there and no others, such as one within the name of a run.
func scriptHash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func describePage(runs []*Run, o Options) page {
	p := page{Figures: figures(runs), Table: tabulate(runs), Results: o.Tables}
	for k, g := range groupRuns(runs) {
		p.Legend = append(p.Legend, legend{g.name, color(k), len(g.runs)})
		for _, r := range g.runs {
			p.Runs = append(p.Runs, runPart{r.Name, g.name, color(k), r.about(), r.Findings()})
			if len(r.Rollouts) > 0 {
				p.Rollouts = append(p.Rollouts, rollset{r.Name, r.Rollouts})
			}
		}
	}
	return p
}

// about is the run's configuration in a line.
func (r *Run) about() string {
	c := r.Config
	if c == nil {
		return "no run.toml"
	}
	return fmt.Sprintf("%s on %s, %s; %d of %s rounds, %d steps, learning rate %s",
		c["objective.name"], c["data.train"], c["model.path"], r.Rounds.Len(), c["train.rounds"], r.Steps.Len(), c["optimizer.learning_rate"])
}
