package data

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// fieldBudget bounds the bytes of the columns, besides the prompt's, that Load
// keeps in memory. Datasets of solutions by other models have columns of many
// gigabytes that no reward reads.
const fieldBudget = 256 << 20

// fieldMemory keeps the fields of loaded problems within a budget. When a row
// exceeds it, the columns that take most so far are removed from all rows, those
// to come included.
type fieldMemory struct {
	budget    int
	bytes     map[string]int // bytes in use, by column
	total     int
	leftOut   []string        // see Report.LeftOut
	isLeftOut map[string]bool // of each column in leftOut
	visits    int             // how many columns and problems were visited to make room; for tests
}

// countNewest counts the fields of the newest problem, and makes room if they are too
// many. prompts are the columns whose texts the problems hold in any case.
func (m *fieldMemory) countNewest(problems []Problem, prompts []string) {
	newest := &problems[len(problems)-1]
	if len(m.isLeftOut) > 0 {
		newest.remove(m.isLeftOut)
	}
	for _, f := range newest.Fields {
		if !slices.Contains(prompts, f.Name) {
			n := valueBytes(f.Value)
			m.bytes[f.Name] += n
			m.total += n
		}
	}
	if m.total > m.budget {
		m.makeRoom(problems)
	}
}

// fewColumns is how many columns are left out one by one. A file that still needs room
// has very many columns; then room is made for many rows at once, so that the total time
// grows in proportion to the file.
const fewColumns = 16

// makeRoom leaves the largest columns out of all problems until the others are within the budget, or after fewColumns of
// them within half of it: then it is called rarely, as it visits all problems.
func (m *fieldMemory) makeRoom(problems []Problem) {
	columns := slices.SortedFunc(maps.Keys(m.bytes), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.bytes[b], m.bytes[a]), cmp.Compare(a, b))
	})
	if m.isLeftOut == nil {
		m.isLeftOut = map[string]bool{}
	}
	for _, name := range columns {
		if m.total <= m.budget && (len(m.leftOut) < fewColumns || m.total <= m.budget/2) {
			break
		}
		m.total -= m.bytes[name]
		delete(m.bytes, name)
		m.leftOut = append(m.leftOut, name)
		m.isLeftOut[name] = true
	}
	for i := range problems {
		problems[i].remove(m.isLeftOut)
	}
	m.visits += len(columns) + len(problems) // a test bounds them
}

// remove takes columns out of the fields.
func (p *Problem) remove(columns map[string]bool) {
	p.Fields = slices.DeleteFunc(p.Fields, func(f Member) bool { return columns[f.Name] })
}

// valueBytes estimates the memory of a value, including the interface that holds it.
func valueBytes(value any) int {
	const word = 8
	n := 2 * word
	switch v := value.(type) {
	case string:
		n += 2*word + len(v)
	case json.Number:
		n += 2*word + len(v)
	case []byte:
		n += 3*word + len(v)
	case []any:
		n += 3 * word
		for _, x := range v {
			n += valueBytes(x)
		}
	case Object:
		n += 3 * word
		for _, m := range v {
			n += 2*word + valueBytes(m.Value)
		}
	default:
		n += word
	}
	return n
}
