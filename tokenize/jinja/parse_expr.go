package jinja

import (
	"slices"
	"strings"
)

// Expressions, beginning with the operators that bind least.

// unconditional reads an expression before an if that is not part of it: for x in LIST if TEST.
func (p *parser) unconditional() expr {
	defer p.nest()()
	return p.or()
}

// expression reads an expression, which may be YES if TEST else NO.
func (p *parser) expression() expr {
	defer p.nest()()
	e := p.or()
	for p.acceptName("if") {
		test, yes, no := p.or(), e, constant(&undefined{"the inline if-expression evaluated to false and no else section was defined"})
		if p.acceptName("else") {
			no = p.expression()
		}
		e = func(r *run, s *scope) Value {
			if truth(test(r, s)) {
				return yes(r, s)
			}
			return no(r, s)
		}
	}
	return e
}

func (p *parser) or() expr { return p.logic("or", true, p.and) }

func (p *parser) and() expr { return p.logic("and", false, p.not) }

// logic reads operands joined by "and" or "or"; the value is the first operand that decides, or the last one.
func (p *parser) logic(name string, decides bool, operand func() expr) expr {
	e := operand()
	for p.acceptName(name) {
		left, right := e, operand()
		e = func(r *run, s *scope) Value {
			if v := left(r, s); truth(v) == decides {
				return v
			}
			return right(r, s)
		}
	}
	return e
}

func (p *parser) not() expr {
	if p.isName("not") {
		defer p.nest()()
		line := p.next().line
		return unary("not", p.not(), line)
	}
	return p.comparison()
}

// comparison reads a chain such as a < b in c: every neighbouring pair must hold, and each operand is computed once.
func (p *parser) comparison() expr {
	line, first := p.peek().line, p.sum()
	var ops []string
	var rest []expr
	for {
		switch t := p.peek(); {
		case slices.Contains([]kind{"==", "!=", "<", "<=", ">", ">="}, t.kind), p.isName("in"):
			ops = append(ops, p.next().text)
		case p.isName("not") && p.tokens[1].kind == kindName && p.tokens[1].text == "in":
			p.next()
			p.next()
			ops = append(ops, "not in")
		case len(ops) == 0:
			return first
		default: // the chain has ended
			return func(r *run, s *scope) Value {
				left := first(r, s)
				for i, op := range ops {
					right := rest[i](r, s)
					r.payStep(line)
					if !r.compare(op, left, right) {
						return false
					}
					left = right
				}
				return true
			}
		}
		rest = append(rest, p.sum())
	}
}

// operation reads operands with the operators between, which group from the left.
func (p *parser) operation(operand func() expr, ops ...kind) expr {
	e := operand()
	for slices.Contains(ops, p.peek().kind) {
		op := p.next()
		left, right := e, operand()
		e = func(r *run, s *scope) Value {
			a, b := left(r, s), right(r, s)
			r.payStep(op.line)
			return r.arithmetic(op.text, a, b)
		}
	}
	return e
}

func (p *parser) sum() expr { return p.operation(p.concat, "+", "-") }

// concat reads operands joined by ~, whose texts it puts together.
func (p *parser) concat() expr {
	parts := []expr{p.product()}
	for p.acceptOp("~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return func(r *run, s *scope) Value {
		var out strings.Builder
		for _, v := range evalAll(r, s, parts) {
			t := r.str(v)
			r.pay("operator", "~", t)
			out.WriteString(t)
		}
		return out.String()
	}
}

func (p *parser) product() expr {
	e := p.operation(func() expr { return p.unary(true) }, "*", "/", "//", "%")
	t := p.peek()
	failIf(t.kind == "**", t.line, "the operator ** is not supported: no published chat template has it")
	return e
}

