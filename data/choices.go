package data

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the members that hold the label and the text of a choice.
var (
	labelNames  = []string{"label", "labels", "key", "letter", "id"}
	choiceNames = []string{"text", "texts", "content", "value", "choice", "choices"}
)

// Choices reads the choices of a multiple-choice problem out of the value of a column: a list
// of texts or of {label, text}, {text = [...], label = [...]}, or {A = ..., B = ...}. A label
// that is not there is empty. The lists are empty if the value is none of these.
func Choices(value any) (labels, texts []string, err error) {
	add := func(label, text any) {
		l, _ := scalar(label)
		t, ok := scalar(text)
		if labels, texts = append(labels, l), append(texts, t); (!ok || text == nil) && err == nil {
			err = fmt.Errorf("choice %d has no text", len(texts))
		}
	}
	switch v := value.(type) {
	case []any:
		for _, x := range v {
			if o, ok := x.(Object); ok {
				add(member(o, labelNames), member(o, choiceNames))
			} else {
				add(nil, x)
			}
		}
	case Object:
		if all, ok := member(v, choiceNames).([]any); ok {
			names, named := member(v, labelNames).([]any)
			if named && len(names) != len(all) {
				return nil, nil, nil
			}
			for i, text := range all {
				add(slices.Concat(names, make([]any, len(all)))[i], text)
			}
			break
		}
		for _, m := range v {
			if m.Value != nil { // a reader of columns gives a row every member that some row has
				add(m.Name, m.Value)
			}
		}
	}
	return labels, texts, err
}

// member returns the first member of o that has one of the names.
func member(o Object, names []string) any {
	for _, name := range names {
		if value, ok := o.Get(name); ok {
			return value
		}
	}
	return nil
}

// ChoiceColumn returns the column of a row that has its choices by its name, choices or
// options; "" if none has.
func ChoiceColumn(row Object) string {
	for _, m := range row {
		if strings.EqualFold(m.Name, "choices") || strings.EqualFold(m.Name, "options") {
			if _, texts, err := Choices(m.Value); err == nil && len(texts) > 1 {
				return m.Name
			}
		}
	}
	return ""
}

// Labeled returns choices as lines, each with its label or a letter in front, unless all texts
// begin with it.
func labeled(labels, texts []string) []string {
	lines, bare := make([]string, len(texts)), false
	for i, text := range texts {
		label := labels[i]
		if label == "" && i < 26 {
			label = string(rune('A' + i))
		}
		rest, ok := strings.CutPrefix(strings.TrimPrefix(text, "("), label)
		bare = bare || !ok || rest == "" || !strings.ContainsRune(").:", rune(rest[0]))
		lines[i] = label + ". " + text
	}
	if !bare {
		return texts
	}
	return lines
}

// shown returns a value as a template shows it: choices with their letters, other lists with an
// element a line.
func shown(column string, value any) (text string, ok bool) {
	if text, ok = scalar(value); ok {
		return text, true
	}
	labels, texts, err := Choices(value)
	named := ChoiceColumn(Object{{column, value}}) != "" || strings.Join(labels, "") != ""
	switch list, isList := value.([]any); {
	case err == nil && named:
		return strings.Join(labeled(labels, texts), "\n"), true
	case isList:
		lines := make([]string, len(list))
		for i, x := range list {
			if lines[i], ok = shown("", x); !ok {
				return "", false
			}
		}
		return strings.Join(lines, "\n"), true
	}
	return string(appendJSON(nil, value)), true
}

// offer puts the choices behind a problem that does not have them yet.
func offer(problem string, choices []string) string {
	has := func(choice string) bool {
		label, text, _ := strings.Cut(choice, ". ")
		for at, end := 0, 0; ; at += end + 1 {
			if end = strings.Index(problem[at:], text); end < 0 {
				return false
			}
			before := strings.TrimRight(problem[:at+end], " \t\n")
			if strings.HasSuffix(strings.TrimRight(before, ").:"), label) {
				return true
			}
		}
	}
	if len(choices) == 0 || !slices.ContainsFunc(choices, func(c string) bool { return !has(c) }) {
		return problem
	}
	return problem + "\n\n" + strings.Join(choices, "\n")
}
