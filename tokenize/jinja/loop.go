package jinja

// A loop is the value of loop inside a for statement.
type loop struct {
	next                   func() (Value, bool)
	index                  int
	before, current, after Value
	peeked, hasNext        bool  // whether after has been read; whether it exists
	lastChanged            Value // the arguments of the last loop.changed, nil if there was none
}

// A forStmt is a for statement.
type forStmt struct {
	target     target
	over, test expr   // test is nil if there is none
	body, last []stmt // last is the body of else
	line       int
}

// exec runs the body for each element that passes the test, or f.last, the else part, if no element does.
func (f *forStmt) exec(r *run, s *scope) flow {
	over := f.over(r, s)
	r.payStep(f.line)
	next := r.iter(over)
	l := &loop{next: next, index: -1}
	if f.test != nil {
		l.next = func() (Value, bool) {
			for {
				v, ok := next()
				if !ok {
					return nil, false
				}
				inner := &scope{around: s}
				r.payStep(f.line)
				f.target(r, inner, v)
				if truth(f.test(r, inner)) {
					return v, true
				}
			}
		}
	}
	for l.advance() {
		r.payStep(f.line)
		inner := &scope{around: s}
		inner.set("loop", l)
		f.target(r, inner, l.current)
		if r.body(inner, f.body) == flowBreak {
			return flowNext
		}
	}
	if l.index < 0 {
		r.body(&scope{around: s}, f.last)
	}
	return flowNext
}

// advance moves to the next element.
func (l *loop) advance() bool {
	l.peek()
	if !l.hasNext {
		return false
	}
	l.index++
	l.before, l.current = l.current, l.after
	l.after, l.peeked = nil, false
	return true
}

// peek reads the element after the current one.
func (l *loop) peek() {
	if !l.peeked {
		l.after, l.hasNext = l.next()
		l.peeked = true
	}
}

// length counts the elements, and reads the remaining ones.
func (l *loop) length(r *run) int {
	var rest List
	for l.peek(); l.hasNext; l.peek() {
		r.spend(elementCost)
		rest, l.peeked = append(rest, l.after), false
	}
	l.next, l.peeked = fromSlice(rest), false
	return l.index + 1 + len(rest)
}

// attribute returns what a template calls loop.NAME; ok is false if loops have no such attribute.
func (l *loop) attribute(r *run, name string) (v Value, ok bool) {
	switch name {
	case "cycle":
		return &function{name, func(r *run, a arguments) Value {
			r.failIf(len(a.positional) == 0, "no items for cycling given")
			return a.positional[l.index%len(a.positional)]
		}}, true
	case "changed":
		return &function{name, func(r *run, a arguments) Value {
			last := l.lastChanged
			l.lastChanged = tuple(a.positional)
			return last == nil || !r.equal(last, l.lastChanged, 0)
		}}, true
	case "depth", "depth0": // 1 and 0, as loops do not call themselves
		return map[string]int{"depth": 1}[name], true
	case "length":
		return l.length(r), true
	case "revindex":
		return l.length(r) - l.index, true
	case "revindex0":
		return l.length(r) - l.index - 1, true
	case "index":
		return l.index + 1, true
	case "index0":
		return l.index, true
	case "first":
		return l.index == 0, true
	case "last":
		l.peek()
		return !l.hasNext, true
	case "previtem":
		if l.index == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		l.peek()
		if !l.hasNext {
			return &undefined{"there is no next item"}, true
		}
		return l.after, true
	}
	return nil, false
}
