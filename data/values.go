package data

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/float16"
)

// This file turns the values of columnar files into those of an Object.

// twosComplement reads a number whose highest byte is first.
func twosComplement(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// decimalText writes x with the decimal point scale digits from its end.
func decimalText(x *big.Int, scale int) json.Number {
	const most = 1000 // no decimal type has more digits
	if scale == 0 || scale < -most || scale > most {
		return json.Number(x.String())
	}
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil)
	if scale < 0 {
		return json.Number(ten.Mul(ten, x).String())
	}
	return json.Number(new(big.Rat).SetFrac(x, ten).FloatString(scale))
}

// moment returns the time that lies x units after the epoch.
func moment(x int64, unit time.Duration) time.Time {
	perSecond := int64(time.Second / unit)
	return time.Unix(x/perSecond, x%perSecond*int64(unit)).UTC()
}

func dateText(x int64) string { return moment(x*86400, time.Second).Format(time.DateOnly) }

// clockText formats the time of day of t.
func clockText(t time.Time) string { return t.Format("15:04:05.999999999") }

// A zone formats times as ISO 8601. Without a name it is the zone of local times,
// which are written without an offset.
type zone struct {
	name  string
	place *time.Location
}

func newZone(name string) zone {
	place, err := time.LoadLocation(name)
	if err != nil {
		place = time.UTC
		if offset, err := time.Parse("-07:00", name); err == nil {
			place = offset.Location()
		}
	}
	return zone{name, place}
}

func (z zone) format(t time.Time) string {
	if z.name == "" {
		return t.Format("2006-01-02T15:04:05.999999999")
	}
	return t.In(z.place).Format(time.RFC3339Nano)
}

// shortestFloat32 returns the number with the fewest decimal digits that is x when read
// as float32: 0.1, and not 0.10000000149011612, is what was written.
func shortestFloat32(x float32) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil { // an infinity or NaN
		return float64(x)
	}
	return y
}

// shortestFloat16 is shortestFloat32 for float16, whose numbers have at most 5 digits.
func shortestFloat16(x float16.Num) float64 {
	exact := float64(x.Float32())
	if exact == 0 || math.IsInf(exact, 0) || math.IsNaN(exact) {
		return exact
	}
	for digits := 1; digits <= 5; digits++ {
		y, err := strconv.ParseFloat(strconv.FormatFloat(exact, 'g', digits, 64), 64)
		if err == nil && float16.New(float32(y)) == x {
			return y
		}
	}
	return exact
}

// The names of the members that hold the label and the text of a choice.
var (
	labelNames  = []string{"label", "labels", "key", "letter", "id"}
	choiceNames = []string{"text", "texts", "content", "value", "choice", "choices"}
)

// Choices reads the choices of a multiple-choice problem out of the value of a column: a list
// of texts or of {label, text}, {text = [...], label = [...]}, or {A = ..., B = ...}. A label
// that is not there is empty. The lists are empty if the value has another form.
func Choices(value any) (labels, texts []string, err error) {
	add := func(label, text any) {
		l, _ := scalar(label)
		t, ok := scalar(text)
		labels, texts = append(labels, l), append(texts, t)
		if (!ok || text == nil) && err == nil {
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
		if all, ok := member(v, choiceNames).([]any); ok { // a list of texts, perhaps beside one of labels
			names, named := member(v, labelNames).([]any)
			if named && len(names) != len(all) {
				return nil, nil, nil
			}
			for i, text := range all {
				var label any
				if named {
					label = names[i]
				}
				add(label, text)
			}
			break
		}
		for _, m := range v {
			if m.Value != nil { // a reader of columns gives a row every member that any row has
				add(m.Name, m.Value)
			}
		}
	}
	return labels, texts, err
}

// member returns the first member of o that has one of the names, nil if there is none.
func member(o Object, names []string) any {
	for _, name := range names {
		if value, ok := o.Get(name); ok {
			return value
		}
	}
	return nil
}

// ChoiceColumn returns the column of the row that holds its choices and is called choices or options; "" if there is none.
func (row Object) ChoiceColumn() string {
	for _, m := range row {
		if strings.EqualFold(m.Name, "choices") || strings.EqualFold(m.Name, "options") {
			if _, texts, err := Choices(m.Value); err == nil && len(texts) > 1 {
				return m.Name
			}
		}
	}
	return ""
}

// labeled returns choices as lines, each with its label or a letter in front, unless all texts
// begin with it.
func labeled(labels, texts []string) []string {
	lines, unlabeled := make([]string, len(texts)), false // unlabeled: some text does not begin with its label
	for i, text := range texts {
		label := labels[i]
		if label == "" && i < 26 {
			label = string(rune('A' + i))
		}
		rest, ok := strings.CutPrefix(strings.TrimPrefix(text, "("), label)
		unlabeled = unlabeled || !ok || rest == "" || !strings.ContainsRune(").:", rune(rest[0]))
		lines[i] = label + ". " + text
	}
	if unlabeled {
		return lines
	}
	return texts
}

// templateText returns the value of a column as a template shows it: choices with their letters, other lists with
// an element a line, other structures as JSON.
func templateText(column string, value any) string {
	if text, ok := scalar(value); ok {
		return text
	}
	labels, texts, err := Choices(value)
	areChoices := (Object{{column, value}}).ChoiceColumn() != "" || strings.Join(labels, "") != "" // by its name, or by labels
	switch list, isList := value.([]any); {
	case err == nil && areChoices:
		return strings.Join(labeled(labels, texts), "\n")
	case isList:
		lines := make([]string, len(list))
		for i, x := range list {
			lines[i] = templateText("", x) // an element has no column
		}
		return strings.Join(lines, "\n")
	}
	return string(appendJSON(nil, value))
}

// withChoices puts the choices behind a problem that does not have them yet. Each is a line as "A. text".
func withChoices(problem string, choices []string) string {
	has := func(choice string) bool { // its text stands somewhere right behind its label
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
