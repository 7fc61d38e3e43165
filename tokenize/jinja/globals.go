package jinja

import (
	"fmt"
	"strings"
	"time"
)

// globals are the functions that every template has: those of jinja2 and those that
// transformers adds.
var globals = map[string]Value{
	"range":     &function{"range", makeRange},
	"namespace": &function{"namespace", makeNamespace},
	"dict":      &function{"dict", func(r *run, a arguments) Value { return r.makeDict(a) }},
	"cycler":    &function{"cycler", makeCycler},
	"joiner":    &function{"joiner", makeJoiner},
	"lipsum": &function{"lipsum", func(r *run, _ arguments) Value {
		r.fail("lipsum is not supported: it makes text by chance")
		return nil
	}},
	"raise_exception": &function{"raise_exception", func(r *run, a arguments) Value {
		r.fail("%s", r.str(a.bind(r, "raise_exception", 1, "message")[0]))
		return nil
	}},
	"strftime_now": &function{"strftime_now", func(r *run, a arguments) Value {
		return r.strftime(time.Now(), r.textOr(a.bind(r, "strftime_now", 1, "format")[0], ""))
	}},
}

func makeRange(r *run, a arguments) Value {
	if len(a.names) > 0 || len(a.positional) == 0 || len(a.positional) > 3 {
		r.fail("want range(stop) or range(start, stop, step)")
	}
	bounds := []int{0, 0, 1}
	if len(a.positional) == 1 {
		bounds[1] = r.intOr(a.positional[0], 0)
	}
	for i, v := range a.positional {
		if len(a.positional) > 1 {
			bounds[i] = r.intOr(v, 0)
		}
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		r.fail("range() arg 3 must not be zero")
	}
	wide := float64(stop) - float64(start)
	n := 0
	if wide/float64(step) > 0 {
		if wide/float64(step) > maxRange {
			r.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
		}
		n = (stop - start + step - sign(step)) / step
	}
	return span{start, step, n}
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// makeDict is dict(pairs, name=value).
func (r *run) makeDict(a arguments) *Dict {
	d := NewDict()
	if len(a.positional) > 1 {
		r.fail("dict expected at most 1 argument, got %d", len(a.positional))
	}
	for _, v := range a.positional {
		if from, ok := v.(*Dict); ok {
			r.spend(2 * elementCost * from.Len())
			d = from.Clone()
			continue
		}
		for pair := range r.elements(v) {
			both := r.list(pair)
			if len(both) != 2 {
				r.fail("dict wants pairs, not %d values", len(both))
			}
			r.setKey(d, both[0], both[1])
		}
	}
	for i, name := range a.names {
		d.Set(name, a.named[i])
	}
	return d
}

func makeNamespace(r *run, a arguments) Value {
	d := r.makeDict(a)
	for key := range d.All() {
		r.checkAttribute(r.str(key))
	}
	return &namespace{d}
}

// A cycler gives its items in turn.
type cycler struct {
	items []Value
	at    int
}

func makeCycler(r *run, a arguments) Value {
	if len(a.positional) == 0 {
		r.fail("at least one item has to be provided")
	}
	return &cycler{items: a.positional}
}

func (c *cycler) attribute(name string) (Value, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next", "reset":
		return &function{name, func(*run, arguments) Value {
			if name == "reset" {
				c.at = 0
				return nil
			}
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}}, true
	}
	return nil, false
}

// makeJoiner returns a function that returns nothing at first, then the separator.
func makeJoiner(r *run, a arguments) Value {
	sep := r.textOr(a.bind(r, "joiner", 0, "sep")[0], ", ")
	used := false
	return &function{"joiner", func(*run, arguments) Value {
		if !used {
			used = true
			return ""
		}
		return sep
	}}
}

// strftime is datetime.strftime of Python in the C locale.
func (r *run) strftime(now time.Time, format string) string {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // no zeros in front
		if plain {
			i++
		}
		part, ok := directive(now, format[i])
		if !ok {
			r.fail("strftime_now: %%%c is not supported", format[i])
		}
		if plain && len(part) > 1 {
			part = strings.TrimLeft(part[:len(part)-1], "0 ") + part[len(part)-1:]
		}
		out.WriteString(part)
	}
	return out.String()
}

// layouts are the directives that package time can write.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

func directive(now time.Time, c byte) (string, bool) {
	if layout, ok := layouts[c]; ok {
		return now.Format(layout), true
	}
	weekday, day := int(now.Weekday()), now.YearDay()-1
	switch c {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'f':
		return fmt.Sprintf("%06d", now.Nanosecond()/1000), true
	case 'w':
		return fmt.Sprint(weekday), true
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'U':
		return fmt.Sprintf("%02d", (day+7-weekday)/7), true
	case 'W':
		return fmt.Sprintf("%02d", (day+7-(weekday+6)%7)/7), true
	case 'V', 'G':
		year, week := now.ISOWeek()
		if c == 'G' {
			return fmt.Sprint(year), true
		}
		return fmt.Sprintf("%02d", week), true
	case 's':
		return fmt.Sprint(now.Unix()), true
	case 'z', 'Z': // the time of strftime_now has no zone
		return "", true
	}
	return "", false
}
