package report

import (
	"bytes"
	"cmp"
	"fmt"
	"onering/internal/files"
	"onering/train/rundir"
	"os"
	"slices"
)

// Limits on the pass rates of problems over rounds.
const (
	heatProblems = 60       // rows of the map of one run
	heatColumns  = 40       // columns of a map
	heatRuns     = 6        // maps on a page
	heatBytes    = 64 << 20 // bytes of rollouts files that are read for all maps together
)

// A heatMap has the pass rate of problems that came more than once.
type heatMap struct {
	Run     string    `json:"run"`
	Columns []string  `json:"columns"` // the rounds of each column
	Rows    []heatRow `json:"rows"`    // from the hardest problem to the easiest
	Again   int       `json:"again"`   // number of problems that came more than once, including those without a row
	Read    int       `json:"read"`    // number of rounds that were read
	Rounds  int       `json:"rounds"`  // number of rounds of the run
}

// A heatRow is one problem. A cell has the number of right and of all judged responses in
// the column's rounds; [0, 0] if the problem was not in them.
type heatRow struct {
	ID     string   `json:"id"`
	Prompt string   `json:"prompt"` // the beginning of the prompt
	Cells  [][2]int `json:"cells"`
}

// An occurrence says how many responses to a problem were right in one round.
type occurrence struct{ round, right, judged int }

// A history holds the occurrences of one problem over the rounds.
type history struct {
	head        rundir.RolloutLine // its first line, which has the prompt
	occurrences []occurrence
}

// passRate returns the share of right responses in all rounds.
func (c *history) passRate() float64 {
	right, judged := 0, 0
	for _, o := range c.occurrences {
		right, judged = right+o.right, judged+o.judged
	}
	return float64(right) / float64(judged)
}

// heat reads the run's rollouts files, at most about budget bytes of them, and returns the map. The
// rows are problems of all difficulties. It returns false if no problem came twice.
func (r *Run) heat(budget int64) (heatMap, bool, error) {
	paths := r.rolloutFiles()
	if len(paths) < 2 {
		return heatMap{}, false, nil
	}
	read, histories := sampleFiles(paths, budget), map[string]*history{}
	for _, path := range read {
		if err := readHistories(path, histories); err != nil {
			return heatMap{}, false, fmt.Errorf("report: %w", err)
		}
	}
	var again []*history
	most := 0
	for _, h := range histories {
		if len(h.occurrences) > 1 {
			again, most = append(again, h), max(most, len(h.occurrences))
		}
	}
	slices.SortFunc(again, func(a, b *history) int {
		return cmp.Or(cmp.Compare(a.passRate(), b.passRate()), cmp.Compare(a.head.Problem, b.head.Problem))
	})
	first, last := roundOf(paths[0]), roundOf(paths[len(paths)-1])
	m := heatMap{Run: r.Name, Again: len(again), Read: len(read), Rounds: len(paths)}
	// There are as many columns as the most frequent problem has rounds: then a column
	// covers about a pass over the data, and few cells are empty.
	columns := min(heatColumns, most, last-first+1)
	column := func(round int) int { return (round - first) * columns / (last - first + 1) }
	for n := first; n <= last; n++ { // name each column by its first round and, if it has several, its last
		if c := column(n); c == len(m.Columns) {
			m.Columns = append(m.Columns, fmt.Sprint(n))
		} else if n == last || column(n+1) > c {
			m.Columns[c] += fmt.Sprint("-", n)
		}
	}
	rows := min(heatProblems, len(again))
	for i := range rows {
		h := again[i*len(again)/rows] // evenly from the hardest to the easiest
		row := heatRow{ID: h.head.Problem, Prompt: string([]rune(h.head.Prompt)[:min(80, len([]rune(h.head.Prompt)))]), Cells: make([][2]int, columns)}
		for _, o := range h.occurrences {
			cell := &row.Cells[column(o.round)]
			cell[0], cell[1] = cell[0]+o.right, cell[1]+o.judged
		}
		m.Rows = append(m.Rows, row)
	}
	return m, rows > 0, nil
}

// sampleFiles returns as many of the files, evenly from the first to the last, as have about budget bytes.
func sampleFiles(paths []string, budget int64) []string {
	total := int64(0)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
		}
	}
	if total <= budget {
		return paths
	}
	list := make([]string, max(1, int(int64(len(paths))*budget/total)))
	for i := range list {
		list[i] = paths[(2*i+1)*len(paths)/(2*len(list))] // that in the middle of each stretch
	}
	return list
}

// readHistories adds the occurrences of problems in a rollouts file to histories, which has them by ID.
func readHistories(path string, histories map[string]*history) error {
	round, stated := roundOf(path), false
	return files.EachLine(path, maxLine, func(line []byte) error {
		stated = stated || bytes.Contains(line, []byte(`"prompt_ids":`)) // only versions that write verdicts write this key
		var head rundir.RolloutLine
		if err := head.ReadHead(line); err != nil {
			return err
		}
		is := verdict(&head, stated) // where a run states none, a reward above 0 means right
		if head.Skipped || head.Part || is == unknown {
			return nil // a Part is an earlier segment of an episode, which counts once
		}
		h := histories[head.Problem]
		if h == nil {
			h = &history{head: head}
			histories[head.Problem] = h
		}
		if len(h.occurrences) == 0 || h.occurrences[len(h.occurrences)-1].round != round {
			h.occurrences = append(h.occurrences, occurrence{round: round})
		}
		o := &h.occurrences[len(h.occurrences)-1]
		o.judged++
		if is == right {
			o.right++
		}
		return nil
	})
}
