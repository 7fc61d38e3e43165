package pmpo_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"onering/objectives"
	"onering/objectives/pmpo"
)

// tails are ways in which the log-ratios of a response may be spread, each scaled to a
// standard deviation s. student has no standard deviation, so its quartiles equal those
// of a normal distribution.
var tails = []struct {
	name string
	draw func(r *rand.Rand, s float64) float64
}{
	{"gauss", func(r *rand.Rand, s float64) float64 { return s * r.NormFloat64() }},
	{"laplace", func(r *rand.Rand, s float64) float64 { return s / math.Sqrt2 * (r.ExpFloat64() - r.ExpFloat64()) }},
	// In language models four tokens of five hardly move.
	{"sparse", func(r *rand.Rand, s float64) float64 {
		if r.Float64() < 0.2 {
			return s * math.Sqrt(5) * r.NormFloat64()
		}
		return s * 0.02 * r.NormFloat64()
	}},
	// Two degrees of freedom.
	{"student", func(r *rand.Rand, s float64) float64 {
		return s * 0.6745 / 0.8165 * r.NormFloat64() / math.Sqrt(r.ExpFloat64())
	}},
	// The policy has moved towards the response.
	{"shifted", func(r *rand.Rand, s float64) float64 { return s * (0.5 + r.NormFloat64()) }},
}

// A studyRow is the mean over responses of each rule's result. The elements of a pair are
// for positive and negative advantages, whose clips leave opposite sides open.
type studyRow struct {
	f, eta            float64
	essAtMax          [2]float64
	paper, attainable [2]float64 // p
	atMax             [2]float64 // share of responses whose p by the paper's target is p_max
}

// study draws responses of n tokens and asks both targets for p.
func study(t testing.TB, draw func(*rand.Rand, float64) float64, std float64, n, responses int) (row studyRow) {
	r := rand.New(rand.NewPCG(1, math.Float64bits(std)))
	for side, advantage := range []float64{1, -1} {
		b := objectives.Batch{Trajectories: make([]objectives.Trajectory, responses)}
		for i := range b.Trajectories {
			x := objectives.Trajectory{Advantage: advantage, LogProb: make([]float64, n), OldLogProb: make([]float64, n)}
			for j := range x.LogProb {
				x.LogProb[j] = draw(r, std)
			}
			b.Trajectories[i] = x
		}
		each := 1 / float64(responses)
		for _, d := range newPMPO(t, nil).Diagnose(b) {
			row.f += each * *d.ClipFraction / 2
			row.eta += each * *d.TargetESS / 2
			row.essAtMax[side] += each * *d.ESSAtPMax
			row.paper[side] += each * *d.P
			if *d.AtPMax {
				row.atMax[side] += each
			}
		}
		for _, d := range newPMPO(t, func(o *pmpo.PMPO) { o.Target = "attainable" }).Diagnose(b) {
			row.attainable[side] += each * *d.P
		}
	}
	return row
}

