package jinja

import (
	"math/big"
	"strings"
)

// A price is the cost of one use of a feature: a constant, and an amount for each
// scanShare bytes of its arguments. Making values and reading elements cost extra.
type price struct{ flat, per int }

// prices has everything that a template can use, by kind and name; a test walks it.
var prices = map[string]map[string]price{}

// init fills prices. A row of its table is the price of one use, as {flat, per scanShare bytes of the arguments}, the kind
// of what is used, and the names of that kind that cost so much.
func init() {
	for _, p := range []struct {
		price
		kind, names string
	}{
		{price{0, 0}, "method", "keys values items copy"}, // elements are paid for as they are read
		{price{0, 1}, "method", "strip lstrip rstrip join startswith endswith get isalpha isspace isnumeric isdecimal isdigit isalnum islower isupper isascii"},
		{price{0, 8}, "method", "find rfind index rindex count rsplit partition rpartition removeprefix removesuffix splitlines"},
		{price{0, 8}, "method", "split"},
		{price{0, 16}, "method", "upper lower capitalize title replace format"},

		{price{0, 0}, "filter", "d default first string safe list items"},
		{price{0, 1}, "filter", "count length map select reject selectattr rejectattr join dictsort sort unique trim last min max sum groupby batch"},
		{price{0, 8}, "filter", "tojson format reverse wordcount abs"},
		{price{0, 16}, "filter", "capitalize lower upper replace indent"},
		{price{0, 32}, "filter", "title"},
		{price{64, 64}, "filter", "int float"},
		{price{512, 1}, "filter", "round"}, // up to 300 digits are written and read

		{price{0, 0}, "test", "defined undefined none boolean false true integer float number string mapping sequence iterable callable escaped filter test"},
		{price{0, 1}, "test", "odd even divisibleby in == eq equalto != ne > gt greaterthan >= ge < lt lessthan <= le lower upper"},

		{price{elementCost, 0}, "function", "range"},
		{price{0, 1}, "function", "namespace dict raise_exception"},
		{price{0, 64}, "function", "strftime_now"},

		{price{elementCost, 1}, "operator", "== < in [] - * / // unary"},
		{price{elementCost, 8}, "operator", "+ % ~ [:]"},
	} {
		if prices[p.kind] == nil {
			prices[p.kind] = map[string]price{}
		}
		for _, name := range strings.Fields(p.names) {
			prices[p.kind][name] = p.price
		}
	}
}

// pay takes the price of a use with these values.
func (r *run) pay(kind, name string, values ...Value) {
	p := prices[kind][name]
	r.spend(p.flat)
	for _, v := range values {
		if p.per > 0 {
			r.spendTimes(size(v)/scanShare+1, p.per)
		}
	}
}

// payCall is pay for a call.
func (r *run) payCall(kind, name string, of Value, a arguments) {
	r.pay(kind, name, of)
	r.pay(kind, name, a.positional...)
	r.pay(kind, name, a.named...)
}

// size returns how many bytes a text or an integer has, 0 for other values.
func size(v Value) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case markup:
		return len(v)
	case *big.Int:
		return v.BitLen() / 8
	}
	return 0
}

// payKey pays for hashing a value.
func (r *run) payKey(v Value) { r.spend(1 + size(v)) }

// checkKey fails for a value that cannot be a key, and returns the hash of others.
func (r *run) checkKey(v Value) any {
	r.payKey(v)
	h, ok := hash(v)
	_, isTuple := v.(tuple)
	r.failIf(isTuple, "a tuple as a key is not supported")
	if !ok {
		r.fail("unhashable type: '%s'", typeName(v))
	}
	return h
}
