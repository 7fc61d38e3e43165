package tools

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

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
	value, err := c.value(1)
	if err == nil && c.rest != "" {
		err = c.unread()
	}
	return value, err
}

// signs are ways to write the operators, and what stands between numbers.
var signs = strings.NewReplacer("**", "^", "×", "*", "·", "*", "÷", "/", "−", "-", "\t", " ", "\n", " ")

// A calculation is what of an expression has not been read, and how many parts it had.
type calculation struct {
	rest  string
	parts int
}

// unread is the error of what cannot be read.
func (c *calculation) unread() error {
	if c.rest == "" {
		return errors.New("the expression ends where a number or ) belongs")
	}
	return fmt.Errorf("the expression cannot be read at %.20q", c.rest)
}

// take takes the next character, behind spaces, if it is one of some; else it returns 0.
func (c *calculation) take(some string) (next byte) {
	c.rest = strings.TrimLeft(c.rest, " ")
	if c.rest != "" && strings.IndexByte(some, c.rest[0]) >= 0 {
		next, c.rest = c.rest[0], c.rest[1:]
	}
	return next
}

// operators are those that bind at least as close as a rank.
var operators = []string{"", "+-*/^", "*/^", "^"}

// value reads operands and the operators of a rank between them: -2^2 is -4, and 2^3^2 is 2^9.
func (c *calculation) value(rank int) (value *big.Rat, err error) {
	switch first := c.take("+-("); first {
	case '(':
		if value, err = c.deeper(1); err == nil && c.take(")") == 0 {
			err = c.unread()
		}
	case '+', '-':
		if value, err = c.deeper(3); err == nil && first == '-' {
			value = new(big.Rat).Neg(value)
		}
	default:
		value, err = c.number()
	}
	for err == nil {
		operator, other := c.take(operators[rank]), (*big.Rat)(nil)
		switch operator {
		case 0:
			return value, nil
		case '^':
			other, err = c.deeper(3)
		case '*', '/':
			other, err = c.value(3)
		default:
			other, err = c.value(2)
		}
		if err == nil {
			value, err = combine(operator, value, other)
		}
	}
	return nil, err
}

// deeper reads what stands inside of something: not more of it than the stack bears.
func (c *calculation) deeper(rank int) (*big.Rat, error) {
	if c.parts++; c.parts > mostParts {
		return nil, fmt.Errorf("an expression has at most %d parentheses, signs and powers", mostParts)
	}
	return c.value(rank)
}

func (c *calculation) number() (*big.Rat, error) {
	rest := strings.TrimLeft(c.rest, "0123456789.")
	value, ok := new(big.Rat).SetString(c.rest[:len(c.rest)-len(rest)])
	if !ok {
		return nil, c.unread()
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

// bounded refuses numbers that take too much work.
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

// written returns a number as it is written: a whole number, a decimal if it ends and
// decimals are wanted, else a fraction.
func written(value *big.Rat, decimals bool) string {
	if digits, ends := value.FloatPrec(); value.IsInt() || decimals && ends && digits <= 30 {
		return value.FloatString(digits)
	}
	return value.RatString()
}
