package jinja

// An expr is an expression of a template.
type expr interface {
	eval(r *run, s *scope) Value
}

// A stmt is a statement, or text.
type stmt interface {
	exec(r *run, s *scope) flow
}

// A flow says how a statement ended.
type flow int

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// Expressions.
type (
	constant struct{ value Value }
	name     struct {
		id   string
		line int
	}
	listExpr  struct{ elements []expr }
	tupleExpr struct{ elements []expr }
	dictExpr  struct {
		keys, values []expr
		line         int
	}
	attribute struct {
		of   expr
		name string
		line int
	}
	item struct {
		of, key expr
		line    int
	}
	slice struct {
		of, start, stop, step expr // nil where left out
		line                  int
	}
	call struct {
		of   expr
		args callArgs
		line int
	}
	filterExpr struct {
		of   expr
		name string
		args callArgs
		line int
	}
	testExpr struct {
		of   expr
		name string
		args callArgs
		line int
	}
	unary struct {
		op   string // not, + or -
		of   expr
		line int
	}
	binary struct {
		op          string // an arithmetic operator, and, or
		left, right expr
		line        int
	}
	concat  struct{ parts []expr }
	compare struct {
		first expr
		ops   []string // also "in" and "not in"
		rest  []expr
		line  int
	}
	conditional struct{ test, yes, no expr } // no may be nil
)

// callArgs are the arguments of a call as they are written.
type callArgs struct {
	positional []expr
	names      []string
	named      []expr
	list       expr // *list; nil without
}

// Statements.
type (
	data struct {
		text string
		line int
	}
	print struct {
		of   expr
		line int
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt // one more than tests if there is an else
	}
	forStmt struct {
		target     expr
		over       expr
		test       expr   // nil without
		body, last []stmt // last is the else
		line       int
	}
	setStmt struct {
		target expr
		value  expr
		line   int
	}
	setBlock struct {
		target expr
		body   []stmt
		line   int
	}
	macroStmt struct {
		name     string
		params   []string
		defaults []expr // of the last params
		body     []stmt
		line     int
	}
	marked struct{ body []stmt } // what generation encloses
	jump   struct{ flow flow }
)

// nsTarget is an attribute of a namespace as the target of set.
type nsTarget struct {
	name, attribute string
	line            int
}

func (nsTarget) eval(*run, *scope) Value { panic("jinja: a target is not a value") }
