package jinja

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// globals are the functions that every template has: those of jinja2 and those that transformers adds.
var globals = map[string]Value{
	"range":     global("range", makeRange),
	"namespace": global("namespace", makeNamespace),
	"dict":      global("dict", func(r *run, a arguments) Value { return r.makeDict(a) }),
	"cycler":    unsupported("cycler"),
	"joiner":    unsupported("joiner"),
	"lipsum":    unsupported("lipsum"),
	"raise_exception": global("raise_exception", func(r *run, a arguments) Value {
		r.fail("%s", r.str(a.bind(r, "raise_exception", 1, "message")[0]))
		return nil
	}),
	"strftime_now": global("strftime_now", func(r *run, a arguments) Value {
		return r.strftime(time.Now(), r.textOr(a.bind(r, "strftime_now", 1, "format")[0], ""))
	}),
}

func global(name string, call func(r *run, a arguments) Value) Value {
	return &function{name, func(r *run, a arguments) Value {
		r.payCall("function", name, nil, a)
		return call(r, a)
	}}
}

func unsupported(name string) Value {
	return &function{name, func(r *run, _ arguments) Value {
		r.fail("the function %s is not supported", quote(name))
		return nil
	}}
}

// makeRange is range(stop) or range(start, stop, step), at most maxRange numbers.
func makeRange(r *run, a arguments) Value {
	r.failIf(len(a.names) > 0 || len(a.positional) == 0 || len(a.positional) > 3, "want range(stop) or range(start, stop, step)")
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
	r.failIf(step == 0, "range() arg 3 must not be zero")
	wide := float64(stop) - float64(start)
	n := 0
	if wide/float64(step) > 0 {
		if wide/float64(step) > maxRange {
			r.fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
		}
		n = (stop - start + step - cmp.Compare(step, 0)) / step // rounded up
	}
	r.spend(elementCost * n)
	v := &view{kind: "range", elements: make([]Value, n), text: fmt.Sprintf("range(%d, %d", start, start+n*step)}
	for i := range v.elements {
		v.elements[i] = start + i*step
	}
	if step != 1 {
		v.text += fmt.Sprintf(", %d", step)
	}
	v.text += ")"
	return v
}

// makeDict is dict(name=value).
func (r *run) makeDict(a arguments) *Dict {
	d := NewDict()
	r.failIf(len(a.positional) > 0, "a dict or a namespace that is made of another value is not supported")
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

// strftime is datetime.strftime of Python in the C locale.
func (r *run) strftime(now time.Time, format string) string {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // without leading zeros
		if plain {
			i++
		}
		layout, ok := layouts[format[i]]
		part := now.Format(layout)
		if format[i] == '%' {
			part, ok = "%", true
		}
		r.failIf(!ok, "strftime_now: %%%c is not supported", format[i])
		if plain && len(part) > 1 {
			part = strings.TrimLeft(part[:len(part)-1], "0 ") + part[len(part)-1:] // 00 becomes 0
		}
		out.WriteString(part)
	}
	return out.String()
}

// layouts are the directives that are supported; strftime_now has no zone.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'F': "2006-01-02", 'T': "15:04:05", 'z': "", 'Z': "",
}
