package tools

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCalculate(t *testing.T) {
	for _, tt := range []struct{ expression, want string }{
		{"9+5+0", "14"}, {"2 + 3*4", "14"}, {"(2+3)*4", "20"}, {"10-4-3", "3"}, {"100/10/5", "2"}, {"2^3^2", "512"}, {"-2^2", "-4"},
		{"(-2)^2", "4"}, {"2^-1", "0.5"}, {"2**10", "1024"}, {"1/3", "1/3"}, {"0.1+0.2", "0.3"}, {".5*4", "2"}, {"5.*2", "10"}, {"--3", "3"}, {"+3", "3"},
		{"3 × 4 ÷ 6 − 1", "1"}, {"(-1)^99", "-1"}, {"0^0", "1"}, {"1^(-7)", "1"}, {"0*7", "0"}, {"7/2", "3.5"}, {"2^100", "1267650600228229401496703205376"},
		{"\t1\n+ 1 ", "2"}, {"1/2/2", "0.25"}, {"2^0", "1"}, {"(2/3)^2", "4/9"}, {"007", "7"}, {"(1 )", "1"},
		{"", "ends where a number"}, {"2+", "ends where a number"}, {"2 3", `read at "3"`}, {"(2", "where a number or )"},
		{"2)", `read at ")"`}, {"1.2.3", `read at "1.2.3"`}, {".", `read at "."`}, {"1/0", "division by zero"}, {"0^-1", "division by zero"}, {"2^0.5", "whole number"},
		{"9^9^9^9", "too large"}, {"2^99999", "too large"}, {"2^99999999999999999999", "too large"}, {"é", `read at "é"`}, {"2é", `read at "é"`}, {"1,000", `read at ",000"`}, {"1e5", `"e5"`}, {"x", `"x"`},
		{strings.Repeat("(", 2000) + "1", "at most 200 parentheses"}, {strings.Repeat("-", 2000) + "1", "at most 200"}, {strings.Repeat("2^", 2000) + "1", "at most 200"},
		{strings.Repeat("1", 5000), "at most 4096 characters"}, {strings.Repeat("9", 4000), "too large"}, {"1/" + strings.Repeat("3", 1300), "too large"}, {"\xff", "cannot be read"},
	} {
		value, err := calculate(tt.expression)
		got := fmt.Sprint(err)
		if err == nil {
			got = written(value, true)
		}
		if err == nil && got != tt.want || !strings.Contains(got, tt.want) {
			t.Errorf("%.40q is %q, want %q", tt.expression, got, tt.want)
		}
	}
}

// TestCalculateDrawn: the value of a written tree of numbers and operators equals the tree's value.
func TestCalculateDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var draw func(depth int) (string, *big.Rat)
		draw = func(depth int) (string, *big.Rat) {
			if depth == 0 || rapid.Bool().Draw(t, "leaf") {
				n := rapid.Int64Range(0, 999).Draw(t, "n")
				return fmt.Sprint(n), big.NewRat(n, 1)
			}
			a, x := draw(depth - 1)
			b, y := draw(depth - 1)
			switch op := rapid.SampledFrom([]string{"+", "-", "*", "/", "neg"}).Draw(t, "op"); {
			case op == "+":
				return "(" + a + "+" + b + ")", new(big.Rat).Add(x, y)
			case op == "-":
				return "(" + a + " - " + b + ")", new(big.Rat).Sub(x, y)
			case op == "/" && y.Sign() != 0:
				return "(" + a + "/" + b + ")", new(big.Rat).Quo(x, y)
			case op == "neg":
				return "(-" + a + ")", new(big.Rat).Neg(x)
			default:
				return "(" + a + "*" + b + ")", new(big.Rat).Mul(x, y)
			}
		}
		text, want := draw(4)
		got, err := calculate(text)
		if err != nil || got.Cmp(want) != 0 {
			t.Fatalf("%s is %v, %v, want %v", text, got, err, want)
		}
	})
}

// TestPlainValue: a model without a chat template reads the value of the expression before =.
func TestPlainValue(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"9+5+0", "14"}, {"9+5+0=14;2+5+1", "8"}, {"so 12 - 5", "7"}, {`\boxed{3}*2`, ""}, {"é7-9", "-2"}, {"", ""}, {"x", ""}, {"1/0", ""}, {"7/2", "7/2"}, {"7.0/2", "3.5"}, {"1/3.0", "1/3"}, {"(1+", ""}, {"\xff8", "8"},
	} {
		if got := plainValue(tt.text); got != tt.want {
			t.Errorf("%q is answered with %q, want %q", tt.text, got, tt.want)
		}
	}
}
