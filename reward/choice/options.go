package choice

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onering/data"
)

// Options are the choices of one problem.
type options struct {
	labels []string
	texts  []string       // normal forms, as many as labels; nil if they are not known
	byText map[string]int // from the normal form of a text to its place; two equal texts have none
}

// mostChoices bounds the choices of one problem.
const mostChoices = 100

// readOptions reads the choices of a row. The reason says why it cannot.
func (r *rule) readOptions(row data.Object) (o options, reason string) {
	if r.Choices == "" && row.ChoiceColumn() == "" { // only letters are answers
		return options{labels: r.Labels}, ""
	}
	labels, texts, reason := r.readListed(row)
	if reason != "" {
		return o, reason
	}
	for i, text := range texts {
		o.labels, o.texts = append(o.labels, normalForm(labels[i])), append(o.texts, plainText(text))
	}
	o.dropLabels()
	o.byText = map[string]int{}
	for i, text := range o.texts {
		key := strings.ToLower(text)
		if _, twice := o.byText[key]; twice {
			o.byText[key] = -1 // no single choice has this text
		} else if key != "" {
			o.byText[key] = i
		}
	}
	return o, checkLabels(o.labels)
}

// readListed returns the labels and the texts of a row's choices as they are written. The reason
// says why it cannot.
func (r *rule) readListed(row data.Object) (labels, texts []string, reason string) {
	column := cmp.Or(r.Choices, row.ChoiceColumn())
	value, ok := row.Lookup(column)
	if !ok { // then it names several columns
		var list []any
		for name := range strings.SplitSeq(column, ",") {
			text, ok := row.Lookup(strings.TrimSpace(name))
			if !ok {
				return nil, nil, fmt.Sprintf("the row has no column %q with choices", name)
			}
			list = append(list, text)
		}
		value = list
	}
	labels, texts, err := data.Choices(value)
	if len(texts) == 0 || len(texts) > mostChoices {
		return nil, nil, fmt.Sprintf("the column %q is not a list of 1 to %d choices", column, mostChoices)
	}
	for i := range labels {
		if labels[i] == "" && i < len(r.Labels) {
			labels[i] = r.Labels[i]
		}
		if labels[i] == "" && err == nil {
			err = fmt.Errorf("choice %d has no label", i+1)
		}
	}
	if err != nil {
		return nil, nil, fmt.Sprintf("%v (column %q)", err, column)
	}
	return labels, texts, ""
}

// Offers returns the choices that a model has to see.
func (r *rule) Offers(row data.Object) (labels, texts []string) {
	labels, texts, _ = r.readListed(row)
	return labels, texts
}

// dropLabels removes the label from each text, as in "A) 21", if all texts have one.
func (o options) dropLabels() {
	bare := make([]string, len(o.texts))
	for i, text := range o.texts {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(text, "("), o.labels[i])
		if !ok || rest == "" || !strings.ContainsRune(").:", rune(rest[0])) {
			return
		}
		bare[i] = plainText(rest[1:])
	}
	copy(o.texts, bare)
}

// labelsOf are the labels of the picked choices.
func (o options) labelsOf(picked []int) string {
	var list []string
	for _, i := range picked {
		list = append(list, o.labels[i])
	}
	return strings.Join(list, ", ")
}

// golds returns the sets of choices that are right, each sorted. The reason says
// why there are none.
func (r *rule) golds(o options, answers []string) (golds [][]int, reason string) {
	for _, answer := range answers {
		readings := r.goldReadings(o, answer)
		switch {
		case len(readings) == 0:
			return nil, fmt.Sprintf("the answer %.40q is none of the choices", answer)
		case len(readings) > 1:
			return nil, fmt.Sprintf("the answer %.40q may be %s or %s: set reward.gold", answer, o.labelsOf(readings[0]), o.labelsOf(readings[1]))
		}
		golds = append(golds, readings[0])
	}
	if len(golds) == 0 {
		return nil, "the problem has no answer"
	}
	if r.All {
		all := slices.Concat(golds...)
		slices.Sort(all)
		golds = [][]int{slices.Compact(all)}
	}
	return golds, ""
}

// goldReadings returns the different sets of choices that a row's answer may stand for by the setting
// gold: as labels, a text, an index or a number. More than one set means that the row is ambiguous.
func (r *rule) goldReadings(o options, answer string) (readings [][]int) {
	add := func(set []int) {
		if len(set) > 0 && !slices.ContainsFunc(readings, func(x []int) bool { return slices.Equal(x, set) }) {
			readings = append(readings, set)
		}
	}
	may := func(kind string) bool { return r.Gold == kind || r.Gold == "auto" }
	if may("label") {
		letters := o
		letters.byText = nil // a text alone is not a label
		set, _ := letters.readWhole(answer)
		add(set)
	}
	isLabel := len(readings) > 0
	if may("text") {
		if at, ok := o.choiceWithText(answer); ok && at >= 0 {
			add([]int{at})
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(answer))
	if r.Gold == "number" { // which counts from 1, as an index does from 0
		n--
	}
	mayBeIndex := r.Gold == "index" || r.Gold == "number" || r.Gold == "auto" && !isLabel
	if err == nil && mayBeIndex && 0 <= n && n < len(o.labels) {
		add([]int{n})
	}
	return readings
}
