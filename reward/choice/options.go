package choice

import (
	"encoding/json"
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
	byText map[string]int // normal form of a text to its place; two equal ones have none
}

// mostChoices bounds what is read for one problem.
const mostChoices = 100

// options reads the choices of a row. The reason says why it cannot.
func (r *rule) options(row data.Object) (o options, reason string) {
	if r.Choices == "" {
		return options{labels: r.Labels}, ""
	}
	var list []option
	if value, ok := row.Lookup(r.Choices); ok {
		list = optionsOf(value)
	} else {
		for name := range strings.SplitSeq(r.Choices, ",") {
			value, ok := row.Lookup(strings.TrimSpace(name))
			if !ok {
				return o, fmt.Sprintf("the row has no column %q with choices", name)
			}
			list = append(list, option{text: value})
		}
	}
	if len(list) == 0 || len(list) > mostChoices {
		return o, fmt.Sprintf("the column %q is no list of 1 to %d choices", r.Choices, mostChoices)
	}
	for i, x := range list {
		text, ok := scalar(x.text)
		label, labelled := scalar(x.label)
		if !labelled && i < len(r.Labels) {
			label = r.Labels[i]
		}
		if !ok || label == "" {
			return o, fmt.Sprintf("choice %d of the column %q has no text or no label", i+1, r.Choices)
		}
		o.labels, o.texts = append(o.labels, normal(label)), append(o.texts, plain(text))
	}
	o.dropLabels()
	o.byText = map[string]int{}
	for i, text := range o.texts {
		key := strings.ToLower(text)
		if _, twice := o.byText[key]; twice {
			o.byText[key] = -1
		} else if key != "" {
			o.byText[key] = i
		}
	}
	return o, checkLabels(o.labels)
}

// dropLabels takes the label off each text, as in "A) 21", if all texts have it.
func (o options) dropLabels() {
	bare := make([]string, len(o.texts))
	for i, text := range o.texts {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(text, "("), o.labels[i])
		if !ok || rest == "" || !strings.ContainsRune(").:", rune(rest[0])) {
			return
		}
		bare[i] = plain(rest[1:])
	}
	copy(o.texts, bare)
}

// An option is a choice as a row has it.
type option struct{ label, text any }

// Names of the members that hold the label and the text of a choice.
var (
	labelNames = []string{"label", "labels", "key", "letter", "id"}
	textNames  = []string{"text", "texts", "content", "value", "choice", "choices"}
)

// optionsOf reads the value of a column; nil if it is no list of choices.
func optionsOf(value any) (list []option) {
	switch v := value.(type) {
	case []any:
		for _, x := range v {
			if o, ok := x.(data.Object); ok {
				list = append(list, option{member(o, labelNames), member(o, textNames)})
			} else {
				list = append(list, option{text: x})
			}
		}
	case data.Object:
		if all, ok := member(v, textNames).([]any); ok {
			labels, _ := member(v, labelNames).([]any)
			if labels != nil && len(labels) != len(all) {
				return nil
			}
			for i, text := range all {
				list = append(list, option{text: text})
				if labels != nil {
					list[i].label = labels[i]
				}
			}
			return list
		}
		for _, m := range v {
			if m.Value != nil { // a reader of columns gives a row every member that some row has
				list = append(list, option{m.Name, m.Value})
			}
		}
	}
	return list
}

// member returns the first member of o that has one of the names.
func member(o data.Object, names []string) any {
	for _, name := range names {
		if value, ok := o.Get(name); ok {
			return value
		}
	}
	return nil
}

// scalar returns a text or a number as a text.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case json.Number:
		return v.String(), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int64, uint64, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// names are the labels of the picked choices.
func (o options) names(picked []int) string {
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
			return nil, fmt.Sprintf("the answer %.40q may be %s or %s: set reward.gold", answer, o.names(readings[0]), o.names(readings[1]))
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

// goldReadings returns the different sets of choices that a row's answer may
// stand for.
func (r *rule) goldReadings(o options, answer string) (readings [][]int) {
	add := func(set []int) {
		if len(set) > 0 && !slices.ContainsFunc(readings, func(x []int) bool { return slices.Equal(x, set) }) {
			readings = append(readings, set)
		}
	}
	may := func(kind string) bool { return r.Gold == kind || r.Gold == "auto" }
	if may("label") {
		letters := o
		letters.byText = nil // a text alone is no label
		set, _ := letters.read(answer, false)
		add(set)
	}
	isLabel := len(readings) > 0
	if may("text") {
		if at, ok := o.withText(answer); ok && at >= 0 {
			add([]int{at})
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(answer))
	if r.Gold == "number" {
		n--
	}
	if err == nil && (r.Gold == "index" || r.Gold == "number" || r.Gold == "auto" && !isLabel) && 0 <= n && n < len(o.labels) {
		add([]int{n})
	}
	return readings
}
