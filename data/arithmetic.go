package data

import (
	"embed"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Arithmetic is the name of the embedded task, and of its model, where a run file names a
// file or folder.
const Arithmetic = "builtin:arithmetic"

//go:embed arithmetic/model
var arithmetic embed.FS

// ArithmeticModel returns the Hugging Face folder of the embedded policy: a Qwen2 of
// 100,928 parameters after a supervised warm start on a careless student's
// demonstrations (remake.sh), in half precision. It mostly guesses, and so is
// right about a quarter of the time.
func ArithmeticModel() fs.FS {
	dir, err := fs.Sub(arithmetic, "arithmetic/model")
	if err != nil {
		panic(err) // the name is a constant
	}
	return dir
}

// The embedded task is three-digit sums and differences, with the working shown digit by
// digit and a boxed answer. It is small enough to be learned on a CPU in seconds and has
// what a real task has: responses of varying length, a wrong habit to unlearn (guessing),
// and held-out problems.
//
//	prompt    129+955=
//	response  9+5+0=14;2+5+1=8;1+9+0=10;\boxed{1084}
//
// A step reads digit op digit op carry = result, from the right; in a
// difference the result is one digit and a "c" after it when it borrows.

// A sum is A+B or A-B, both operands of as many digits, three in the embedded task, the
// result not negative.
type sum struct {
	A, B  int
	Minus bool
}

// Prompt is the problem as the model sees it, 8 characters for three digits.
func (p sum) Prompt() string { return fmt.Sprintf("%d%c%d=", p.A, p.op(), p.B) }

func (p sum) op() byte {
	if p.Minus {
		return '-'
	}
	return '+'
}

// Answer is the result in decimal.
func (p sum) Answer() string {
	if p.Minus {
		return strconv.Itoa(p.A - p.B)
	}
	return strconv.Itoa(p.A + p.B)
}

// HeldOut says whether a problem belongs to the eighth of all problems that
// are never trained on.
func (p sum) HeldOut() bool {
	x := uint64(p.A)<<32 | uint64(p.B)<<1
	if p.Minus {
		x |= 1
	}
	// SplitMix64's finalizer: every bit of x affects the three low bits.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x^x>>31)&7 == 0
}

// DrawSum returns a random problem of the training part or the held-out part, with
// operands of so many digits, at most 17.
func DrawSum(r *rand.Rand, digits int, heldOut bool) sum {
	least := int(math.Pow10(digits - 1))
	for {
		p := sum{A: least + r.IntN(9*least), B: least + r.IntN(9*least), Minus: r.IntN(2) == 1}
		if p.Minus && p.A < p.B {
			p.A, p.B = p.B, p.A
		}
		if p.HeldOut() == heldOut {
			return p
		}
	}
}

// Worked is the response that shows its steps, such as 7+5+0=12;2+1+1=4;\boxed{42} for 27+15: digit+digit+carry. In
// a difference c marks a digit that borrows. Each step is off by one with probability slip, and later steps use it.
func (p sum) Worked(r *rand.Rand, slip float64) string {
	var text strings.Builder
	a, b := p.A, p.B
	carry, unit, answer := 0, 1, 0
	digits := len(strconv.Itoa(a))
	for step := range digits {
		x, y := a%10, b%10
		a, b = a/10, b/10
		off := 0
		if slip > 0 && r.Float64() < slip {
			off = 1 - 2*r.IntN(2) // 1 or -1
		}
		fmt.Fprintf(&text, "%d%c%d%c%d=", x, p.op(), y, p.op(), carry)
		if p.Minus {
			d := x - y - carry + off
			carry = 0
			if d < 0 {
				d, carry = d+10, 1
			}
			d %= 10
			text.WriteString(strconv.Itoa(d))
			if carry == 1 {
				text.WriteByte('c')
			}
			answer += d * unit
		} else {
			s := max(0, x+y+carry+off) // 0+0 has no smaller sum to slip to
			text.WriteString(strconv.Itoa(s))
			carry = s / 10
			answer += s % 10 * unit
			if step == digits-1 {
				answer += carry * unit * 10
			}
		}
		text.WriteByte(';')
		unit *= 10
	}
	return text.String() + boxed(strconv.Itoa(answer))
}

// Guess is the bare, true answer, without the working that the model needs.
func (p sum) Guess() string { return boxed(p.Answer()) }

// Called is the response that lets a calculator solve the problem: it writes the problem,
// reads the result and answers.
func (p sum) Called() string { return p.Prompt() + p.Answer() + p.Guess() }

// Demonstrate is a careless student's response: Guess with probability guess, else Worked
// with slips.
func (p sum) Demonstrate(r *rand.Rand, guess, slip float64) string {
	if r.Float64() < guess {
		return p.Guess()
	}
	return p.Worked(r, slip)
}

func boxed(answer string) string { return `\boxed{` + answer + `}` }
