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
// exceeds it, the column that takes most so far is removed from all rows, those
// to come included.
type fieldMemory struct {
	budget  int
	bytes   map[string]int // by column
	total   int
	leftOut []string
}

// keep counts the fields of the newest problem, and makes room if they are too
// many. prompt is the column whose text the problems hold in any case.
func (m *fieldMemory) keep(problems []Problem, prompt string) {
	newest := &problems[len(problems)-1]
	if len(m.leftOut) > 0 {
		newest.remove(m.leftOut...)
	}
	for _, f := range newest.Fields {
		if f.Name != prompt {
			n := valueBytes(f.Value)
			m.bytes[f.Name] += n
			m.total += n
		}
	}
	for m.total > m.budget {
		largest := slices.MaxFunc(slices.Sorted(maps.Keys(m.bytes)), func(a, b string) int { return cmp.Compare(m.bytes[a], m.bytes[b]) })
		m.total -= m.bytes[largest]
		delete(m.bytes, largest)
		m.leftOut = append(m.leftOut, largest)
		for i := range problems {
			problems[i].remove(largest)
		}
	}
}

// remove takes columns out of the fields.
func (p *Problem) remove(columns ...string) {
	p.Fields = slices.DeleteFunc(p.Fields, func(m Member) bool { return slices.Contains(columns, m.Name) })
}

// valueBytes is about the memory that a value takes, the interface that holds
// it included.
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
