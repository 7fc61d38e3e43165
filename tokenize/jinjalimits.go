package tokenize

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// A chat template comes with a downloaded model. gonja has no limits, so that a short
// template could fill the memory, run for years, or overflow the stack with a value
// that contains itself. guardTemplate therefore puts a filter around the expressions
// of a parsed template. The filters measure each value before it is used, and spend a
// budget: a template that has spent it ends with an error.

// The budget of a rendering: a byte of text costs 1, an expression and an element of a
// list stepCost, the body of a loop or a condition bodyCost and its text, an error errorCost. Templates in
// use spend some thousands, and some bytes for each byte of the messages.
const (
	renderBudget  = 16 << 20
	budgetPerByte = 64 // of the messages
	stepCost      = 16
	bodyCost      = 64
	errorCost     = 1024
	maxValueDepth = 100
)

// The filters that guard expressions. Templates cannot write names with a space.
const (
	guardDeep      = "guard value"     // the whole value is used, as for output
	guardShallow   = "guard container" // only an element of it, or its kind, is used
	guardElement   = "guard element"   // the value becomes part of another one
	guardTarget    = "guard target"    // an attribute of it is set
	guardLeft      = "guard left"      // the left side of a product
	guardRight     = "guard right"     // the right side of a product
	guardBody      = "guard body"      // a body begins
	maxFormatWidth = 4                 // digits of a width in a format string
)

// namespace is what namespace() returns: the only value whose attributes can be set.
// It cannot be part of another value, so no value contains itself.
type namespace map[string]any

func newNamespace(args *exec.VarArgs) namespace {
	n := namespace{}
	for key, value := range args.KwArgs {
		n[key] = value
	}
	return n
}

var errBudget = errors.New("the template does too much work, or makes too large values: is it damaged, or written to do harm?")

// A budget is what is left to one rendering.
type budget struct {
	left   int
	factor map[int]int // the length of the text on the left of a product, by its number
}

func (b *budget) spend(n int) error {
	if n > b.left {
		b.left = 0
		return errBudget
	}
	b.left -= n
	return nil
}

