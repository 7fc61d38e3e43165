// Package tools is the environment of a policy that calls tools: a calculator, Python with
// limits, and programs of the user. An episode ends with the first turn that calls no tool.
package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"onering/environment"
	"onering/internal/process"
	"onering/internal/settings"
	"onering/tokenize"
)

func init() {
	environment.Register("tools", func() environment.Environment {
		return &Tools{Tools: []string{"calculator"}, Python: "python3", Seconds: 10, Megabytes: 512, Output: 16 << 10}
	})
}

// Tools answers calls of tools.
type Tools struct {
	Tools     []string `toml:"tools" help:"the tools that are built in which the policy has: calculator, python"`
	Commands  commands `toml:"commands" help:"programs of yours as further tools: a list of tables with name, command, description and parameters, a JSON schema in a string; a program reads the arguments from its standard input and writes the answer to its standard output"`
	Plain     bool     `toml:"plain" help:"for models without a chat template: a turn that ends with = asks the calculator for the expression before it, and reads the value alone"`
	Python    string   `toml:"python" needs:"tools!=calculator" help:"the interpreter of the tool python"`
	Seconds   float64  `toml:"seconds" needs:"tools!=calculator commands!=" range:"(0,86400]" help:"time that one call of python or of a program may take"`
	Megabytes int      `toml:"megabytes" needs:"tools!=calculator" range:"[16,1048576]" help:"memory of each process of python, and of each file that it writes; programs of yours have no limit of memory"`
	Output    int      `toml:"output_bytes" needs:"tools!=calculator commands!=" range:"[1,16777216]" help:"most bytes that python or a program may write in one call"`
}

// A tool is a function that the policy can call. The policy reads its error.
type tool func(ctx context.Context, arguments json.RawMessage) (string, error)

// builtin are the tools that come with onering.
var builtin = []environment.Function{
	{
		Name:        "calculator",
		Description: "Computes an expression exactly: numbers, + - * / ^ and parentheses.",
		Parameters:  json.RawMessage(`{"type": "object", "properties": {"expression": {"type": "string", "description": "such as (3 + 4) * 12 / 7"}}, "required": ["expression"]}`),
	},
	{
		Name:        "python",
		Description: "Runs a Python program and returns what it prints. Nothing is kept from one call to the next.",
		Parameters:  json.RawMessage(`{"type": "object", "properties": {"code": {"type": "string", "description": "the program; print what you want to know"}}, "required": ["code"]}`),
	},
}

// About is the environment's line in lists.
func (*Tools) About() string { return "a calculator, Python with limits, programs of yours as tools" }

// Validate reports unknown tools.
func (t *Tools) Validate() error {
	var errs settings.Errors
	seen := map[string]bool{}
	for _, name := range t.Tools {
		errs.Want("tools", name, (name == "calculator" || name == "python") && !seen[name],
			"must be calculator or python, each once; programs of yours stand in commands")
		seen[name] = true
	}
	for _, c := range t.Commands {
		errs.Want("commands", c.Name, toolName.MatchString(c.Name) && !seen[c.Name], "must have a name of its own of letters, digits, _ and -")
		seen[c.Name] = true
		errs.Want("commands", c.Name, len(c.Command) > 0 && strings.TrimSpace(c.Command[0]) != "", `must have a command, such as ["python3", "search.py"]`)
		var schema map[string]any
		known := c.Parameters == "" || json.Unmarshal([]byte(c.Parameters), &schema) == nil && schema != nil
		errs.Want("commands", c.Name, known, "parameters must be a JSON schema in a string, such as "+noParameters)
	}
	errs.Want("plain", true, !t.Plain || len(t.Commands) == 0 && slices.Equal(t.Tools, []string{"calculator"}), `has a meaning with tools = ["calculator"] alone`)
	errs.Want("tools", nil, len(seen) > 0, "there is no tool")
	return errors.Join(errs...)
}