// Example_saturation prints how often the published rule gives p_max, and which p the
// attainable target gives, for responses of 500 tokens with the default clip and p in
// [0.01, 0.99].
func Example_saturation() {
	fmt.Println("tails     std  |  f     eta*  | ESS(p_max)  |   p, paper    | share at p_max | p, attainable")
	fmt.Println("               |              |  A>0   A<0  |  A>0    A<0   |  A>0    A<0    |  A>0    A<0")
	for _, tail := range tails {
		for _, std := range []float64{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2} {
			x := study(new(testing.B), tail.draw, std, 500, 40)
			fmt.Printf("%-8s %.2f  | %.2f   %.2f  |  %.2f  %.2f |  %.2f   %.2f  |  %.2f   %.2f   |  %.2f   %.2f\n", tail.name, std, x.f, x.eta,
				x.essAtMax[0], x.essAtMax[1], x.paper[0], x.paper[1], x.atMax[0], x.atMax[1], x.attainable[0], x.attainable[1])
		}
	}
	// Output:
	// tails     std  |  f     eta*  | ESS(p_max)  |   p, paper    | share at p_max | p, attainable
	//                |              |  A>0   A<0  |  A>0    A<0   |  A>0    A<0    |  A>0    A<0
	// gauss    0.02  | 0.00   0.00  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.99   0.99
	// gauss    0.05  | 0.05   0.05  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.97   0.97
	// gauss    0.10  | 0.32   0.32  |  0.99  0.99 |  0.99   0.99  |  1.00   1.00   |  0.82   0.82
	// gauss    0.20  | 0.62   0.62  |  0.96  0.96 |  0.99   0.99  |  1.00   1.00   |  0.60   0.61
	// gauss    0.50  | 0.84   0.84  |  0.89  0.81 |  0.99   0.90  |  1.00   0.12   |  0.35   0.40
	// gauss    1.00  | 0.92   0.92  |  0.80  0.42 |  0.50   0.35  |  0.00   0.00   |  0.19   0.27
	// gauss    2.00  | 0.96   0.96  |  0.69  0.07 |  0.18   0.14  |  0.00   0.00   |  0.09   0.14
	// laplace  0.02  | 0.00   0.00  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.99   0.99
	// laplace  0.05  | 0.06   0.06  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.96   0.96
	// laplace  0.10  | 0.25   0.25  |  0.99  0.99 |  0.99   0.99  |  1.00   1.00   |  0.86   0.86
	// laplace  0.20  | 0.49   0.50  |  0.97  0.96 |  0.99   0.99  |  1.00   1.00   |  0.70   0.72
	// laplace  0.50  | 0.75   0.75  |  0.90  0.73 |  0.99   0.94  |  1.00   0.40   |  0.43   0.54
	// laplace  1.00  | 0.87   0.87  |  0.82  0.17 |  0.80   0.39  |  0.00   0.00   |  0.25   0.36
	// laplace  2.00  | 0.93   0.93  |  0.74  0.01 |  0.29   0.16  |  0.00   0.00   |  0.12   0.16
	// sparse   0.02  | 0.00   0.01  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.99   0.99
	// sparse   0.05  | 0.07   0.08  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.95   0.95
	// sparse   0.10  | 0.13   0.13  |  0.99  0.99 |  0.99   0.99  |  1.00   1.00   |  0.92   0.92
	// sparse   0.20  | 0.17   0.17  |  0.98  0.96 |  0.99   0.99  |  1.00   1.00   |  0.90   0.92
	// sparse   0.50  | 0.19   0.19  |  0.95  0.50 |  0.99   0.99  |  1.00   0.98   |  0.85   0.91
	// sparse   1.00  | 0.19   0.19  |  0.93  0.04 |  0.99   0.68  |  1.00   0.03   |  0.80   0.65
	// sparse   2.00  | 0.21   0.21  |  0.90  0.01 |  0.99   0.34  |  1.00   0.00   |  0.69   0.34
	// student  0.02  | 0.03   0.03  |  1.00  0.99 |  0.99   0.99  |  1.00   1.00   |  0.98   0.98
	// student  0.05  | 0.14   0.14  |  0.99  0.92 |  0.99   0.99  |  1.00   0.98   |  0.92   0.93
	// student  0.10  | 0.35   0.35  |  0.98  0.80 |  0.99   0.96  |  1.00   0.90   |  0.78   0.83
	// student  0.20  | 0.60   0.60  |  0.94  0.37 |  0.99   0.75  |  1.00   0.35   |  0.57   0.62
	// student  0.50  | 0.83   0.83  |  0.87  0.03 |  0.99   0.30  |  0.95   0.00   |  0.29   0.29
	// student  1.00  | 0.91   0.91  |  0.78  0.00 |  0.43   0.11  |  0.00   0.00   |  0.14   0.11
	// student  2.00  | 0.96   0.96  |  0.69  0.00 |  0.14   0.04  |  0.00   0.00   |  0.06   0.04
	// shifted  0.02  | 0.00   0.00  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.99   0.99
	// shifted  0.05  | 0.07   0.08  |  1.00  1.00 |  0.99   0.99  |  1.00   1.00   |  0.95   0.95
	// shifted  0.10  | 0.37   0.37  |  0.99  0.99 |  0.99   0.99  |  1.00   1.00   |  0.78   0.79
	// shifted  0.20  | 0.66   0.66  |  0.97  0.96 |  0.99   0.99  |  1.00   1.00   |  0.56   0.57
	// shifted  0.50  | 0.86   0.86  |  0.93  0.79 |  0.99   0.80  |  1.00   0.00   |  0.32   0.36
	// shifted  1.00  | 0.93   0.93  |  0.89  0.39 |  0.68   0.29  |  0.00   0.00   |  0.18   0.23
	// shifted  2.00  | 0.96   0.96  |  0.83  0.07 |  0.28   0.11  |  0.00   0.00   |  0.10   0.11
}

