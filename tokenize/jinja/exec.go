package jinja

import "strings"

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	body  []stmt
	marks bool
}

// Marks says whether the template has generation statements, which mark what an
// assistant writes.
func (t *Template) Marks() bool { return t.marks }

// A Mark is what a generation statement has written: its bytes in the text.
type Mark struct{ Start, End int }

// A run is one rendering.
type run struct {
	out   *strings.Builder
	marks []Mark
	inner int // texts that are captured around this place
	line  int // of what is computed
	left  int // of the budget
	calls int // of macros inside each other
}

// Render returns the text that the template makes of the names in vars, or an *Error.
// A name of vars that is one of the template language's own (range, say) hides it.
func (t *Template) Render(vars *Dict) (text string, err error) {
	text, _, err = t.RenderMarked(vars)
	return text, err
}

// RenderMarked is Render that also returns what its generation statements have
// written, in order. Within a text that a set or a macro captures nothing
// is marked.
func (t *Template) RenderMarked(vars *Dict) (text string, marks []Mark, err error) {
	defer catch(&err)
	s := &scope{around: &scope{names: globals}}
	for key, value := range vars.All() {
		if name, ok := key.(string); ok {
			s.set(name, value)
		}
	}
	r := &run{out: new(strings.Builder), line: 1, left: renderBudget + budgetPerByte*dataSize(vars, 0)}
	r.body(&scope{around: s}, t.body)
	return r.out.String(), r.marks, nil
}

func (r *run) body(s *scope, body []stmt) flow {
	for _, st := range body {
		if f := st.exec(r, s); f != flowNext {
			return f
		}
	}
	return flowNext
}

// capture returns the text that a body writes.
func (r *run) capture(s *scope, body []stmt) string {
	out := r.out
	r.out = new(strings.Builder)
	r.inner++
	r.body(s, body)
	r.inner--
	text := r.out.String()
	r.out = out
	return text
}

func (r *run) write(text string) {
	r.spend(len(text))
	r.out.WriteString(text)
}

func (d *data) exec(r *run, _ *scope) flow {
	r.step(d.line)
	r.write(d.text)
	return flowNext
}

func (p *print) exec(r *run, s *scope) flow {
	v := p.of.eval(r, s)
	r.step(p.line)
	r.write(r.str(v))
	return flowNext
}

func (i *ifStmt) exec(r *run, s *scope) flow {
	r.spend(stepCost)
	for n, body := range i.bodies {
		if n == len(i.tests) || truth(i.tests[n].eval(r, s)) {
			return r.body(s, body)
		}
	}
	return flowNext
}

func (st *setStmt) exec(r *run, s *scope) flow {
	v := st.value.eval(r, s)
	r.step(st.line)
	r.assign(s, st.target, v)
	return flowNext
}

func (st *setBlock) exec(r *run, s *scope) flow {
	v := r.capture(&scope{around: s}, st.body)
	r.step(st.line)
	r.assign(s, st.target, v)
	return flowNext
}

// assign sets a name, an attribute of a namespace, or the parts of a tuple.
func (r *run) assign(s *scope, target expr, v Value) {
	switch t := target.(type) {
	case *name:
		s.set(t.id, v)
	case *nsTarget:
		held, _ := s.get(t.name)
		ns, ok := held.(*namespace)
		if !ok {
			r.fail("cannot assign attribute on non-namespace object %s", quote(t.name))
		}
		r.checkAttribute(t.attribute)
		ns.attributes.Set(t.attribute, v)
	case *tupleExpr:
		r.use(v)
		values := r.list(v)
		if len(values) != len(t.elements) {
			r.fail("%d values for %d names", len(values), len(t.elements))
		}
		for i, part := range t.elements {
			r.assign(s, part, values[i])
		}
	}
}

// checkAttribute refuses names that transformers keeps from namespaces.
func (r *run) checkAttribute(name string) {
	if strings.HasPrefix(name, "_") {
		r.fail("a namespace cannot have the attribute %s, which begins with an underscore", quote(name))
	}
}

func (m *macroStmt) exec(_ *run, s *scope) flow {
	s.set(m.name, &macro{m, s})
	return flowNext
}

func (m *marked) exec(r *run, s *scope) flow {
	start := r.out.Len()
	f := r.body(&scope{around: s}, m.body)
	if r.inner == 0 {
		r.marks = append(r.marks, Mark{start, r.out.Len()})
	}
	return f
}

func (j *jump) exec(*run, *scope) flow { return j.flow }