// toolName matches the function names that chat templates and servers accept.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Ready says which programs are missing.
func (t *Tools) Ready(context.Context) error {
	var errs []error
	if slices.Contains(t.Tools, "python") {
		errs = append(errs, process.Find("environment.python", []string{t.Python}))
	}
	for _, c := range t.Commands {
		errs = append(errs, process.Find("environment.commands", c.Command))
	}
	return errors.Join(errs...)
}

// Stops implements environment.Stopper.
func (t *Tools) Stops() []string {
	if t.Plain {
		return []string{"="}
	}
	return nil
}

// Repeats implements environment.Repeating.
func (t *Tools) Repeats() bool {
	return len(t.Commands) == 0 && !slices.Contains(t.Tools, "python")
}

// Begin implements environment.Environment.
func (t *Tools) Begin(ctx context.Context, _ environment.Start) (environment.Episode, error) {
	e := &episode{Tools: t, tools: map[string]tool{}}
	for _, name := range t.Tools {
		e.Functions = append(e.Functions, builtin[slices.IndexFunc(builtin, func(f environment.Function) bool { return f.Name == name })])
		e.tools[name] = map[string]tool{"calculator": answerExpression, "python": t.runPython}[name]
	}
	for _, c := range t.Commands {
		e.Functions = append(e.Functions, environment.Function{Name: c.Name, Description: c.Description,
			Parameters: json.RawMessage(cmp.Or(c.Parameters, noParameters))})
		e.tools[c.Name] = c.tool(process.Limits{Seconds: t.Seconds, Output: t.Output})
	}
	if t.Plain {
		e.Functions = nil // no chat template describes them to the policy
	}
	return e, ctx.Err()
}

type episode struct {
	*Tools
	environment.Functions // the tools, in the order of the settings; none if Plain
	tools                 map[string]tool
}

// Close implements environment.Episode: no process runs between two calls.
func (*episode) Close() error { return nil }

// Step implements environment.Episode.
func (e *episode) Step(ctx context.Context, turn environment.Turn) (o environment.Observation, err error) {
	if !e.Plain {
		return e.Answer(ctx, turn, e.answer)
	}
	before, asks := strings.CutSuffix(turn.Text, "=")
	o.Messages = []tokenize.Message{{Role: "tool", Content: plainValue(before)}}
	o.Done = !asks
	return o, ctx.Err()
}

// answer answers a call. The policy reads an error.
func (e *episode) answer(ctx context.Context, call environment.Call) (string, error) {
	text, err := e.tools[call.Name](ctx, call.Arguments)
	if err != nil {
		text = strings.TrimLeft(strings.TrimRight(text, "\r\n")+"\nerror: "+process.Printable(err.Error()), "\n")
	}
	return text, nil
}

// argument returns the text of an argument of a call.
func argument(arguments json.RawMessage, name string) (string, error) {
	var object map[string]json.RawMessage
	var text *string
	if json.Unmarshal(arguments, &object) != nil || json.Unmarshal(object[name], &text) != nil || text == nil {
		return "", fmt.Errorf("the arguments must be an object with a text under %q", name)
	}
	return *text, nil
}

// answerExpression is the tool calculator.
func answerExpression(_ context.Context, arguments json.RawMessage) (string, error) {
	expression, err := argument(arguments, "expression")
	if err != nil {
		return "", err
	}
	value, err := calculate(strings.TrimRight(expression, "= \n"))
	if err != nil {
		return "", err
	}
	text := written(value, true)
	if strings.Contains(text, "/") {
		text += ", about " + new(big.Float).SetRat(value).Text('g', 12)
	}
	return text, nil
}

// plainValue computes the expression at the end of a text. Other text has no value: a
// model without a chat template could not read an error.
func plainValue(text string) string {
	expression := text[len(strings.TrimRight(text, "0123456789.+-*/^() ")):]
	value, err := calculate(expression)
	if err != nil {
		return ""
	}
	return written(value, strings.Contains(expression, "."))
}

