package sweep

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
)

// A panel is one small chart. It shows a metric, with a line for each variant.
type panel struct {
	Title string
	X     string // the unit of the x axis, such as "step"
	Lines []line
}

// A line is the mean of a metric over the seeds of a variant, as [x, value] pairs in
// the order of x.
type line struct {
	Variant string
	Points  [][2]float64
}

// Sizes of a panel and of the margins around its plot, in pixels.
const (
	panelColumns = 3
	panelWidth   = figureWidth / panelColumns
	panelHeight  = 168
	panelLeft    = 44
	panelTop     = 26
	panelBottom  = 24
	legendHeight = 22
)

// variantColors are easy to tell apart on light and on dark pages.
var variantColors = []string{"#3b82c4", "#e07b39", "#2f9e75", "#b75fb3", "#c9a227", "#d1495b", "#5b7f95", "#7a6ff0"}

// sweepDynamics draws panels as SVG, with one legend for all of them. A variant has the same
// colour in every panel. It returns an error if there are no panels or no variants.
func sweepDynamics(w io.Writer, variants []string, panels []panel) error {
	if len(panels) == 0 || len(variants) == 0 {
		return errors.New("variants: no dynamics to draw")
	}
	colors := map[string]string{}
	for i, v := range variants {
		colors[v] = variantColors[i%len(variantColors)]
	}
	rows := (len(panels) + panelColumns - 1) / panelColumns
	legendRows := (len(variants) + panelColumns - 1) / panelColumns
	height := legendRows*legendHeight + rows*panelHeight + margin

	var b bytes.Buffer
	begin(&b, height, 11, "path{fill:none;stroke-width:1.4;stroke-linejoin:round}")
	for i, v := range variants {
		x, y := panelLeft+i%panelColumns*panelWidth, 14+i/panelColumns*legendHeight
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`, x, y-4, colors[v])
		text(&b, float64(x+11), float64(y), "start", v)
	}
	for i, p := range panels {
		x, y := i%panelColumns*panelWidth, legendRows*legendHeight+i/panelColumns*panelHeight
		p.draw(&b, float64(x), float64(y), colors)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// draw draws a panel with its upper left corner at x0, y0.
func (p panel) draw(b *bytes.Buffer, x0, y0 float64, colors map[string]string) {
	text(b, x0+panelLeft, y0+16, "start", p.Title)
	left, right := math.Inf(1), math.Inf(-1)
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range p.Lines {
		for _, xy := range l.Points {
			left, right = min(left, xy[0]), max(right, xy[0])
			low, high = min(low, xy[1]), max(high, xy[1])
		}
	}
	if low > high {
		return
	}
	low, high, step := ticks(low, high, 2*(high-low)) // about three grid lines
	if right == left {
		right = left + 1
	}
	x := func(v float64) float64 {
		return x0 + panelLeft + (v-left)/(right-left)*(panelWidth-panelLeft-10)
	}
	y := func(v float64) float64 {
		return y0 + panelHeight - panelBottom - (v-low)/(high-low)*(panelHeight-panelTop-panelBottom)
	}
	for v := low; v <= high+step/2; v += step {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x(left), x(right), y(v), y(v))
		text(b, x(left)-6, y(v)+4, "end", sweepMetric{}.short(v))
	}
	text(b, x(left), y(low)+15, "start", fmt.Sprintf("%s %.0f", p.X, left))
	text(b, x(right), y(low)+15, "end", fmt.Sprintf("%.0f", right))
	for _, l := range p.Lines {
		fmt.Fprintf(b, `<path stroke="%s" d="`, colors[l.Variant])
		for i, xy := range l.Points {
			fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(i, 1)], x(xy[0]), y(xy[1]))
		}
		b.WriteString(`"/>`)
	}
	b.WriteByte('\n')
}

// text draws the string s at x, y.
func text(b *bytes.Buffer, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	xml.EscapeText(b, []byte(s)) // writing to a buffer cannot fail
	b.WriteString("</text>")
}
