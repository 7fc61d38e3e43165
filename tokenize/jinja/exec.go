package jinja

import "strings"

// A Template is a parsed template. It is safe for concurrent use.
type Template struct {
	body  []stmt
	marks bool
}

// Marks says whether the template has generation statements, which mark what an assistant writes.
func (t *Template) Marks() bool { return t.marks }

// A Mark is the range of bytes that a generation statement wrote in the text.
type Mark struct{ Start, End int }

// A run is one rendering.
type run struct {
	out      *strings.Builder
	marks    []Mark
	captures int // number of captures around the current place
	line     int // line of the current expression
	budget   int // what is left of the budget
	calls    int // number of nested macro calls
}

// Render returns the text that the template makes of the names in vars, or an error with the line.
// A name of vars that is one of the template language's own (range, say) hides it.
func (t *Template) Render(vars *Dict) (text string, err error) {
	text, _, err = t.RenderMarked(vars)
	return text, err
}

// RenderMarked is Render that also returns what its generation statements have written,
// in order. Text that a set or a macro captures is not marked.
func (t *Template) RenderMarked(vars *Dict) (text string, marks []Mark, err error) {
	defer catch(&err)
	s := &scope{around: &scope{names: globals}}
	for key, value := range vars.All() {
		if name, ok := key.(string); ok {
			s.set(name, value)
		}
	}
	r := &run{out: new(strings.Builder), line: 1, budget: renderBudget + budgetPerByte*dataSize(vars, 0)}
	r.body(&scope{around: s}, t.body)
	return r.out.String(), r.marks, nil
}

func (r *run) body(s *scope, body []stmt) flow {
	for _, st := range body {
		if f := st(r, s); f != flowNext {
			return f
		}
	}
	return flowNext
}

// capture returns the text that a body writes.
func (r *run) capture(s *scope, body []stmt) string {
	out := r.out
	r.out = new(strings.Builder)
	r.captures++
	r.body(s, body)
	r.captures--
	text := r.out.String()
	r.out = out
	return text
}

func (r *run) write(text string) {
	r.spend(len(text))
	r.out.WriteString(text)
}

// checkAttribute refuses names that transformers does not allow in namespaces.
func (r *run) checkAttribute(name string) {
	if strings.HasPrefix(name, "_") {
		r.fail("a namespace cannot have the attribute %s, which begins with an underscore", quote(name))
	}
}
