package doctor

import (
	"maps"
	"slices"
	"strings"

	"onering/data"
	"onering/verifier"
)

// Problems says what is wrong with the problems of a run: conflicts (one prompt with two answers), duplicates, and suites
// among what is trained on. suites are by name; promptColumn is the setting data.prompt, for a hint.
func Problems(train []data.Problem, suites map[string][]data.Problem, promptColumn string) (list []Finding) {
	first, times := map[string]int{}, map[string]int{} // by what a problem asks
	again, other, clash := 0, 0, ""                    // prompts that occur again, those with another answer, and an example
	for i, q := range train {
		text := asked(q)
		times[text]++
		j, seen := first[text]
		if !seen {
			first[text] = i
			continue
		}
		again++
		if len(q.Answers) > 0 && len(train[j].Answers) > 0 && !agree(q.Answers, train[j].Answers) {
			other++
			clash = example(q.Text) + " has " + example(q.Answers[0]) + " and " + example(train[j].Answers[0])
		}
	}
	n, place := len(train), ""
	if promptColumn != "" {
		place = " Is data.prompt = \"" + promptColumn + "\" the column of the problems?"
	}
	switch {
	case n > 0 && 50*other >= n && other > 1:
		list = append(list, *newFinding("conflicts", "%d of the %d problems of data.train have the prompt of an earlier "+
			"one and another answer, which conflict (%s).%s Leave one of them out; onering data check names them", other, n, clash, place))
	case n > 1 && 5*again >= n:
		list = append(list, *newFinding("duplicates", "data.train has only %d different problems: %d of its %d rows are "+
			"duplicates.%s Leave them out; onering data check names them", len(first), again, n, place))
	}
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		suite, both := suites[name], 0
		for _, q := range suite {
			if times[asked(q)] > 0 {
				both++
			}
		}
		if 100*both >= len(suite) && both > 0 {
			list = append(list, *newFinding("leak", "%d of the %d problems of the suite %s are also in data.train: its figures "+
				"would be those of problems that were trained on. Take another suite, or leave them out by data.filter", both, len(suite), name))
		}
	}
	return list
}

// asked is what a problem asks, blanks aside.
func asked(q data.Problem) string {
	return strings.Join(append(strings.Fields(q.Text), q.Choices...), " ")
}

// agree says whether two rows have an answer in common.
func agree(a, b []string) bool {
	if slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) }) {
		return true
	}
	return verifier.Verifier{}.VerifyAny(a, `\boxed{`+b[0]+`}`).Correct
}
