package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// A parser makes a tree of tokens, by the grammar of jinja2.
type parser struct {
	tokens []token
	depth  int
	loops  int  // number of for statements around this place, within the enclosing macro
	marks  bool // a generation statement was used
	macros int  // number of macro statements around this place
}

// Parse reads a template. Its errors name the line.
func Parse(source string) (t *Template, err error) {
	defer catch(&err)
	failIf(len(source) > maxTemplate, 1, "the template is longer than %d bytes", maxTemplate)
	p := &parser{tokens: lex(source)}
	body := p.statements()
	if p.peek().kind != kindEOF {
		fail(p.peek().line, "unexpected %q outside of a block", p.tokens[1].text)
	}
	return &Template{body, p.marks}, nil
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != kindEOF {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) isOp(op string) bool { return p.peek().kind == kind(op) }

func (p *parser) isName(names ...string) bool {
	return p.peek().kind == kindName && slices.Contains(names, p.peek().text)
}

// acceptOp moves past an operator if it is next.
func (p *parser) acceptOp(op string) bool { return p.accept(p.isOp(op)) }

func (p *parser) acceptName(name string) bool { return p.accept(p.isName(name)) }

// accept moves past the next token if it is the wanted one.
func (p *parser) accept(found bool) bool {
	if found {
		p.next()
	}
	return found
}

func (p *parser) expect(k kind) token {
	t := p.peek()
	if t.kind != k {
		fail(t.line, "found %s, want %s", t, describe(k))
	}
	return p.next()
}

// String describes a token for messages.
func (t token) String() string {
	switch t.kind {
	case kindName, kindNumber:
		return fmt.Sprintf("%q", t.text)
	}
	return describe(t.kind)
}

func describe(k kind) string {
	if strings.ContainsAny(string(k), "abcdefghijklmnopqrstuvwxyz") {
		return string(k)
	}
	return fmt.Sprintf("%q", string(k))
}

// nest counts how deep the parser is in the grammar; the returned function undoes it.
func (p *parser) nest() func() {
	p.depth++
	failIf(p.depth > maxNesting, p.peek().line, "nested deeper than %d", maxNesting)
	return func() { p.depth-- }
}

// statements reads up to a tag that begins with one of the names in ends, without the name; or to the end of the
// template if there are no names.
func (p *parser) statements(ends ...string) []stmt {
	defer p.nest()()
	var body []stmt
	for {
		t := p.peek()
		switch t.kind {
		case kindData:
			p.next()
			body = append(body, printed(constant(t.text), t.line))
		case kindVarBegin:
			p.next()
			body = append(body, printed(p.tuple(p.expression), t.line))
			p.expect(kindVarEnd)
		case kindBlockBegin:
			if len(p.tokens) > 1 && p.tokens[1].kind == kindName && slices.Contains(ends, p.tokens[1].text) {
				p.next() // the {%; the caller reads the name
				return body
			}
			p.next()
			body = append(body, p.statement(ends))
			p.expect(kindBlockEnd)
		default:
			failIf(len(ends) > 0, t.line, "the template ends where %s is missing", strings.Join(ends, " or "))
			return body
		}
	}
}

// printed writes the value of an expression.
func printed(of expr, line int) stmt {
	return func(r *run, s *scope) flow {
		v := of(r, s)
		r.payStep(line)
		r.write(r.str(v))
		return flowNext
	}
}

// body reads the statements after the tag that is open up to the end tag, and its name, which it returns.
func (p *parser) body(ends ...string) (body []stmt, end string) {
	p.acceptOp(":")
	p.expect(kindBlockEnd)
	body = p.statements(ends...)
	return body, p.next().text
}

// statement reads a statement after its {%; ends are the tags that would end the body around it, for a message.
func (p *parser) statement(ends []string) stmt {
	t := p.expect(kindName)
	switch t.text {
	case "if":
		return p.ifStmt()
	case "for":
		return p.forStmt(t.line)
	case "set":
		return p.setStmt(t.line)
	case "macro":
		return p.macro()
	case "generation": // of transformers: it marks what an assistant writes
		body, _ := p.body("endgeneration")
		p.marks = true
		return func(r *run, s *scope) flow {
			start := r.out.Len()
			f := r.body(&scope{around: s}, body)
			if r.captures == 0 { // captured text is not marked: it may go anywhere
				r.marks = append(r.marks, Mark{start, r.out.Len()})
			}
			return f
		}
	case "break", "continue":
		failIf(p.loops == 0, t.line, "%s outside of a loop", t.text)
		to := map[string]flow{"break": flowBreak, "continue": flowContinue}[t.text]
		return func(*run, *scope) flow { return to }
	case "include", "import", "from", "extends":
		fail(t.line, "%s is not supported: a chat template is one file", t.text)
	case "with":
		return p.withStmt(t.line)
	case "filter":
		filtered := p.filteredBlock(t.line, "endfilter")
		return printed(filtered, t.line)
	case "call", "print", "block", "autoescape":
		fail(t.line, "%s is not supported: no published chat template has it", t.text)
	}
	failIf(len(ends) > 0, t.line, "unknown tag %q; want %s", t.text, strings.Join(ends, " or "))
	fail(t.line, "unknown tag %q", t.text)
	return nil
}

// ifStmt reads the rest of {% if TEST %}BODY, its elif and else parts, up to endif.
func (p *parser) ifStmt() stmt {
	var tests []expr
	var bodies [][]stmt // one more than tests, if there is an else
	for end := "elif"; end != "endif"; {
		if end == "elif" {
			tests = append(tests, p.tuple(p.unconditional))
		}
		var body []stmt
		if end == "else" {
			body, end = p.body("endif")
		} else {
			body, end = p.body("elif", "else", "endif")
		}
		bodies = append(bodies, body)
	}
	return func(r *run, s *scope) flow {
		r.spend(stepCost)
		for n, body := range bodies {
			if n == len(tests) || truth(tests[n](r, s)) {
				return r.body(s, body)
			}
		}
		return flowNext
	}
}

// forStmt reads the rest of {% for TARGET in VALUE if TEST %}BODY{% else %}LAST{% endfor %}.
func (p *parser) forStmt(line int) stmt {
	s := &forStmt{line: line, target: p.target("in")}
	failIf(!p.acceptName("in"), p.peek().line, "found %s, want in", p.peek())
	s.over = p.tuple(p.unconditional)
	if p.acceptName("if") {
		s.test = p.expression()
	}
	failIf(p.isName("recursive"), line, "a recursive loop is not supported: no published chat template has one")
	p.loops++
	body, end := p.body("endfor", "else")
	p.loops--
	s.body = body
	if end == "else" {
		s.last, _ = p.body("endfor")
	}
	return s.exec
}

// setStmt reads the rest of {% set x = VALUE %}, of {% set x %}BODY{% endset %} or of
// {% set x | FILTERS %}BODY{% endset %}.
func (p *parser) setStmt(line int) stmt {
	target := p.target()
	var value expr
	switch {
	case p.acceptOp("="):
		value = p.tuple(p.expression)
	case p.acceptOp("|"):
		value = p.filteredBlock(line, "endset")
	default:
		body, _ := p.body("endset")
		value = func(r *run, s *scope) Value { return r.capture(&scope{around: s}, body) }
	}
	return func(r *run, s *scope) flow {
		v := value(r, s)
		r.payStep(line)
		target(r, s, v)
		return flowNext
	}
}

// filteredBlock reads filters and the body whose text they get, up to its end.
func (p *parser) filteredBlock(line int, end string) expr {
	var body []stmt
	filtered := p.filter(func(r *run, s *scope) Value { return r.capture(&scope{around: s}, body) })
	for p.acceptOp("|") {
		filtered = p.filter(filtered)
	}
	body, _ = p.body(end)
	return filtered
}

// withStmt reads names with values, and the body that sees them.
func (p *parser) withStmt(line int) stmt {
	var targets []target
	var values []expr
	for p.peek().kind != kindBlockEnd {
		if len(targets) > 0 {
			p.expect(",")
		}
		targets = append(targets, p.primaryTarget())
		p.expect("=")
		values = append(values, p.expression())
	}
	body, _ := p.body("endwith")
	return func(r *run, s *scope) flow {
		r.payStep(line)
		inner := &scope{around: s}
		for i, v := range evalAll(r, s, values) {
			targets[i](r, inner, v)
		}
		return r.body(inner, body)
	}
}

// target reads the left side of set or for: names, attributes of namespaces, and tuples
// of them, up to one of the names in ends.
func (p *parser) target(ends ...string) target {
	defer p.nest()()
	line := p.peek().line
	var parts []target
	isTuple := false
	for {
		if p.atTupleEnd(ends) || p.isOp("=") {
			break
		}
		parts = append(parts, p.primaryTarget())
		if !p.acceptOp(",") {
			break
		}
		isTuple = true
	}
	switch {
	case isTuple:
		return func(r *run, s *scope, v Value) {
			r.failIfUndefined(v)
			values := r.list(v)
			if len(values) != len(parts) {
				r.fail("%d values for %d names", len(values), len(parts))
			}
			for i, part := range parts {
				part(r, s, values[i])
			}
		}
	case len(parts) == 1:
		return parts[0]
	}
	fail(line, "found %s, want a name", p.peek())
	return nil
}

// primaryTarget reads one name, an attribute of a namespace, or a tuple in parentheses.
func (p *parser) primaryTarget() target {
	if p.acceptOp("(") {
		t := p.target()
		p.expect(")")
		return t
	}
	t := p.expect(kindName)
	if p.acceptOp(".") {
		attribute := p.expect(kindName).text
		return func(r *run, s *scope, v Value) {
			held, _ := s.get(t.text)
			ns, ok := held.(*namespace)
			if !ok {
				r.fail("cannot assign attribute on non-namespace object %s", quote(t.text))
			}
			r.checkAttribute(attribute)
			ns.attributes.Set(attribute, v)
		}
	}
	failIf(slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, t.text), t.line, "%s cannot be set", t.text)
	return func(_ *run, s *scope, v Value) { s.set(t.text, v) }
}

// macro reads the name, parameters and body of a macro; running the statement sets that name.
func (p *parser) macro() stmt {
	m := macro{name: p.expect(kindName).text}
	p.expect("(")
	for !p.isOp(")") {
		if len(m.params) > 0 {
			p.expect(",")
		}
		param := p.expect(kindName)
		m.params = append(m.params, param.text)
		if p.acceptOp("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			fail(param.line, "the parameter %q has no default, but one before it has", param.text)
		}
	}
	p.expect(")")
	loops := p.loops
	p.loops = 0 // break in the macro does not leave a loop around it
	p.macros++
	m.body, _ = p.body("endmacro")
	p.macros--
	p.loops = loops
	return func(_ *run, s *scope) flow {
		made := m
		made.around = s
		s.set(m.name, &made)
		return flowNext
	}
}
