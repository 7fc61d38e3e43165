package sweep

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// An Outcome is what one run came to.
type Outcome struct {
	Variant string
	Seed    int64
	// Values by the metric's name: the one that variants are compared by, and
	// others that the table shows.
	Values map[string]float64
	// Failed says why there are no values, "" if there are.
	Failed string
}

// A Metric is a column of the table.
type Metric struct {
	Name    string // in Outcome.Values
	Title   string
	Percent bool // shown in percent
}

// A Comparison is a question stated before the runs.
type Comparison struct {
	First, Second string
	Claim         string // what is expected, and by whom
	Test          Test
}

// A Row is a variant's line: means over seeds.
type Row struct {
	Variant string
	Runs    int
	Failed  int
	Mean    []float64 // by metric
	SE      []float64
	Least   float64 // of the first metric
	Most    float64
}

// A Table is the result of a sweep.
type Table struct {
	Metrics     []Metric // variants are compared by the first
	Rows        []Row
	Comparisons []Comparison
}

// New tabulates outcomes: a row per variant in the order given, and the
// comparisons on the seeds that both variants have.
func New(metrics []Metric, variants []string, outcomes []Outcome, comparisons []Comparison) (*Table, error) {
	if len(metrics) == 0 {
		return nil, errors.New("sweep: no metric to compare by")
	}
	t := &Table{Metrics: metrics, Comparisons: slices.Clone(comparisons)}
	bySeed := map[string]map[int64]float64{}
	for _, name := range variants {
		row := Row{Variant: name, Least: math.NaN(), Most: math.NaN()}
		values := make([][]float64, len(metrics))
		bySeed[name] = map[int64]float64{}
		for _, o := range outcomes {
			if o.Variant != name {
				continue
			}
			if o.Failed != "" {
				row.Failed++
				continue
			}
			row.Runs++
			for k, m := range metrics {
				if v, ok := o.Values[m.Name]; ok && !math.IsNaN(v) {
					values[k] = append(values[k], v)
				}
			}
			if v, ok := o.Values[metrics[0].Name]; ok && !math.IsNaN(v) {
				bySeed[name][o.Seed] = v
			}
		}
		for k := range metrics {
			row.Mean = append(row.Mean, mean(values[k]))
			row.SE = append(row.SE, standardError(values[k]))
		}
		if len(values[0]) > 0 {
			row.Least, row.Most = slices.Min(values[0]), slices.Max(values[0])
		}
		t.Rows = append(t.Rows, row)
	}
	var tests []*Test
	for i := range t.Comparisons {
		c := &t.Comparisons[i]
		for _, name := range []string{c.First, c.Second} {
			if bySeed[name] == nil {
				return nil, fmt.Errorf("sweep: a comparison names variant %q; there are %s", name, strings.Join(variants, ", "))
			}
		}
		var seeds []int64
		for seed := range bySeed[c.First] {
			if _, ok := bySeed[c.Second][seed]; ok {
				seeds = append(seeds, seed)
			}
		}
		slices.Sort(seeds)
		var d []float64
		for _, seed := range seeds {
			d = append(d, bySeed[c.First][seed]-bySeed[c.Second][seed])
		}
		c.Test = Paired(d)
		if len(d) > 0 {
			tests = append(tests, &c.Test)
		}
	}
	adjust(tests)
	return t, nil
}

// Cells are the table's headings and rows as text.
func (t *Table) Cells() (head []string, rows [][]string) {
	head = []string{"variant", "runs"}
	for k, m := range t.Metrics {
		head = append(head, m.title())
		if k == 0 {
			head = append(head, "range")
		}
	}
	for _, r := range t.Rows {
		runs := fmt.Sprint(r.Runs)
		if r.Failed > 0 {
			runs += fmt.Sprintf(" (%d failed)", r.Failed)
		}
		row := []string{r.Variant, runs}
		for k, m := range t.Metrics {
			cell := m.format(r.Mean[k])
			if !math.IsNaN(r.SE[k]) && k == 0 {
				cell += " ± " + m.format(r.SE[k])
			}
			row = append(row, cell)
			if k == 0 {
				row = append(row, m.format(r.Least)+" to "+m.format(r.Most))
			}
		}
		rows = append(rows, row)
	}
	return head, rows
}

// ComparisonCells are the comparisons as text; differences are in points where
// the metric is in percent.
func (t *Table) ComparisonCells() (head []string, rows [][]string) {
	head = []string{"comparison", "seeds", "first less second", "95 % interval", "p", "p, Holm", "stated before"}
	m := t.Metrics[0]
	for _, c := range t.Comparisons {
		x := c.Test
		rows = append(rows, []string{
			c.First + " vs " + c.Second, fmt.Sprint(x.N),
			m.signed(x.Difference) + " ± " + m.format(x.SE),
			m.signed(x.Low) + " to " + m.signed(x.High),
			fmt.Sprintf("%.3g", x.P), fmt.Sprintf("%.3g", x.Adjusted), c.Claim,
		})
	}
	return head, rows
}

func (m Metric) title() string {
	title := m.Title
	if title == "" {
		title = m.Name
	}
	if m.Percent {
		title += ", %"
	}
	return title
}

func (m Metric) format(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case m.Percent && x != 0 && math.Abs(x) < 0.005:
		return fmt.Sprintf("%.2f", 100*x)
	case m.Percent:
		return fmt.Sprintf("%.1f", 100*x)
	}
	return fmt.Sprintf("%.3g", x)
}

func (m Metric) signed(x float64) string {
	if x > 0 {
		return "+" + m.format(x)
	}
	return m.format(x)
}

// Print writes the table and the comparisons in columns.
func (t *Table) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write := func(head []string, rows [][]string) {
		fmt.Fprintln(tw, strings.Join(head, "\t"))
		for _, r := range rows {
			fmt.Fprintln(tw, strings.Join(r, "\t"))
		}
	}
	write(t.Cells())
	if len(t.Comparisons) > 0 {
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(tw)
		write(t.ComparisonCells())
	}
	return tw.Flush()
}

// Markdown returns the table and the comparisons as Markdown.
func (t *Table) Markdown() string {
	var b strings.Builder
	write := func(head []string, rows [][]string) {
		line := func(cells []string) {
			b.WriteString("| " + strings.ReplaceAll(strings.Join(cells, "\x00"), "|", "\\|") + " |\n")
		}
		line(head)
		b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
		for _, r := range rows {
			line(r)
		}
	}
	write(t.Cells())
	if len(t.Comparisons) > 0 {
		b.WriteByte('\n')
		write(t.ComparisonCells())
	}
	return strings.ReplaceAll(b.String(), "\x00", " | ")
}
