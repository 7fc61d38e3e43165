package sweep

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
)

// Sizes of the figure, in pixels.
const (
	figureWidth = 760
	labelWidth  = 190
	rowHeight   = 24
	margin      = 16
)

// Figure draws the first metric as SVG. Each variant has a row with a dot for each seed, the mean and the 95 %
// interval of the mean. The colours suit light and dark pages. It returns an error if there are no values.
func (t *sweepTable) Figure(w io.Writer) error {
	var all []float64
	for _, r := range t.Rows {
		all = append(all, r.Values...)
	}
	if len(all) == 0 {
		return fmt.Errorf("variants: no value of %q to draw", t.Metrics[0].Name)
	}
	low, high := slices.Min(all), slices.Max(all)
	low, high, step := ticks(low, high)
	x := func(v float64) float64 {
		return labelWidth + (v-low)/(high-low)*(figureWidth-labelWidth-margin)
	}
	bottom := float64(margin + rowHeight*len(t.Rows))
	height := int(bottom) + 40 // with the two lines of text of the axis

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="12">`+"\n", figureWidth, height)
	b.WriteString("<style>text{fill:#3c4654}.grid{stroke:#d6dbe1}.seed{fill:#3b82c4;fill-opacity:.4}.mean{stroke:#d1495b;stroke-width:2}.dot{fill:#d1495b}" +
		"@media(prefers-color-scheme:dark){text{fill:#b9c2cd}.grid{stroke:#39424e}}</style>\n")
	for v := low; v <= high+step/2; v += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/>`, x(v), x(v), margin, bottom)
		drawText(&b, x(v), bottom+16, "middle", t.Metrics[0].short(v))
		b.WriteByte('\n')
	}
	for i, r := range t.Rows {
		y := float64(margin) + rowHeight*(float64(i)+0.5)
		drawText(&b, labelWidth-14, y+4, "end", r.Variant)
		for _, v := range r.Values {
			fmt.Fprintf(&b, `<circle class="seed" cx="%.1f" cy="%.1f" r="3.5"/>`, x(v), y)
		}
		if m, se := r.Mean[0], r.SE[0]; !math.IsNaN(m) {
			if half := tQuantile(len(r.Values)-1) * se; !math.IsNaN(half) { // half the interval
				fmt.Fprintf(&b, `<line class="mean" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x(max(low, m-half)), x(min(high, m+half)), y, y)
			}
			fmt.Fprintf(&b, `<circle class="dot" cx="%.1f" cy="%.1f" r="4"/>`, x(m), y)
		}
		b.WriteByte('\n')
	}
	drawText(&b, x((low+high)/2), bottom+34, "middle", t.Metrics[0].title())
	b.WriteString("\n</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// drawText draws the string s at x, y.
func drawText(b *bytes.Buffer, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	xml.EscapeText(b, []byte(s)) // writing to a buffer cannot fail
	b.WriteString("</text>")
}

// ticks returns the grid lines around a range (first and last), and a round distance (step) between about six lines.
func ticks(low, high float64) (first, last, step float64) {
	step = 0.1
	if span := high - low; span > 0 {
		power := math.Pow(10, math.Floor(math.Log10(span/6)))
		for _, k := range []float64{1, 2, 5, 10} {
			if step = k * power; span/step <= 8 {
				break
			}
		}
	}
	first, last = step*math.Floor(low/step), step*math.Ceil(high/step)
	if last == first {
		last = first + step
	}
	return first, last, step
}

// short formats a value for the labels of an axis.
func (m sweepMetric) short(x float64) string {
	if m.Percent {
		x *= 100
	}
	return fmt.Sprintf("%.4g", math.Round(x*1e6)/1e6)
}
