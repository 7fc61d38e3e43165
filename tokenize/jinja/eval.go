package jinja

// An expr computes the value of an expression of a template.
type expr func(r *run, s *scope) Value

// A stmt executes a statement, or writes text.
type stmt func(r *run, s *scope) flow

// A target sets the left side of an assignment.
type target func(r *run, s *scope, v Value)

// A flow says how a statement ended.
type flow int

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

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

// payStep spends the cost of an expression at a line, which errors name from here on.
func (r *run) payStep(line int) {
	r.line = line
	r.spend(stepCost)
}

func evalAll(r *run, s *scope, all []expr) []Value {
	r.spend(elementCost * (len(all) + 1))
	values := make([]Value, len(all))
	for i, e := range all {
		values[i] = e(r, s)
	}
	return values
}

func constant(v Value) expr { return func(*run, *scope) Value { return v } }

func tupleOf(elements []expr) expr {
	return func(r *run, s *scope) Value { return tuple(evalAll(r, s, elements)) }
}

// unary is op v, the operator being not, - or +.
func unary(op string, of expr, line int) expr {
	return func(r *run, s *scope) Value {
		v := of(r, s)
		r.payStep(line)
		r.pay("operator", "unary", v)
		if op == "not" {
			return !truth(v)
		}
		return r.signed(op, v)
	}
}
