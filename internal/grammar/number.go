package grammar

import (
	"math"
	"strconv"
	"strings"
)

// bounds are those of a number.
type bounds struct {
	least, most                 float64
	leastExcluded, mostExcluded bool // the bound itself is not in
	integer                     bool // integers
}

// A number has up to digits digits before the point, which every reader takes exactly, and as many behind it.
const digits = 15

// form is the form of the numbers within bounds, without an exponent if there is a bound. A number below 0 is a minus
// sign and a magnitude, whose bounds are those of x mirrored at 0.
func (x bounds) form() Form {
	if math.IsInf(x.least, 0) && math.IsInf(x.most, 0) && !x.integer {
		return number
	}
	const limit = 1e15 - 1 // no larger magnitude is written, so a bound beyond it is as good as limit, included
	// below has the bounds of the magnitudes of numbers below 0; then x becomes those of the numbers from 0 on.
	below := bounds{least: max(-x.most, 0), most: min(-x.least, limit), integer: x.integer}
	below.leastExcluded = x.mostExcluded || x.most >= 0 // the latter since there is no -0
	below.mostExcluded = x.leastExcluded && x.least >= -limit
	x.mostExcluded, x.most = x.mostExcluded && x.most <= limit, min(x.most, limit)
	x.leastExcluded, x.least = x.leastExcluded && x.least >= 0, max(x.least, 0)
	var signs []Form
	if x.least <= x.most { // if they are equal and one is excluded, magnitude reads no number
		signs = append(signs, x.magnitude)
	}
	if below.least <= below.most {
		signs = append(signs, Join(literal("-"), below.magnitude))
	}
	return OneOf(signs...)
}

// fixed writes a number with all digits that numbers may have: digits of them, a point and again digits.
func fixed(x float64) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(x, 'f', -1, 64), ".")
	zeros := strings.Repeat("0", digits)
	return (zeros + whole)[len(whole):] + "." + (fraction + zeros)[:digits]
}

// A digitPlace is an index in a number as fixed writes it, whether what stands before it is the same as in the bounds,
// and whether a digit is written before it: zeros at the beginning are not.
type digitPlace struct {
	at                       int
	asLeast, asMost, written bool
}

// magnitude reads the numbers within bounds that are not negative, goes on at next and returns the first node. Of a number
// it knows the place in a text as fixed writes it, such as 000000000000042.500000000000000 (15 digits, a point, 15
// digits), and whether the number is so far the same as each of the bounds: as long as it is, that bound limits its
// next digit.
func (x bounds) magnitude(b *builder, next int) int {
	least, most := fixed(x.least), fixed(x.most)
	zeros := func(text string) bool { return strings.Trim(text, "0.") == "" }
	known := map[digitPlace]int{}
	var nodeAt func(p digitPlace) int // the node behind a place, -1 if no number leads on from it
	nodeAt = func(p digitPlace) int {
		if node, is := known[p]; is {
			return node
		}
		var to []int
		// A number that ends here has zeros in place of the digits that follow.
		aboveLeast, belowMost := !p.asLeast || zeros(least[p.at:]) && !x.leastExcluded, !p.asMost || !x.mostExcluded || !zeros(most[p.at:])
		if aboveLeast && belowMost && (p.at == digits || p.at > digits+1) { // before the point, or behind a decimal
			to = append(to, next)
		}
		lo, hi := byte('0'), byte('9')
		switch {
		case p.at == len(least) || p.at >= digits && x.integer:
			lo = '9' + 1 // above hi, so that nothing follows
		case p.at == digits: // the place of the point
			lo, hi = '.', '.'
		default:
			if p.asLeast {
				lo = least[p.at]
			}
			if p.asMost {
				hi = most[p.at]
			}
		}
		for c := lo; c <= hi; c++ {
			written := p.written || c != '0' || p.at == digits-1 // false for zeros at the beginning, but the 0 of 0.5 is written
			p := digitPlace{p.at + 1, p.asLeast && c == least[p.at], p.asMost && c == most[p.at], written}
			if following := nodeAt(p); following >= 0 && p.written {
				to = append(to, b.add(node{lo: c, hi: c, next: following}))
			} else if following >= 0 { // a zero at the beginning, which is not written: no node reads it
				to = append(to, following)
			}
		}
		known[p] = -1
		if len(to) > 0 {
			known[p] = b.fork(to...)
		}
		return known[p]
	}
	if first := nodeAt(digitPlace{0, true, true, false}); first >= 0 {
		return first
	}
	return b.fork() // to nothing: no number is within the bounds
}
