package grammar

import (
	"math"
	"strconv"
	"strings"
)

// bounds are those of a number.
type bounds struct {
	least, most          float64
	overLeast, belowMost bool // the bound itself is not in
	whole                bool // integers
}

// A number has up to digits digits before the point, which every reader takes exactly, and as
// many behind it.
const digits = 15

// form is the form of the numbers within bounds, without an exponent if there is a bound.
func (x bounds) form() Form {
	if math.IsInf(x.least, 0) && math.IsInf(x.most, 0) && !x.whole {
		return number
	}
	const limit = 1e15 - 1
	below := bounds{max(-x.most, 0), min(-x.least, limit), x.belowMost || x.most >= 0, x.overLeast && x.least > -limit, x.whole} // there is no -0
	x.belowMost, x.most = x.belowMost && x.most <= limit, min(x.most, limit)
	x.overLeast, x.least = x.overLeast && x.least >= 0, max(x.least, 0)
	var signs []Form
	if x.least <= x.most {
		signs = append(signs, x.magnitude)
	}
	if below.least <= below.most {
		signs = append(signs, Join(literal("-"), below.magnitude))
	}
	return OneOf(signs...)
}

// fixed writes a number with all digits that numbers may have.
func fixed(x float64) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(x, 'f', -1, 64), ".")
	zeros := strings.Repeat("0", digits)
	return (zeros + whole)[len(whole):] + "." + (fraction + zeros)[:digits]
}

// A place is how many digits stand before it, whether they are those of the bounds so far, and
// whether one of them is written: zeros at the beginning are not.
type place struct {
	at                 int
	least, most, begun bool
}

// magnitude reads the numbers within bounds that are not negative.
func (x bounds) magnitude(b *builder, next int) int {
	least, most := fixed(x.least), fixed(x.most)
	zeros := func(text string) bool { return strings.Trim(text, "0.") == "" }
	known := map[place]int{}
	var behind func(p place) int // the node behind a place, -1 if no number leads on from it
	behind = func(p place) int {
		if node, is := known[p]; is {
			return node
		}
		var to []int
		above, below := !p.least || zeros(least[p.at:]) && !x.overLeast, !p.most || !x.belowMost || !zeros(most[p.at:])
		if above && below && (p.at == digits || p.at > digits+1) {
			to = append(to, next)
		}
		lo, hi := byte('0'), byte('9')
		switch {
		case p.at == len(least) || p.at >= digits && x.whole:
			lo = '9' + 1
		case p.at == digits:
			lo, hi = '.', '.'
		default:
			if p.least {
				lo = least[p.at]
			}
			if p.most {
				hi = most[p.at]
			}
		}
		for c := lo; c <= hi; c++ {
			p := place{p.at + 1, p.least && c == least[p.at], p.most && c == most[p.at], p.begun || c != '0' || p.at == digits-1}
			if further := behind(p); further >= 0 && p.begun {
				to = append(to, b.add(node{lo: c, hi: c, next: further}))
			} else if further >= 0 {
				to = append(to, further)
			}
		}
		known[p] = -1
		if len(to) > 0 {
			known[p] = b.fork(to...)
		}
		return known[p]
	}
	if first := behind(place{0, true, true, false}); first >= 0 {
		return first
	}
	return b.fork()
}
