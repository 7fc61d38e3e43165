package jinja

import "strings"

// A scope has the names that are set in a part of the template, and the scope around.
type scope struct {
	names  map[string]Value
	around *scope
}

func (s *scope) get(name string) (Value, bool) {
	for ; s != nil; s = s.around {
		if v, ok := s.names[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (s *scope) set(name string, v Value) {
	if s.names == nil {
		s.names = map[string]Value{}
	}
	s.names[name] = v
}

// step spends what an expression at a line costs.
func (r *run) step(line int) {
	r.line = line
	r.spend(stepCost)
}

func (e *constant) eval(*run, *scope) Value { return e.value }

func (e *name) eval(r *run, s *scope) Value {
	r.step(e.line)
	if v, ok := s.get(e.id); ok {
		return v
	}
	return &undefined{quote(e.id) + " is undefined"}
}

func evalAll(r *run, s *scope, all []expr) []Value {
	r.spend(elementCost * (len(all) + 1))
	values := make([]Value, len(all))
	for i, e := range all {
		values[i] = e.eval(r, s)
	}
	return values
}

func (e *listExpr) eval(r *run, s *scope) Value { return List(evalAll(r, s, e.elements)) }

func (e *tupleExpr) eval(r *run, s *scope) Value { return Tuple(evalAll(r, s, e.elements)) }

func (e *dictExpr) eval(r *run, s *scope) Value {
	r.spend(2 * elementCost * (len(e.keys) + 1))
	d := NewDict()
	for i := range e.keys {
		key := e.keys[i].eval(r, s)
		value := e.values[i].eval(r, s)
		r.line = e.line
		r.setKey(d, key, value)
	}
	return d
}

func (r *run) setKey(d *Dict, key, value Value) {
	r.key(key)
	d.Set(key, value)
}

func (e *attribute) eval(r *run, s *scope) Value {
	of := e.of.eval(r, s)
	r.step(e.line)
	return r.attribute(of, e.name)
}

func (e *item) eval(r *run, s *scope) Value {
	of := e.of.eval(r, s)
	key := e.key.eval(r, s)
	r.step(e.line)
	return r.item(of, key)
}

func (e *slice) eval(r *run, s *scope) Value {
	of := e.of.eval(r, s)
	bounds := make([]Value, 3)
	for i, b := range []expr{e.start, e.stop, e.step} {
		if b != nil {
			bounds[i] = b.eval(r, s)
		}
	}
	r.step(e.line)
	return r.slice(of, bounds)
}

func (e *unary) eval(r *run, s *scope) Value {
	v := e.of.eval(r, s)
	r.step(e.line)
	r.pay("operator", "unary", v)
	if e.op == "not" {
		return !truth(v)
	}
	return r.signed(e.op, v)
}

func (e *binary) eval(r *run, s *scope) Value {
	left := e.left.eval(r, s)
	switch e.op {
	case "and":
		if !truth(left) {
			return left
		}
		return e.right.eval(r, s)
	case "or":
		if truth(left) {
			return left
		}
		return e.right.eval(r, s)
	}
	right := e.right.eval(r, s)
	r.step(e.line)
	return r.arithmetic(e.op, left, right)
}

func (e *concat) eval(r *run, s *scope) Value {
	var out strings.Builder
	for _, v := range evalAll(r, s, e.parts) {
		t := r.str(v)
		r.pay("operator", "~", t)
		out.WriteString(t)
	}
	return out.String()
}

func (e *compare) eval(r *run, s *scope) Value {
	left := e.first.eval(r, s)
	for i, op := range e.ops {
		right := e.rest[i].eval(r, s)
		r.step(e.line)
		if !r.compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (e *conditional) eval(r *run, s *scope) Value {
	switch {
	case truth(e.test.eval(r, s)):
		return e.yes.eval(r, s)
	case e.no != nil:
		return e.no.eval(r, s)
	}
	return &undefined{"the inline if-expression evaluated to false and no else section was defined"}
}

func (e *call) eval(r *run, s *scope) Value {
	f := e.of.eval(r, s)
	a := e.args.eval(r, s)
	r.step(e.line)
	return r.call(f, a)
}

func (e *filterExpr) eval(r *run, s *scope) Value {
	v := e.of.eval(r, s)
	a := e.args.eval(r, s)
	r.step(e.line)
	return r.filter(e.name, v, a)
}

func (e *testExpr) eval(r *run, s *scope) Value {
	v := e.of.eval(r, s)
	a := e.args.eval(r, s)
	r.step(e.line)
	return r.test(e.name, v, a)
}