// TestStudy compares the study with figures that were found independently of this code,
// with 200 responses each and p to 1e-6.
func TestStudy(t *testing.T) {
	for _, c := range []struct {
		tail     int
		std      float64
		f        float64
		essAtMax [2]float64
		p        [2]float64
		atMax    [2]float64
	}{
		{0, 0.2, 0.617, [2]float64{0.964, 0.962}, [2]float64{0.99, 0.99}, [2]float64{1, 1}},
		{0, 0.5, 0.842, [2]float64{0.888, 0.812}, [2]float64{0.99, 0.905}, [2]float64{0.995, 0.105}},
		{0, 1, 0.920, [2]float64{0.799, 0.430}, [2]float64{0.496, 0.355}, [2]float64{0, 0}},
		{1, 1, 0.870, [2]float64{0.825, 0.187}, [2]float64{0.777, 0.388}, [2]float64{0, 0}},
		{2, 1, 0.195, [2]float64{0.926, 0.053}, [2]float64{0.99, 0.713}, [2]float64{1, 0.015}},
		{3, 0.5, 0.831, [2]float64{0.866, 0.042}, [2]float64{0.989, 0.287}, [2]float64{0.955, 0}},
		{4, 0.5, 0.860, [2]float64{0.928, 0.794}, [2]float64{0.99, 0.804}, [2]float64{1, 0.005}},
	} {
		x := study(t, tails[c.tail].draw, c.std, 500, 400)
		near := func(what string, got, want, tolerance float64) {
			if math.Abs(got-want) > tolerance {
				t.Errorf("%s, std %v: %s = %.3f, want %.3f", tails[c.tail].name, c.std, what, got, want)
			}
		}
		near("f", x.f, c.f, 0.01)
		for side, name := range []string{", A > 0", ", A < 0"} {
			near("ESS(p_max)"+name, x.essAtMax[side], c.essAtMax[side], 0.02)
			near("p"+name, x.paper[side], c.p[side], 0.03)
			near("share at p_max"+name, x.atMax[side], c.atMax[side], 0.07)
		}
	}
}

// TestAttainable: for light tails the attainable target gives p_max sqrt(1 - f).
func TestAttainable(t *testing.T) {
	for _, std := range []float64{0.02, 0.05, 0.1, 0.15} {
		x := study(t, tails[0].draw, std, 500, 40)
		for side, p := range x.attainable {
			if want := 0.99 * math.Sqrt(1-x.f); math.Abs(p-want) > 0.02 {
				t.Errorf("std %v, side %d: p = %.3f, want about %.3f", std, side, p, want)
			}
		}
	}
}

// students draws log-ratios of Student's t with so many degrees of freedom (0 is a
// normal distribution), times a scale.
func students(degrees int) func(r *rand.Rand, scale float64) float64 {
	return func(r *rand.Rand, scale float64) float64 {
		x := scale * r.NormFloat64()
		if degrees == 0 {
			return x
		}
		squares := 0.0
		for range degrees {
			z := r.NormFloat64()
			squares += z * z
		}
		return x / math.Sqrt(squares/float64(degrees))
	}
}

// paperP returns the mean p of the published rule with the given p_max, the share of
// responses at p_max and f, over responses half of which have positive advantage.
func paperP(t testing.TB, degrees, n int, scale, pMax float64) (p, atMax, f float64) {
	const responses = 60
	r := rand.New(rand.NewPCG(uint64(degrees), uint64(n)))
	draw := students(degrees)
	b := objectives.Batch{Trajectories: make([]objectives.Trajectory, responses)}
	for i := range b.Trajectories {
		x := objectives.Trajectory{Advantage: float64(1 - i%2*2), LogProb: make([]float64, n), OldLogProb: make([]float64, n)}
		for j := range x.LogProb {
			x.LogProb[j] = draw(r, scale)
		}
		b.Trajectories[i] = x
	}
	for _, d := range newPMPO(t, func(o *pmpo.PMPO) { o.PMax = pMax }).Diagnose(b) {
		p, f = p+*d.P/responses, f+*d.ClipFraction/responses
		if *d.AtPMax {
			atMax += 1.0 / responses
		}
	}
	return p, atMax, f
}