// unary reads a value with its signs. withFilters says whether filters, tests and calls behind
// it belong to it: in -x|abs they belong to -x, not to x.
func (p *parser) unary(withFilters bool) expr {
	defer p.nest()()
	var e expr
	if t := p.peek(); t.kind == "-" || t.kind == "+" {
		p.next()
		e = unary(string(t.kind), p.unary(false), t.line)
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if !withFilters {
		return e
	}
	for {
		switch {
		case p.acceptOp("|"):
			e = p.filter(e)
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// primary reads a name, a literal, or what stands in brackets.
func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case kindName:
		switch t.text {
		case "true", "True":
			return constant(true)
		case "false", "False":
			return constant(false)
		case "none", "None":
			return constant(nil)
		}
		failIf(p.macros > 0 && slices.Contains([]string{"caller", "kwargs", "varargs"}, t.text), t.line,
			"%s in a macro is not supported: no published chat template has it", t.text)
		return func(r *run, s *scope) Value {
			r.payStep(t.line)
			if v, ok := s.get(t.text); ok {
				return v
			}
			return &undefined{quote(t.text) + " is undefined"}
		}
	case kindString:
		s := t.text
		for p.peek().kind == kindString {
			s += p.next().text
		}
		return constant(s)
	case kindNumber:
		return constant(t.value)
	case "(":
		e := tupleOf(nil)
		if !p.atTupleEnd(nil) {
			e = p.tuple(p.expression)
		}
		p.expect(")")
		return e
	case "[":
		var elements []expr
		p.separated("]", func() { elements = append(elements, p.expression()) })
		return func(r *run, s *scope) Value { return List(evalAll(r, s, elements)) }
	case "{":
		return p.dict(t.line)
	}
	fail(t.line, "unexpected %s", t)
	return nil
}

// dict reads a dictionary whose { was read.
func (p *parser) dict(line int) expr {
	var keys, values []expr
	p.separated("}", func() {
		keys = append(keys, p.expression())
		p.expect(":")
		values = append(values, p.expression())
	})
	return func(r *run, s *scope) Value {
		r.spend(2 * elementCost * (len(keys) + 1))
		d := NewDict()
		for i := range keys {
			key, value := keys[i](r, s), values[i](r, s)
			r.line = line
			r.checkKey(key)
			d.Set(key, value)
		}
		return d
	}
}

// separated calls each for every element between commas, up to end, which it also reads.
func (p *parser) separated(end kind, each func()) {
	for first := true; p.peek().kind != end; first = false {
		if !first {
			p.expect(",")
			if p.peek().kind == end {
				break
			}
		}
		each()
	}
	p.next()
}

func (p *parser) atTupleEnd(ends []string) bool {
	k := p.peek().kind
	return k == kindVarEnd || k == kindBlockEnd || k == ")" || p.isName(ends...)
}

// tuple reads an element, or several with commas between, which are a tuple.
func (p *parser) tuple(element func() expr) expr {
	var parts []expr
	isTuple := false
	for !p.atTupleEnd(nil) {
		parts = append(parts, element())
		if !p.acceptOp(",") {
			break
		}
		isTuple = true
	}
	switch {
	case !isTuple && len(parts) == 1:
		return parts[0]
	case !isTuple:
		fail(p.peek().line, "found %s, want an expression", p.peek())
	}
	return tupleOf(parts)
}

// postfix reads attributes, subscripts and calls.
func (p *parser) postfix(e expr) expr {
	for {
		t := p.peek()
		switch t.kind {
		case ".":
			p.next()
			if i, ok := p.peek().value.(int); ok { // a.0 is a[0]
				p.next()
				e = itemOf(e, constant(i), t.line)
				break
			}
			of, name := e, p.expect(kindName).text
			e = func(r *run, s *scope) Value {
				v := of(r, s)
				r.payStep(t.line)
				return r.attribute(v, name)
			}
		case "[":
			e = p.subscript(e)
		case "(":
			e = p.call(e)
		default:
			return e
		}
	}
}

// subscript reads the brackets after an expression: a key, or a slice.
func (p *parser) subscript(of expr) expr {
	line := p.next().line
	part := func() expr {
		if p.isOp(":") || p.isOp("]") {
			return nil
		}
		return p.expression()
	}
	start := part()
	if start != nil && p.acceptOp("]") {
		return itemOf(of, start, line)
	}
	p.expect(":")
	bounds := []expr{start, part(), nil}
	if p.acceptOp(":") {
		bounds[2] = part()
	}
	p.expect("]")
	return func(r *run, s *scope) Value {
		v, values := of(r, s), make([]Value, 3)
		for i, b := range bounds {
			if b != nil {
				values[i] = b(r, s)
			}
		}
		r.payStep(line)
		return r.slice(v, values)
	}
}

// itemOf is of[key].
func itemOf(of, key expr, line int) expr {
	return func(r *run, s *scope) Value {
		v, k := of(r, s), key(r, s)
		r.payStep(line)
		return r.item(v, k)
	}
}

func (p *parser) call(e expr) expr {
	line := p.peek().line
	return withArguments(e, p.arguments(), line, (*run).call)
}

// withArguments computes a value and its arguments, and then applies use to them.
func withArguments(of expr, args callArgs, line int, use func(r *run, v Value, a arguments) Value) expr {
	return func(r *run, s *scope) Value {
		v := of(r, s)
		a := args.eval(r, s)
		r.payStep(line)
		return use(r, v, a)
	}
}

// filter reads a filter and its arguments.
func (p *parser) filter(e expr) expr {
	name := p.expect(kindName)
	var args callArgs
	if p.isOp("(") {
		args = p.arguments()
	}
	return withArguments(e, args, name.line, func(r *run, v Value, a arguments) Value { return r.filter(name.text, v, a) })
}

// arguments reads the arguments of a call in their parentheses: positional ones, then *LIST and NAME=VALUE.
func (p *parser) arguments() callArgs {
	line := p.expect("(").line
	var a callArgs
	p.separated(")", func() {
		ok := true
		switch {
		case p.acceptOp("*"):
			ok = a.list == nil
			a.list = p.expression()
		case p.isOp("**"):
			fail(line, "arguments out of a dict are not supported: no published chat template has them")
		case p.peek().kind == kindName && p.tokens[1].kind == "=":
			a.names = append(a.names, p.next().text)
			p.next()
			a.named = append(a.named, p.expression())
		default:
			ok = a.list == nil && a.names == nil
			a.positional = append(a.positional, p.expression())
		}
		failIf(!ok, line, "arguments in the wrong order")
	})
	return a
}

// test reads is NAME, is not NAME and the arguments of the test.
func (p *parser) test(e expr) expr {
	line := p.next().line
	negated := p.acceptName("not")
	name := p.expect(kindName).text
	var args callArgs
	switch next := p.peek(); next.kind {
	case "(":
		args = p.arguments()
	case kindName, kindString, kindNumber, "[", "{": // one argument without parentheses
		if p.isName("else", "or", "and") {
			break
		}
		failIf(p.isName("is"), next.line, "tests cannot be chained with is")
		args.positional = []expr{p.postfix(p.primary())}
	}
	is := withArguments(e, args, line, func(r *run, v Value, a arguments) Value { return r.test(name, v, a) })
	if negated {
		return unary("not", is, line)
	}
	return is
}