// runPython is the tool python.
func (t *Tools) runPython(ctx context.Context, arguments json.RawMessage) (string, error) {
	code, err := argument(arguments, "code")
	if err != nil {
		return "", err
	}
	text, err := process.Run(ctx, []string{t.Python, "-I", "-u", "-"}, []byte(code), process.Limits{Seconds: t.Seconds, Output: t.Output, Megabytes: t.Megabytes})
	if text == "" && err == nil {
		text = "The program printed nothing."
	}
	return text, err
}

// A program is a program of the user that the policy can call.
type program struct {
	Name        string   `toml:"name"`
	Command     []string `toml:"command"`
	Description string   `toml:"description"`
	Parameters  string   `toml:"parameters"`
}

// noParameters is the JSON schema of a tool without parameters.
const noParameters = `{"type": "object", "properties": {}}`

// tool returns the program as a tool.
func (c program) tool(l process.Limits) tool {
	return func(ctx context.Context, arguments json.RawMessage) (string, error) {
		var line bytes.Buffer
		if err := json.Compact(&line, arguments); err != nil {
			return "", fmt.Errorf("the arguments cannot be read: %w", err)
		}
		line.WriteByte('\n')
		text, err := process.Run(ctx, c.Command, line.Bytes(), l)
		return strings.TrimRight(text, "\r\n"), err
	}
}

// commands are the values of the setting: programs that the policy can call.
type commands []program

// table is how TOML states a program.
var table = settings.Tables[program]{Key: "environment.commands", Kind: "a command"}

// UnmarshalTOML implements settings.Special.
func (c *commands) UnmarshalTOML(value any) error {
	list, _, err := table.Read(value, c.Wanted())
	if err == nil {
		*c = list
	}
	return err
}

// Wanted implements settings.Special.
func (*commands) Wanted() string {
	return `a list of tables, such as [{name = "search", command = ["python3", "search.py"], description = "Searches.", parameters = '{"type": "object"}'}]`
}

// MarshalTOML writes what UnmarshalTOML reads.
func (c commands) MarshalTOML() ([]byte, error) {
	texts, err := table.Write(c, func(int, settings.Field) bool { return true })
	return []byte("[" + strings.Join(texts, ", ") + "]"), err
}

// The bounds of a calculation: bytes of an expression, its parentheses, signs and powers, and
// bits of the numerator and the denominator of each number on the way.
const (
	mostBytes = 4096
	mostParts = 200
	mostBits  = 4096
)

var errLarge = fmt.Errorf("a number is too large: at most %d digits", mostBits*3/10)

// calculate returns the value of an expression of numbers, + - * / ^ and parentheses, exactly.
func calculate(expression string) (*big.Rat, error) {
	if len(expression) > mostBytes {
		return nil, fmt.Errorf("an expression has at most %d characters", mostBytes)
	}
	c := calculation{rest: signs.Replace(expression)}
	value, err := c.value(sums)
	if err == nil && c.rest != "" {
		err = c.unexpected()
	}
	return value, err
}

// signs translate other signs of operators, and remove separators between digits.
var signs = strings.NewReplacer("**", "^", "×", "*", "·", "*", "÷", "/", "−", "-", "\t", " ", "\n", " ")

// A calculation is the unread part of an expression, and how many parts were read.
type calculation struct {
	rest  string
	parts int
}

// unexpected is the error of an expression that cannot be read on.
func (c *calculation) unexpected() error {
	if c.rest == "" {
		return errors.New("the expression ends where a number or ) belongs")
	}
	return fmt.Errorf("the expression cannot be read at %.20q", c.rest)
}

// take takes the next character after spaces if it is one of chars; else it returns 0.
func (c *calculation) take(some string) (next byte) {
	c.rest = strings.TrimLeft(c.rest, " ")
	if c.rest != "" && strings.IndexByte(some, c.rest[0]) >= 0 {
		next, c.rest = c.rest[0], c.rest[1:]
	}
	return next
}