// measure spends what the value v costs. depth counts the values that it is part of.
func (b *budget) measure(v reflect.Value, depth int) error {
	if err := b.spend(stepCost); err != nil {
		return err
	}
	if depth > maxValueDepth {
		return fmt.Errorf("lists and dicts nested deeper than %d", maxValueDepth)
	}
	switch v.Kind() {
	case reflect.String:
		return b.spend(v.Len())
	case reflect.Interface:
		return b.measure(v.Elem(), depth)
	case reflect.Func:
		return errors.New("a function is used as a value")
	case reflect.Pointer:
		switch x := v.Interface().(type) {
		case *exec.Value:
			return b.measure(x.Val, depth)
		case *exec.Dict:
			for _, p := range x.Pairs {
				if err := errors.Join(b.measure(p.Key.Val, depth+1), b.measure(p.Value.Val, depth+1)); err != nil {
					return err
				}
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := b.measure(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		if v.Type() == reflect.TypeFor[namespace]() && depth > 0 {
			return errors.New("a namespace cannot be part of another value")
		}
		for iter := v.MapRange(); iter.Next(); {
			if err := errors.Join(b.measure(iter.Key(), depth+1), b.measure(iter.Value(), depth+1)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if x, ok := v.Interface().(reflect.Value); ok { // list.append of gonja stores these
			return b.measure(x, depth)
		}
	}
	return nil
}

// check measures the value in as the guard called name does. number identifies the
// product of guardLeft and guardRight, and is the text of a body for guardBody.
func (b *budget) check(name string, in *exec.Value, number int) error {
	switch name {
	case guardShallow:
		return b.spend(stepCost * (1 + shallowLen(in)))
	case guardBody:
		return b.spend(bodyCost + number)
	case guardElement:
		return b.measure(in.Val, 1)
	case guardTarget:
		if _, ok := in.Interface().(namespace); !ok {
			return errors.New("set can change the attributes of a namespace only")
		}
	}
	if err := b.measure(in.Val, 0); err != nil {
		return err
	}
	switch name {
	case guardLeft:
		b.factor[number] = 0
		if in.IsString() {
			b.factor[number] = in.Val.Len()
		}
	case guardRight:
		if length, n := b.factor[number], in.Integer(); length > 0 && n > b.left/length {
			return errBudget
		}
	}
	return nil
}

// shallowLen is the number of elements of a list.
func shallowLen(v *exec.Value) int {
	if v.IsList() {
		return v.Val.Len()
	}
	return 0
}

// refuse ends the rendering; renderJinja recovers. An error would not do: the filter
// default catches errors, and gonja evaluates some expressions again after one.
func refuse(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

// guard is the filter called name.
func (b *budget) guard(name string) exec.FilterFunction {
	return func(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
		err := error(nil)
		if in.IsError() {
			err = b.spend(errorCost)
		} else {
			err = b.check(name, in, args.Args[1].Integer())
		}
		if err != nil {
			refuse("line %d: %w", args.Args[0].Integer(), err)
		}
		return in
	}
}

var (
	errorLine  = regexp.MustCompile(`at line (\d+)`)
	errorGuard = regexp.MustCompile(`(?s).*(invalid call to filter 'guard \w+'|guard \w+ \[[^\]]*\] map\[\]\}): `)
)

// plainError is an error of gonja without the guards that it names.
func plainError(err error) error {
	text := err.Error()
	plain := strings.ReplaceAll(errorGuard.ReplaceAllString(text, ""), "filtered_expression(", "(")
	if m := errorLine.FindAllStringSubmatch(text, -1); m != nil && plain != text {
		return fmt.Errorf("line %s: %s", m[len(m)-1][1], plain)
	}
	return err
}

// longWidth matches a width in a format string that makes a long text.
var longWidth = regexp.MustCompile(fmt.Sprintf(`[0-9]{%d,}|%%[^%%a-zA-Z]*\*`, maxFormatWidth))

// growth is an upper bound of the length of what a filter or method that can make a
// long text or list from short ones returns. args has the positional arguments first.
func growth(name, self string, args []*exec.Value, list *exec.Value) (int, error) {
	longest, number := 0, 0
	for _, a := range args {
		if a.IsString() {
			longest = max(longest, len(a.String()))
		} else if a.IsNumber() {
			number = max(number, a.Integer())
		}
	}
	switch name {
	case "replace":
		return len(self) + (len(self)+1)*longest, nil
	case "join":
		return max(len(self), longest) * (1 + max(shallowLen(list), len(self))), nil
	case "indent":
		return len(self) + (strings.Count(self, "\n")+1)*max(longest, number), nil
	case "center", "batch", "slice", "round", "truncate":
		return max(number, 0), nil
	case "format":
		if longWidth.MatchString(self) {
			return 0, fmt.Errorf("a width of %d digits or * in a format", maxFormatWidth)
		}
	}
	return 0, nil
}

// filters are those of gonja that chat templates can use, with the budget checked
// before and after each.
func (b *budget) filters() *exec.FilterSet {
	all := map[string]exec.FilterFunction{}
	for _, name := range filterNames {
		f, ok := builtins.Filters.Get(name)
		if name == "tojson" {
			f, ok = toJSON, true
		}
		if !ok {
			continue
		}
		all[name] = func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
			if err := b.before(name, in, args); err != nil {
				refuse("filter %s: %w", name, err)
			}
			out := f(e, in, args)
			if out.IsError() {
				return out
			}
			if err := b.measure(out.Val, 0); err != nil {
				refuse("filter %s: %w", name, err)
			}
			return out
		}
	}
	for _, name := range []string{guardDeep, guardShallow, guardElement, guardTarget, guardLeft, guardRight, guardBody} {
		all[name] = b.guard(name)
	}
	return exec.NewFilterSet(all)
}

// before checks the input and the arguments of a filter.
func (b *budget) before(name string, in *exec.Value, args *exec.VarArgs) error {
	if in.IsError() {
		return b.spend(errorCost)
	}
	list := append([]*exec.Value{}, args.Args...)
	for _, a := range args.KwArgs {
		list = append(list, a)
	}
	for _, v := range append(list, in) {
		if err := b.measure(v.Val, 0); err != nil {
			return err
		}
	}
	self := ""
	switch name {
	case "replace", "join", "indent", "format":
		if !in.IsList() {
			self = in.String()
		}
	}
	n, err := growth(name, self, list, in)
	if err != nil {
		return err
	}
	return b.spend(n)
}

// method is a method of str with the budget checked before it.
func (b *budget) method(name string, m exec.Method[string]) exec.Method[string] {
	return func(self string, value *exec.Value, args *exec.VarArgs) (any, error) {
		list := exec.AsValue(nil)
		if len(args.Args) > 0 {
			list = args.Args[0]
		}
		n, err := growth(name, self, args.Args, list)
		if err == nil {
			err = b.spend(n)
		}
		if err != nil {
			refuse("method %s: %w", name, err)
		}
		return m(self, value, args)
	}
}

// A guarder puts guards around the expressions of a template.
type guarder struct {
	seen     map[any]bool
	products int
	err      error // what no guard can make safe
}

// guardTemplate puts guards around the expressions of a parsed template.
func guardTemplate(root *nodes.Template) error {
	g := &guarder{seen: map[any]bool{}}
	g.walk(reflect.ValueOf(root), guardDeep)
	return g.err
}

// walk guards the expressions within v, which are used as the guard says. gonja keeps
// some of them in private fields: they are reached by their address.
func (g *guarder) walk(v reflect.Value, guard string) {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return
		}
		g.walk(v.Elem(), guard)
		if e, ok := g.expression(v); ok && guard != "" {
			v.Set(reflect.ValueOf(guarded(e, guard, 0)))
		}
	case reflect.Pointer:
		if v.IsNil() || !strings.Contains(v.Type().Elem().PkgPath(), "/gonja/v2/nodes") && !strings.Contains(v.Type().Elem().PkgPath(), "/gonja/v2/builtins/") {
			return
		}
		v = reflect.NewAt(v.Type().Elem(), v.UnsafePointer())
		if node := v.Interface(); !g.seen[node] {
			g.seen[node] = true
			g.node(node, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			g.walk(v.Index(i), guard)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			g.walk(value, guard)
			v.SetMapIndex(key, value)
		}
	}
}

// expression returns the node in v if it is one that can be guarded.
func (g *guarder) expression(v reflect.Value) (nodes.Expression, bool) {
	switch e := v.Interface().(type) {
	case *nodes.Data, *nodes.Comment, *nodes.Output, *nodes.ControlStructureBlock, *nodes.Wrapper, *nodes.Pair, *nodes.Error:
		return nil, false
	case *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.None:
		return nil, false // no longer than the template
	case nodes.Expression:
		_, isControl := e.(exec.ControlStructure)
		return e, !isControl
	}
	return nil, false
}

func guarded(e nodes.Expression, name string, number int) *nodes.FilteredExpression {
	at := e.Position()
	line := 0
	if at != nil {
		line = at.Line
	}
	return &nodes.FilteredExpression{Expression: e, Filters: []*nodes.FilterCall{{
		Token: at, Name: name,
		Args: []nodes.Expression{&nodes.Integer{Location: at, Val: line}, &nodes.Integer{Location: at, Val: number}},
	}}}
}

// node guards the fields of a node. s is the struct that node points to.
func (g *guarder) node(node any, s reflect.Value) {
	uses := map[string]string{} // how fields are used, where not guardDeep
	switch n := node.(type) {
	case *nodes.FilteredExpression:
		// A filter checks its own input and arguments.
		uses["Expression"] = guardShallow
	case *nodes.TestExpression, *nodes.GetItem, *nodes.GetSlice:
		uses["Expression"], uses["Node"] = guardShallow, guardShallow
	case *nodes.GetAttribute:
		uses["Node"] = guardShallow
	case *nodes.List, *nodes.Tuple, *nodes.Pair:
		uses["Val"], uses["Value"] = guardElement, guardElement
	case *nodes.Call:
		uses["Func"], uses["Args"], uses["Kwargs"] = "", guardElement, guardElement
		if _, ok := n.Parent.(*nodes.Name); ok {
			uses["Parent"] = "" // append needs the name
		}
		g.call(n)
	case *controls.ForControlStructure:
		uses["ObjectEvaluator"] = guardShallow
	case *controls.SetControlStructure:
		uses["target"] = ""
		if target := field(s, "target"); g.setTarget(target.Interface()) {
			uses["expression"], uses["alternative"] = guardElement, guardElement
		}
	}
	for i := range s.NumField() {
		name := s.Type().Field(i).Name
		guard, special := uses[name]
		if !special {
			guard = guardDeep
		}
		g.walk(field(s, name), guard)
	}
	switch n := node.(type) {
	case *nodes.BinaryExpression:
		if n.Operator.Token.Type == tokens.Multiply {
			g.products++
			n.Left, n.Right = guarded(n.Left, guardLeft, g.products), guarded(n.Right, guardRight, g.products)
		}
	case *nodes.Wrapper:
		text := 0
		for _, child := range n.Nodes {
			if d, ok := child.(*nodes.Data); ok {
				text += len(d.Data.Val)
			}
		}
		begin := guarded(&nodes.String{Location: n.Location}, guardBody, text)
		n.Nodes = append([]nodes.Node{&nodes.Output{Start: n.Location, Expression: begin, End: n.Location}}, n.Nodes...)
	}
}

// field is a field of a struct that can be set, also a private one.
func field(s reflect.Value, name string) reflect.Value {
	f := s.FieldByName(name)
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}

// call refuses calls of Go methods, which have no limits, and of what is no name.
func (g *guarder) call(n *nodes.Call) {
	switch f := n.Func.(type) {
	case *nodes.Name:
	case *nodes.GetAttribute:
		if f.Attribute != "" && unicode.IsUpper([]rune(f.Attribute)[0]) {
			g.refuse(n.Location, "the method %s does not exist", f.Attribute)
		}
		// A method measures what it is called on, since it may be written as text.
		if _, ok := f.Node.(*nodes.FilteredExpression); !ok {
			g.walk(reflect.ValueOf(&f.Node).Elem(), guardDeep)
		}
	default:
		g.refuse(n.Location, "a call of what is not a name")
	}
}

// setTarget tells whether set changes an attribute, and guards what has it.
func (g *guarder) setTarget(target any) bool {
	switch n := target.(type) {
	case *nodes.GetAttribute:
		g.seen[n] = true
		g.walk(reflect.ValueOf(&n.Node).Elem(), guardTarget)
		return true
	case *nodes.GetItem:
		g.seen[n] = true
		g.walk(reflect.ValueOf(&n.Node).Elem(), guardTarget)
		g.walk(reflect.ValueOf(&n.Arg).Elem(), guardDeep)
		return true
	}
	return false
}

func (g *guarder) refuse(at *tokens.Token, format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf("line %d: "+format, append([]any{at.Line}, args...)...)
	}
}
