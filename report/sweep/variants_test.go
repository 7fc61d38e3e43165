package sweep

import (
	"encoding/xml"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/internal/stat"
)

// TestPaired compares with a case computed by hand: of the 16 combinations of signs of
// 1, 2, 3, 4, only two have a sum of 10 or -10.
func TestPaired(t *testing.T) {
	x := paired([]float64{1, 2, 3, 4})
	if x.N != 4 || x.Difference != 2.5 || x.P != 2.0/16 {
		t.Errorf("%+v", x)
	}
	// s = sqrt(5/3), SE = s/2, t(3) = 3.182.
	if se := math.Sqrt(5.0/3) / 2; math.Abs(x.SE-se) > 1e-12 || math.Abs(x.High-2.5-3.182*se) > 1e-12 {
		t.Errorf("SE %v, interval %v to %v", x.SE, x.Low, x.High)
	}
	if p := paired([]float64{1, -1, 2, -2}).P; p != 1 {
		t.Errorf("p = %v for differences that cancel, want 1", p)
	}
	if one := paired([]float64{3}); one.P != 1 || !math.IsNaN(one.SE) {
		t.Errorf("one pair: %+v", one)
	}
	if none := paired(nil); none.N != 0 || !math.IsNaN(none.P) {
		t.Errorf("no pair: %+v", none)
	}
}

func TestSignFlipSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SliceOfN(rapid.Float64Range(-10, 10), 1, 10).Draw(t, "d")
		negated := make([]float64, len(d))
		for i, x := range d {
			negated[i] = -x
		}
		p := stat.SignFlip(d)
		if p < math.Pow(2, -float64(len(d))) || p > 1 || p != stat.SignFlip(negated) {
			t.Fatalf("p = %v, negated %v", p, stat.SignFlip(negated))
		}
	})
}

// TestHolm computes the example of Holm's method with p = .01, .04, .03, .005.
func TestHolm(t *testing.T) {
	tests := []*pairedTest{{P: 0.01}, {P: 0.04}, {P: 0.03}, {P: 0.005}}
	adjustByHolm(tests)
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if math.Abs(tests[i].Adjusted-want) > 1e-12 {
			t.Errorf("adjusted p %d = %v, want %v", i, tests[i].Adjusted, want)
		}
	}
}

func TestTQuantile(t *testing.T) {
	for df, want := range map[int]float64{9: 2.262, 31: 2.040, 60: 2.000, 1000: 1.962} {
		if got := tQuantile(df); math.Abs(got-want) > 0.001 {
			t.Errorf("t(%d) = %v, want %v", df, got, want)
		}
	}
}

func example(t *testing.T) *sweepTable {
	var outcomes []outcome
	for seed := range int64(4) {
		outcomes = append(outcomes,
			outcome{Variant: "a", Seed: seed, Values: map[string]float64{"acc": 0.5 + 0.01*float64(seed), "norm": 2}},
			outcome{Variant: "b", Seed: 3 - seed, Values: map[string]float64{"acc": 0.4 + 0.01*float64(3-seed)}})
	}
	outcomes = append(outcomes, outcome{Variant: "b", Seed: 9, Failed: true})
	table, err := newTable([]sweepMetric{{"acc", "accuracy", true}, {"norm", "", false}}, 1, []string{"a", "b"}, outcomes,
		[]question{{First: "a", Second: "b", Claim: "a is better"}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestNew checks that pairs have equal seeds: a and b differ by exactly 0.1 on each
// seed.
func TestNew(t *testing.T) {
	table := example(t)
	x := table.Comparisons[0].Test
	if x.N != 4 || math.Abs(x.Difference-0.1) > 1e-12 || x.SE > 1e-12 || x.P != 0.125 || x.Adjusted != 0.125 {
		t.Errorf("%+v", x)
	}
	if r := table.Rows[1]; r.Runs != 4 || r.Failed != 1 || !math.IsNaN(r.Mean[1]) {
		t.Errorf("%+v", r)
	}
	if _, err := newTable(table.Metrics, 1, []string{"a"}, nil, []question{{First: "a", Second: "c"}}); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("an unknown variant: %v", err)
	}
}

func TestMarkdown(t *testing.T) {
	const want = `| variant | runs | accuracy, % | range | norm |
|---|---|---|---|---|
| a | 4 | 51.5 ± 0.6 | 50.0 to 53.0 | 2 |
| b | 4 (1 failed) | 41.5 ± 0.6 | 40.0 to 43.0 | - |

| comparison | seeds | first − second | 95 % interval | p | p, Holm of 1 | stated before |
|---|---|---|---|---|---|---|
| a vs b | 4 | +10.0 ± 0.0 | +10.0 to +10.0 | 0.125 | 0.125 | a is better |
`
	if got := example(t).Markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var b strings.Builder
	if err := example(t).Print(&b); err != nil || !strings.Contains(b.String(), "a vs b") {
		t.Errorf("%v: %q", err, b.String())
	}
}

func TestReplaceBlock(t *testing.T) {
	const page = "x\n<!-- a -->\nold\n<!-- end -->\ny\n<!-- b -->\n<!-- end -->\n"
	got, err := replaceBlock(page, "a", "new\n")
	if want := strings.Replace(page, "old", "new", 1); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := replaceBlock(page, "c", ""); err == nil {
		t.Error("a block that is not there")
	}
	if _, err := replaceBlock("<!-- a -->\n", "a", ""); err == nil {
		t.Error("a block without an end")
	}
}

// TestFigure checks that the SVG is well-formed and has a dot for every seed, within
// the figure.
func TestFigure(t *testing.T) {
	table := example(t)
	table.Rows[0].Variant = "a <b>"
	table.Rows[0].Values, table.Rows[1].Values = []float64{0.5, 0.51, 0.52}, []float64{0.4, 0.41}
	var b strings.Builder
	if err := table.Figure(&b); err != nil {
		t.Fatal(err)
	}
	seeds := 0
	for _, e := range elements(t, b.String()) {
		if e.Name.Local != "circle" {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "class" && a.Value == "seed" {
				seeds++
			}
			if x, err := strconv.ParseFloat(a.Value, 64); a.Name.Local == "cx" && (err != nil || x < labelWidth || x > figureWidth) {
				t.Errorf("a dot at x = %s", a.Value)
			}
		}
	}
	if seeds != 5 {
		t.Errorf("%d dots, want 5", seeds)
	}
	table.Rows = nil
	if err := table.Figure(&b); err == nil {
		t.Error("a figure of nothing")
	}
}

// elements returns the elements of an SVG, which must be well-formed.
func elements(t *testing.T, svg string) (list []xml.StartElement) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			list = append(list, e)
		}
	}
}