// The ranks of operators, and by rank those that bind at least as closely.
const sums, products, powers = 0, 1, 2

var operators = []string{sums: "+-*/^", products: "*/^", powers: "^"}

// value reads an operand and, as long as they follow, operators that bind at least as closely as rank (sums, products or
// powers) with their right operands. Those have the operators that bind more closely: -2^2 is -4, and 2^3^2 is 2^9.
func (c *calculation) value(rank int) (value *big.Rat, err error) {
	switch first := c.take("+-("); first {
	case '(': // c.nested is c.value with a bound of how often that calls itself
		if value, err = c.nested(sums); err == nil && c.take(")") == 0 {
			err = c.unexpected()
		}
	case '+', '-':
		if value, err = c.nested(powers); err == nil && first == '-' {
			value = new(big.Rat).Neg(value)
		}
	default:
		value, err = c.number()
	}
	for err == nil {
		operator, other := c.take(operators[rank]), (*big.Rat)(nil)
		switch operator {
		case 0: // none of them follows
			return value, nil
		case '^':
			other, err = c.nested(powers) // from right to left
		case '*', '/':
			other, err = c.value(powers)
		default:
			other, err = c.value(products)
		}
		if err == nil {
			value, err = combine(operator, value, other)
		}
	}
	return nil, err
}

// nested reads a nested expression, but not deeper than the stack allows.
func (c *calculation) nested(rank int) (*big.Rat, error) {
	if c.parts++; c.parts > mostParts {
		return nil, fmt.Errorf("an expression has at most %d parentheses, signs and powers", mostParts)
	}
	return c.value(rank)
}

func (c *calculation) number() (*big.Rat, error) {
	rest := strings.TrimLeft(c.rest, "0123456789.")
	value, ok := new(big.Rat).SetString(c.rest[:len(c.rest)-len(rest)])
	if !ok {
		return nil, c.unexpected()
	}
	c.rest = rest
	return bounded(value)
}

// combine applies an operator.
func combine(operator byte, a, b *big.Rat) (*big.Rat, error) {
	value := new(big.Rat)
	switch operator {
	case '+':
		value.Add(a, b)
	case '-':
		value.Sub(a, b)
	case '*':
		value.Mul(a, b)
	case '/':
		if b.Sign() == 0 {
			return nil, errors.New("division by zero")
		}
		value.Quo(a, b)
	case '^':
		return power(a, b)
	}
	return bounded(value)
}

// bounded refuses numbers that are too large to compute with.
func bounded(value *big.Rat) (*big.Rat, error) {
	if max(value.Num().BitLen(), value.Denom().BitLen()) > mostBits {
		return nil, errLarge
	}
	return value, nil
}

func power(base, exponent *big.Rat) (*big.Rat, error) {
	n := new(big.Int).Abs(exponent.Num())
	switch {
	case !exponent.IsInt():
		return nil, errors.New("an exponent must be a whole number")
	case n.Cmp(big.NewInt(mostBits)) > 0 || (max(base.Num().BitLen(), base.Denom().BitLen())-1)*int(n.Int64()) > mostBits:
		return nil, errLarge
	}
	value := new(big.Rat).SetFrac(new(big.Int).Exp(base.Num(), n, nil), new(big.Int).Exp(base.Denom(), n, nil))
	if exponent.Sign() < 0 {
		return combine('/', big.NewRat(1, 1), value)
	}
	return bounded(value)
}

// written writes a number: a whole number, a decimal if it is finite and decimals are wanted, else a fraction.
func written(value *big.Rat, decimals bool) string {
	if digits, ends := value.FloatPrec(); value.IsInt() || decimals && ends && digits <= 30 {
		return value.FloatString(digits)
	}
	return value.RatString()
}
