package data

import (
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/float16"
)

// shortestFloat32 returns the number with the fewest decimal digits that is x when read
// as float32: 0.1, and not 0.10000000149011612, is what was written.
func shortestFloat32(x float32) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil { // an infinity or no number
		return float64(x)
	}
	return y
}

// shortestFloat16 is shortestFloat32 for float16, whose numbers have at most 5 digits.
func shortestFloat16(x float16.Num) float64 {
	exact := float64(x.Float32())
	if exact == 0 || math.IsInf(exact, 0) || math.IsNaN(exact) {
		return exact
	}
	for digits := 1; digits <= 5; digits++ {
		y, err := strconv.ParseFloat(strconv.FormatFloat(exact, 'g', digits, 64), 64)
		if err == nil && float16.New(float32(y)) == x {
			return y
		}
	}
	return exact
}
