package report

import (
	"fmt"
	"math"
	"onering/internal/stat"
	"slices"
	"strings"
)

// brailleDots[y][x] is the bit of the dot in row y and column x of a braille character, which has 4 x 2 dots.
var brailleDots = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// brailleChart draws values as a curve and returns the given number of rows, made of
// braille characters. width is the width of a row in terminal columns, with the labels
// of the axis. The curve has a gap where a value is not finite.
func brailleChart(values []float64, width, rows int) []string {
	const axis = 8 // columns that the labels take
	columns := max(1, width-axis)
	low, high := bounds(values)
	cells := make([][]rune, rows)
	for i := range cells {
		cells[i] = []rune(strings.Repeat("\u2800", columns)) // the braille character without dots
	}
	previous := -1 // the height in the column of dots before; -1 for a gap
	for x := range 2 * columns {
		y, ok := heightAt(values, x, 2*columns, low, high, 4*rows)
		if !ok {
			previous = -1
			continue
		}
		from := y
		if previous >= 0 {
			from = previous
		}
		for v := min(from, y); v <= max(from, y); v++ { // a vertical stroke joins the two
			row := 4*rows - 1 - v // from the top
			cells[row/4][x/2] |= brailleDots[row%4][x%2]
		}
		previous = y
	}
	lines := make([]string, rows)
	for i := range lines {
		label := ""
		switch i {
		case 0:
			label = fmt.Sprintf("%.3g", high)
		case rows - 1:
			label = fmt.Sprintf("%.3g", low)
		}
		lines[i] = strings.TrimRight(fmt.Sprintf("%*s %s", axis-1, label, string(cells[i])), "\u2800 ")
	}
	return lines
}

// heightAt returns the height of the curve in column x of n, from 0 for the value low to levels-1 for the value
// high. It interpolates between two values. ok is false if the value is not finite.
func heightAt(values []float64, x, n int, low, high float64, levels int) (height int, ok bool) {
	if len(values) == 0 {
		return 0, false
	}
	at := 0.0
	if n > 1 {
		at = float64(x) * float64(len(values)-1) / float64(n-1)
	}
	whole, part := math.Modf(at)
	v := values[int(whole)]
	if part > 0 {
		v += part * (values[int(whole)+1] - v)
	}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, false
	case high == low:
		return levels / 2, true
	}
	return int(math.Round((v - low) / (high - low) * float64(levels-1))), true
}

// bounds returns the smallest and the largest finite value, or 0 and 1 if there are no finite values.
func bounds(values []float64) (low, high float64) {
	if values = stat.Finite(values); len(values) == 0 {
		return 0, 1
	}
	return slices.Min(values), slices.Max(values)
}

// sparkline draws values in one line of at most width characters. A value that is not finite is a space.
func sparkline(values []float64, width int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	low, high := bounds(values)
	var b strings.Builder
	for x := range min(width, len(values)) {
		y, ok := heightAt(values, x, min(width, len(values)), low, high, len(levels))
		if !ok {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(levels[y])
	}
	return b.String()
}

// meter draws a bar of width characters that is filled up to share, which is limited to
// 0..1.
func meter(share float64, width int) string {
	full := int(math.Round(max(0, min(1, share)) * float64(width)))
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