// Example_paper prints which log-ratios give the mean p that the paper reports, 0.8 at
// p_max = 0.99 and 1.2 at p_max = 4: by tail, spread and length. The figures stand in
// runs/results/experiments.md.
func Example_paper() {
	fmt.Println("tail    scale   n    | f    | p, p_max = 0.99  at p_max | p, p_max = 4  at p_max")
	for _, tail := range []struct {
		name    string
		degrees int
	}{{"normal", 0}, {"t, 5", 5}, {"t, 3", 3}, {"t, 2", 2}} {
		for _, scale := range []float64{0.1, 0.2, 0.35, 0.5} {
			for _, n := range []int{40, 200, 800, 2400} {
				p, atMax, f := paperP(new(testing.B), tail.degrees, n, scale, 0.99)
				p4, atMax4, _ := paperP(new(testing.B), tail.degrees, n, scale, 4)
				fmt.Printf("%-6s  %.2f    %-4d | %.2f | %.2f             %.2f     | %.2f          %.2f\n", tail.name, scale, n, f, p, atMax, p4, atMax4)
			}
		}
	}
	// Output:
	// tail    scale   n    | f    | p, p_max = 0.99  at p_max | p, p_max = 4  at p_max
	// normal  0.10    40   | 0.32 | 0.99             1.00     | 4.00          1.00
	// normal  0.10    200  | 0.31 | 0.99             1.00     | 4.00          1.00
	// normal  0.10    800  | 0.32 | 0.99             1.00     | 4.00          1.00
	// normal  0.10    2400 | 0.32 | 0.99             1.00     | 4.00          1.00
	// normal  0.20    40   | 0.60 | 0.99             1.00     | 3.66          0.45
	// normal  0.20    200  | 0.61 | 0.99             1.00     | 3.66          0.28
	// normal  0.20    800  | 0.62 | 0.99             1.00     | 3.71          0.17
	// normal  0.20    2400 | 0.61 | 0.99             1.00     | 3.75          0.12
	// normal  0.35    40   | 0.78 | 0.99             0.97     | 1.73          0.02
	// normal  0.35    200  | 0.77 | 0.99             1.00     | 1.75          0.00
	// normal  0.35    800  | 0.78 | 0.99             1.00     | 1.73          0.00
	// normal  0.35    2400 | 0.77 | 0.99             1.00     | 1.74          0.00
	// normal  0.50    40   | 0.84 | 0.92             0.57     | 1.12          0.00
	// normal  0.50    200  | 0.84 | 0.95             0.62     | 1.10          0.00
	// normal  0.50    800  | 0.84 | 0.95             0.55     | 1.08          0.00
	// normal  0.50    2400 | 0.84 | 0.96             0.50     | 1.09          0.00
	// t, 5    0.10    40   | 0.35 | 0.99             1.00     | 4.00          1.00
	// t, 5    0.10    200  | 0.36 | 0.99             1.00     | 3.99          0.98
	// t, 5    0.10    800  | 0.36 | 0.99             1.00     | 3.92          0.93
	// t, 5    0.10    2400 | 0.36 | 0.99             0.98     | 3.93          0.95
	// t, 5    0.20    40   | 0.63 | 0.99             1.00     | 3.15          0.20
	// t, 5    0.20    200  | 0.63 | 0.99             1.00     | 2.91          0.03
	// t, 5    0.20    800  | 0.64 | 0.98             0.98     | 2.69          0.00
	// t, 5    0.20    2400 | 0.64 | 0.98             0.98     | 2.71          0.00
	// t, 5    0.35    40   | 0.77 | 0.98             0.88     | 1.58          0.00
	// t, 5    0.35    200  | 0.78 | 0.97             0.87     | 1.42          0.00
	// t, 5    0.35    800  | 0.78 | 0.94             0.72     | 1.35          0.00
	// t, 5    0.35    2400 | 0.79 | 0.95             0.68     | 1.35          0.00
	// t, 5    0.50    40   | 0.85 | 0.82             0.43     | 0.96          0.00
	// t, 5    0.50    200  | 0.85 | 0.81             0.40     | 0.89          0.00
	// t, 5    0.50    800  | 0.85 | 0.78             0.47     | 0.85          0.00
	// t, 5    0.50    2400 | 0.85 | 0.79             0.50     | 0.85          0.00
	// t, 3    0.10    40   | 0.39 | 0.99             1.00     | 3.94          0.93
	// t, 3    0.10    200  | 0.39 | 0.99             1.00     | 3.78          0.78
	// t, 3    0.10    800  | 0.40 | 0.99             1.00     | 3.60          0.58
	// t, 3    0.10    2400 | 0.39 | 0.98             0.97     | 3.26          0.53
	// t, 3    0.20    40   | 0.65 | 0.99             0.98     | 2.84          0.07
	// t, 3    0.20    200  | 0.65 | 0.97             0.95     | 2.41          0.00
	// t, 3    0.20    800  | 0.65 | 0.97             0.90     | 2.24          0.00
	// t, 3    0.20    2400 | 0.65 | 0.95             0.78     | 2.12          0.00
	// t, 3    0.35    40   | 0.80 | 0.92             0.75     | 1.35          0.00
	// t, 3    0.35    200  | 0.80 | 0.87             0.58     | 1.19          0.00
	// t, 3    0.35    800  | 0.80 | 0.81             0.50     | 1.13          0.00
	// t, 3    0.35    2400 | 0.79 | 0.76             0.50     | 1.09          0.00
	// t, 3    0.50    40   | 0.85 | 0.77             0.35     | 0.85          0.00
	// t, 3    0.50    200  | 0.86 | 0.70             0.23     | 0.74          0.00
	// t, 3    0.50    800  | 0.86 | 0.68             0.32     | 0.71          0.00
	// t, 3    0.50    2400 | 0.85 | 0.66             0.42     | 0.68          0.00
	// t, 2    0.10    40   | 0.43 | 0.98             0.98     | 3.66          0.80
	// t, 2    0.10    200  | 0.43 | 0.94             0.88     | 3.09          0.55
	// t, 2    0.10    800  | 0.42 | 0.92             0.83     | 2.66          0.50
	// t, 2    0.10    2400 | 0.42 | 0.90             0.77     | 2.51          0.50
	// t, 2    0.20    40   | 0.67 | 0.95             0.88     | 2.26          0.05
	// t, 2    0.20    200  | 0.67 | 0.86             0.75     | 1.91          0.00
	// t, 2    0.20    800  | 0.67 | 0.77             0.52     | 1.76          0.00
	// t, 2    0.20    2400 | 0.67 | 0.72             0.50     | 1.67          0.00
	// t, 2    0.35    40   | 0.81 | 0.80             0.50     | 1.10          0.00
	// t, 2    0.35    200  | 0.80 | 0.70             0.50     | 0.95          0.00
	// t, 2    0.35    800  | 0.80 | 0.63             0.50     | 0.90          0.00
	// t, 2    0.35    2400 | 0.80 | 0.61             0.50     | 0.85          0.00
	// t, 2    0.50    40   | 0.87 | 0.60             0.20     | 0.66          0.00
	// t, 2    0.50    200  | 0.86 | 0.58             0.18     | 0.60          0.00
	// t, 2    0.50    800  | 0.86 | 0.55             0.12     | 0.55          0.00
	// t, 2    0.50    2400 | 0.86 | 0.52             0.03     | 0.53          0.00
}

// TestPaperP: log-ratios of Student's t with 3 degrees of freedom and scale 0.35 give p near
// the paper's at both of its p_max if all steps are alike, found independently of this code
// (0.81 and 1.13, f 0.79, half of the responses at p_max); those of a first run on a real
// model, normal with a standard deviation of at most 0.2, give p_max.
func TestPaperP(t *testing.T) {
	for _, c := range []struct {
		degrees     int
		scale, pMax float64
		p, atMax    float64
	}{
		{3, 0.35, 0.99, 0.81, 0.5},
		{3, 0.35, 4, 1.13, 0},
		{0, 0.05, 0.99, 0.99, 1},
		{0, 0.19, 0.99, 0.99, 1},
		{0, 0.05, 4, 4, 1},
	} {
		p, atMax, f := paperP(t, c.degrees, 800, c.scale, c.pMax)
		if math.Abs(p-c.p) > 0.06*max(1, c.pMax/2) || math.Abs(atMax-c.atMax) > 0.08 {
			t.Errorf("t with %d degrees, scale %v, p_max %v: p = %.3f, %.2f at p_max (f %.2f), want %v and %v", c.degrees, c.scale, c.pMax, p, atMax, f, c.p, c.atMax)
		}
	}
}
