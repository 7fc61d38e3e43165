package latex

// environment parses {name} ... \end{name} behind \begin: a matrix, cases, a system of equations, which are cases with
// one column, or lines of statements.
func (p *parser) environment() *Node {
	name := p.environmentName()
	var n *Node
	switch name {
	case "matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "vmatrix", "Vmatrix", "tabular":
		if name == "array" || name == "tabular" {
			p.skipColumns()
		}
		n = p.inBrackets(p.cells)
		if name == "vmatrix" {
			n.Name = "|" // a determinant
		}
	case "cases", "dcases", "rcases":
		n = p.inBrackets(p.cells)
		if n.Cols == 1 {
			n = &Node{Op: List, Name: "and", Args: n.Args}
		} else {
			n = &Node{Op: Cases, Args: n.Args, Cols: n.Cols}
		}
	default:
		n = p.inBrackets(p.statements)
		p.failIf(n == nil)
	}
	p.failIf(!p.cur().cmd("end"))
	p.advance()
	p.failIf(p.environmentName() != name)
	return n
}

// environmentName reads {name} or {name*}.
func (p *parser) environmentName() string {
	p.expect("{")
	t := p.cur()
	p.failIf(t.kind != word)
	name := t.text
	p.advance()
	p.accept("*")
	p.expect("}")
	return name
}

// skipColumns passes the column specification of an array.
func (p *parser) skipColumns() {
	if !p.accept("{") {
		return
	}
	for !p.accept("}") {
		p.failIf(p.cur().kind == end)
		p.advance()
	}
}

// cells parses rows of cells up to \end into a Matrix. It gives up the text at an empty cell or where rows differ in
// length, and ignores empty rows.
func (p *parser) cells() *Node {
	m := &Node{Op: Matrix}
	var row []*Node
	endRow := func() {
		if len(row) == 0 {
			return
		}
		if m.Cols == 0 {
			m.Cols = len(row)
		}
		p.failIf(len(row) != m.Cols)
		m.Args = append(m.Args, row...)
		row = nil
	}
	for {
		switch t := p.cur(); {
		case t.cmd("end"):
			endRow()
			p.failIf(len(m.Args) == 0)
			return m
		case t.kind == newline:
			p.advance()
			endRow()
		case t.is("&"):
			p.fail() // an empty cell
		default:
			row = append(row, p.cell())
			for p.accept(",") || p.accept(".") || p.accept(";") { // punctuation behind a cell says nothing
			}
			cellFollows := p.accept("&")
			p.failIf(cellFollows == (p.cur().kind == newline || p.cur().cmd("end")))
		}
	}
}

// cell parses one cell: a statement; in cases "if" and "for" may begin one, and several may stand side by side.
func (p *parser) cell() *Node {
	for p.cur().kind == word && conditional[p.cur().text] {
		p.advance()
	}
	n := p.cellStatement()
	for p.cur().kind == word && (p.cur().text == "and" || p.cur().text == "or") {
		joint := p.cur().text
		p.advance()
		n = &Node{Op: List, Name: joint, Args: []*Node{n, p.cellStatement()}}
	}
	return n
}

// cellStatement parses a relation or an expression that ends with the cell.
func (p *parser) cellStatement() *Node {
	args := []*Node{p.sets()}
	var ops []string
	for {
		rel, ok := p.relation()
		if !ok {
			break
		}
		ops = append(ops, rel)
		args = append(args, p.sets())
	}
	if len(ops) == 0 {
		return args[0]
	}
	return &Node{Op: Rel, Args: args, Ops: ops}
}
