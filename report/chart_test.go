package report

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSparkline(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		width  int
		want   string
	}{
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 20, "▁▂▃▄▅▆▇█"},
		{[]float64{0, 7}, 1, "▁"},
		{[]float64{0, math.NaN(), 1}, 3, "▁ █"},
		{[]float64{2, 2}, 2, "▅▅"},
		{nil, 5, ""},
	} {
		if got := sparkline(tt.values, tt.width); got != tt.want {
			t.Errorf("sparkline(%v, %d) = %q, want %q", tt.values, tt.width, got, tt.want)
		}
	}
}

// TestBrailleChart draws a rising line. It checks that the line begins at the bottom
// left and ends at the top right, and that no row is too wide.
func TestBrailleChart(t *testing.T) {
	lines := brailleChart([]float64{0, 1, 2, 3}, 20, 3)
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 20 {
			t.Errorf("%q is %d wide, want at most 20", l, n)
		}
	}
	if !strings.HasPrefix(strings.TrimSpace(lines[0]), "3 ") || !strings.HasPrefix(strings.TrimSpace(lines[2]), "0 ") {
		t.Errorf("axis labels of %q", lines)
	}
	last := func(s string) rune { r, _ := utf8.DecodeLastRuneInString(s); return r }
	if last(lines[0]) < 0x2800 || utf8.RuneCountInString(lines[0]) != 20 || utf8.RuneCountInString(lines[2]) >= 20 {
		t.Errorf("the line does not rise: %q", lines)
	}
	for _, values := range [][]float64{nil, {1}, {math.NaN(), math.Inf(1)}} {
		if got := brailleChart(values, 20, 2); len(got) != 2 {
			t.Errorf("%v: %q", values, got)
		}
	}
}

func TestMeter(t *testing.T) {
	for share, want := range map[float64]string{0: "░░░░", 0.5: "██░░", 1: "████", 3: "████", -1: "░░░░"} {
		if got := meter(share, 4); got != want {
			t.Errorf("meter(%v) = %q, want %q", share, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[2J\nb\u202e"); strings.ContainsAny(got, "\x1b\n\u202e") {
		t.Errorf("%q", got)
	}
}
