package tools

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// The bounds of a calculation: bytes of an expression, parts inside each other, and bits of
// the numerator and the denominator of each number on the way.
const (
	mostBytes = 4096
	mostDepth = 200
	mostBits  = 4096
)

// calculate returns the value of an expression of numbers, + - * / ^ and parentheses, exactly.
func calculate(expression string) (*big.Rat, error) {
	if len(expression) > mostBytes {
		return nil, fmt.Errorf("an expression has at most %d characters", mostBytes)
	}
	c := calculation{rest: signs.Replace(expression)}
	value, err := c.sum()
	if err == nil && c.peek() != 0 {
		err = fmt.Errorf("there is %q where an operator or the end belongs", c.found())
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// signs are ways to write the operators.
var signs = strings.NewReplacer("**", "^", "×", "*", "·", "*", "÷", "/", "−", "-")

// A calculation is what of an expression has not been read, and how deep its reader is.
type calculation struct {
	rest  string
	depth int
}

// peek returns the next character, 0 at the end. Spaces are passed over.
func (c *calculation) peek() byte {
	if c.rest = strings.TrimLeft(c.rest, " \t\n"); c.rest == "" {
		return 0
	}
	return c.rest[0]
}

// found is the next character for messages.
func (c *calculation) found() string {
	if c.peek() == 0 {
		return "the end"
	}
	return string([]rune(c.rest)[:1])
}

// take takes the next character if it is one of some.
func (c *calculation) take(some string) byte {
	next := c.peek()
	if next == 0 || !strings.ContainsRune(some, rune(next)) {
		return 0
	}
	c.rest = c.rest[1:]
	return next
}

// deeper counts the parts that stand inside each other.
func (c *calculation) deeper(read func() (*big.Rat, error)) (*big.Rat, error) {
	if c.depth++; c.depth > mostDepth {
		return nil, fmt.Errorf("more than %d parts stand inside each other", mostDepth)
	}
	defer func() { c.depth-- }()
	return read()
}

func (c *calculation) sum() (*big.Rat, error) { return c.chain("+-", c.product) }

func (c *calculation) product() (*big.Rat, error) { return c.chain("*/", c.signed) }

// chain reads operands between operators of one rank, from the left.
func (c *calculation) chain(operators string, operand func() (*big.Rat, error)) (*big.Rat, error) {
	value, err := operand()
	for err == nil {
		operator := c.take(operators)
		if operator == 0 {
			break
		}
		var other *big.Rat
		if other, err = operand(); err == nil {
			value, err = combine(operator, value, other)
		}
	}
	return value, err
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

// bounded refuses numbers that take too much work.
func bounded(value *big.Rat) (*big.Rat, error) {
	if value.Num().BitLen() > mostBits || value.Denom().BitLen() > mostBits {
		return nil, fmt.Errorf("a number is too large: at most %d digits", mostBits*3/10)
	}
	return value, nil
}

func power(base, exponent *big.Rat) (*big.Rat, error) {
	switch n := exponent.Num(); {
	case !exponent.IsInt():
		return nil, errors.New("an exponent must be a whole number")
	case exponent.Sign() < 0 && base.Sign() == 0:
		return nil, errors.New("division by zero")
	case base.IsInt() && base.Num().BitLen() <= 1: // 0, 1 and -1
		if n.Bit(0) == 0 {
			base = new(big.Rat).Mul(base, base)
		}
		if n.Sign() == 0 {
			base = big.NewRat(1, 1)
		}
		return base, nil
	case !n.IsInt64() || n.BitLen() > 13 || max(base.Num().BitLen()-1, base.Denom().BitLen()-1)*int(new(big.Int).Abs(n).Int64()) > mostBits:
		return nil, fmt.Errorf("a power is too large: at most %d digits", mostBits*3/10)
	}
	n := new(big.Int).Abs(exponent.Num())
	value := new(big.Rat).SetFrac(new(big.Int).Exp(base.Num(), n, nil), new(big.Int).Exp(base.Denom(), n, nil))
	if exponent.Sign() < 0 {
		value.Inv(value)
	}
	return bounded(value)
}

// signed reads a power with signs in front of it: -2^2 is -4.
func (c *calculation) signed() (*big.Rat, error) {
	switch c.take("+-") {
	case '+':
		return c.deeper(c.signed)
	case '-':
		value, err := c.deeper(c.signed)
		if err == nil {
			value = new(big.Rat).Neg(value)
		}
		return value, err
	}
	base, err := c.atom()
	if err != nil || c.take("^") == 0 {
		return base, err
	}
	exponent, err := c.deeper(c.signed) // from the right: 2^3^2 is 2^9
	if err != nil {
		return nil, err
	}
	return combine('^', base, exponent)
}

// atom reads a number, or a sum in parentheses.
func (c *calculation) atom() (*big.Rat, error) {
	if c.take("(") != 0 {
		value, err := c.deeper(c.sum)
		if err == nil && c.take(")") == 0 {
			err = fmt.Errorf("there is %q where ) or an operator belongs", c.found())
		}
		return value, err
	}
	c.peek()
	end := strings.IndexFunc(c.rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(c.rest)
	}
	text := c.rest[:end]
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		if text == "" {
			text = c.found()
		}
		return nil, fmt.Errorf("there is %q where a number belongs", text)
	}
	c.rest = c.rest[end:]
	return bounded(value)
}

// written returns a number as it is written: a whole number, a decimal if it ends and
// decimals are wanted, else a fraction.
func written(value *big.Rat, decimals bool) string {
	if digits, ends := value.FloatPrec(); value.IsInt() || decimals && ends && digits <= 30 {
		return value.FloatString(digits)
	}
	return value.RatString()
}
