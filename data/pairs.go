package data

import (
	"fmt"
	"io"
)

// ResponseNames are the columns that are looked for as responses, in this order.
var ResponseNames = []string{"response", "completion", "output", "solution", "answer"}

// A Pair is a prompt and a response to it, both as they are in the file.
type Pair struct{ Prompt, Response string }

// LoadPairs reads the demonstrations of a dataset. Prompt, Split, Input, Filter
// and Limit of o have the same meaning as for problems. Answer names the column of
// the responses; if it is empty, the first of ResponseNames that the first row has
// is taken. A row that lacks one of the two texts is an error, as is a dataset
// without rows.
func LoadPairs(path string, o Options) ([]Pair, error) {
	var filter *Filter
	if o.Filter != "" {
		var err error
		if filter, err = ParseFilter(o.Filter); err != nil {
			return nil, err
		}
	}
	records, err := OpenRecords(path, o)
	if err != nil {
		return nil, err
	}
	defer records.Close()
	var pairs []Pair
	var prompt, response string
	for file := -1; o.Limit == 0 || len(pairs) < o.Limit; {
		rec, err := records.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if file != records.file {
			file = records.file
			if prompt, err = findColumn(rec.Object, "prompt", o.Prompt, PromptNames); err == nil {
				response, err = findColumn(rec.Object, "response", o.Answer, ResponseNames)
			}
			if err != nil {
				return nil, &RowError{File: rec.File, Err: err}
			}
		}
		if filter != nil && !filter.Match(rec.Object) {
			continue
		}
		pair, err := pairOf(rec.Object, prompt, response)
		if err != nil {
			return nil, &RowError{File: rec.File, Unit: records.src.unit(), Line: rec.Line, Err: err}
		}
		pairs = append(pairs, pair)
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("dataset: %s: no row is left", path)
	}
	return pairs, nil
}

func pairOf(o Object, prompt, response string) (Pair, error) {
	value, _ := lookup(o, prompt)
	p, reason := promptOf(value)
	if reason != "" {
		return Pair{}, fmt.Errorf("%s (column %q)", reason, prompt)
	}
	value, _ = lookup(o, response)
	r, ok := scalar(value)
	switch {
	case !ok:
		return Pair{}, fmt.Errorf("the response is no text (column %q)", response)
	case r == "":
		return Pair{}, fmt.Errorf("no response (column %q)", response)
	}
	return Pair{p, r}, nil
}
