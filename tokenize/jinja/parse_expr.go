package jinja

import "slices"

// Expressions, from what binds least.

func (p *parser) expression(withCondition bool) expr {
	defer p.nest()()
	if !withCondition {
		return p.or()
	}
	e := p.or()
	for p.acceptName("if") {
		c := &conditional{test: p.or(), yes: e}
		if p.acceptName("else") {
			c.no = p.expression(true)
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	left := p.and()
	for p.isName("or") {
		line := p.next().line
		left = &binary{"or", left, p.and(), line}
	}
	return left
}

func (p *parser) and() expr {
	left := p.not()
	for p.isName("and") {
		line := p.next().line
		left = &binary{"and", left, p.not(), line}
	}
	return left
}

func (p *parser) not() expr {
	if p.isName("not") {
		defer p.nest()()
		line := p.next().line
		return &unary{"not", p.not(), line}
	}
	return p.comparison()
}

func (p *parser) comparison() expr {
	c := &compare{line: p.peek().line, first: p.sum()}
	for {
		op := ""
		switch t := p.peek(); {
		case slices.Contains([]kind{"==", "!=", "<", "<=", ">", ">="}, t.kind), p.isName("in"):
			op = p.next().text
		case p.isName("not") && p.tokens[1].kind == kindName && p.tokens[1].text == "in":
			p.next()
			p.next()
			op = "not in"
		}
		if op == "" {
			break
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return c.first
	}
	return c
}

// operation reads operands with the operators between, which group from the left.
func (p *parser) operation(operand func() expr, ops ...kind) expr {
	left := operand()
	for slices.Contains(ops, p.peek().kind) {
		op := p.next()
		left = &binary{op.text, left, operand(), op.line}
	}
	return left
}

func (p *parser) sum() expr { return p.operation(p.concat, "+", "-") }

func (p *parser) concat() expr {
	parts := []expr{p.product()}
	for p.acceptOp("~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &concat{parts}
}

func (p *parser) product() expr {
	e := p.operation(func() expr { return p.unary(true) }, "*", "/", "//", "%")
	if t := p.peek(); t.kind == "**" {
		fail(t.line, "the operator ** is not supported: no published chat template has it")
	}
	return e
}

func (p *parser) unary(withFilters bool) expr {
	defer p.nest()()
	var e expr
	if t := p.peek(); t.kind == "-" || t.kind == "+" {
		p.next()
		e = &unary{string(t.kind), p.unary(false), t.line}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if !withFilters {
		return e
	}
	for {
		switch {
		case p.isOp("|"):
			p.next()
			f := &filterExpr{of: e, line: p.peek().line, name: p.expect(kindName).text}
			if p.isOp("(") {
				f.args = p.arguments()
			}
			e = f
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case kindName:
		switch t.text {
		case "true", "True":
			return &constant{true}
		case "false", "False":
			return &constant{false}
		case "none", "None":
			return &constant{nil}
		}
		if p.macros > 0 && slices.Contains([]string{"caller", "kwargs", "varargs"}, t.text) {
			fail(t.line, "%s in a macro is not supported: no published chat template has it", t.text)
		}
		return &name{t.text, t.line}
	case kindString:
		s := t.text
		for p.peek().kind == kindString {
			s += p.next().text
		}
		return &constant{s}
	case kindNumber:
		return &constant{t.value}
	case "(":
		e := p.tuple(true, true)
		p.expect(")")
		return e
	case "[":
		return &listExpr{p.list("]")}
	case "{":
		d := &dictExpr{line: t.line}
		for !p.isOp("}") {
			if len(d.keys) > 0 {
				if p.expect(","); p.isOp("}") {
					break
				}
			}
			d.keys = append(d.keys, p.expression(true))
			p.expect(":")
			d.values = append(d.values, p.expression(true))
		}
		p.next()
		return d
	}
	fail(t.line, "unexpected %s", t)
	return nil
}

// list reads expressions with commas between up to end, and it.
func (p *parser) list(end kind) []expr {
	var elements []expr
	for p.peek().kind != end {
		if len(elements) > 0 {
			if p.expect(","); p.peek().kind == end {
				break
			}
		}
		elements = append(elements, p.expression(true))
	}
	p.next()
	return elements
}

func (p *parser) atTupleEnd(ends []string) bool {
	k := p.peek().kind
	return k == kindVarEnd || k == kindBlockEnd || k == ")" || p.isName(ends...)
}

// tuple reads an expression, or several with commas between.
func (p *parser) tuple(withCondition, mayBeEmpty bool) expr {
	var parts []expr
	isTuple := false
	for !p.atTupleEnd(nil) {
		parts = append(parts, p.expression(withCondition))
		if !p.acceptOp(",") {
			break
		}
		isTuple = true
	}
	switch {
	case !isTuple && len(parts) == 1:
		return parts[0]
	case !isTuple && !mayBeEmpty:
		fail(p.peek().line, "found %s, want an expression", p.peek())
	}
	return &tupleExpr{parts}
}

// postfix reads attributes, subscripts and calls.
func (p *parser) postfix(e expr) expr {
	for {
		t := p.peek()
		switch t.kind {
		case ".":
			p.next()
			switch a := p.next(); a.kind {
			case kindName:
				e = &attribute{e, a.text, t.line}
			case kindNumber:
				if _, ok := a.value.(int); !ok {
					fail(a.line, "found %s, want a name or an integer", a)
				}
				e = &item{e, &constant{a.value}, t.line}
			default:
				fail(a.line, "found %s, want a name", a)
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

// subscript reads what stands in brackets behind an expression: a key, or a slice.
func (p *parser) subscript(of expr) expr {
	line := p.next().line
	part := func() expr {
		if p.isOp(":") || p.isOp("]") {
			return nil
		}
		return p.expression(true)
	}
	start := part()
	if start != nil && p.acceptOp("]") {
		return &item{of, start, line}
	}
	p.expect(":")
	s := &slice{of: of, start: start, stop: part(), line: line}
	if p.acceptOp(":") {
		s.step = part()
	}
	p.expect("]")
	return s
}

func (p *parser) call(e expr) expr {
	line := p.peek().line
	return &call{e, p.arguments(), line}
}

// arguments reads the arguments of a call, with the brackets.
func (p *parser) arguments() callArgs {
	line := p.expect("(").line
	var a callArgs
	for first := true; !p.isOp(")"); first = false {
		if !first {
			if p.expect(","); p.isOp(")") {
				break
			}
		}
		ok := true
		switch {
		case p.acceptOp("*"):
			ok = a.list == nil
			a.list = p.expression(true)
		case p.isOp("**"):
			fail(line, "arguments out of a dict are not supported: no published chat template has them")
		case p.peek().kind == kindName && p.tokens[1].kind == "=":
			a.names = append(a.names, p.next().text)
			p.next()
			a.named = append(a.named, p.expression(true))
		default:
			ok = a.list == nil && a.names == nil
			a.positional = append(a.positional, p.expression(true))
		}
		if !ok {
			fail(line, "arguments in the wrong order")
		}
	}
	p.next()
	return a
}

// test reads is NAME, is not NAME and the arguments of the test.
func (p *parser) test(e expr) expr {
	line := p.next().line
	negated := p.acceptName("not")
	t := &testExpr{of: e, line: line, name: p.expect(kindName).text}
	switch next := p.peek(); next.kind {
	case "(":
		t.args = p.arguments()
	case kindName, kindString, kindNumber, "[", "{":
		if p.isName("else", "or", "and") {
			break
		}
		if p.isName("is") {
			fail(next.line, "tests cannot be chained with is")
		}
		t.args.positional = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &unary{"not", t, line}
	}
	return t
}
