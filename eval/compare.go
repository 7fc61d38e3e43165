package eval

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"onering/internal/files"
	"onering/internal/stat"
	"onering/internal/strict"
)

// A comparison is how model B did beside model A on the same problems.
type comparison struct {
	A      Settings            `json:"a"`
	B      Settings            `json:"b"`
	Suites []settingDifference `json:"suites"`
	// Average gives each suite the same weight; nil for a single one.
	Average *settingDifference `json:"average,omitempty"`
	// Warnings say why the two reports are hard to compare.
	Warnings []string `json:"warnings,omitempty"`
}

// A settingDifference compares pass@1 (avg@n) over the problems that both have.
type settingDifference struct {
	Suite    string        `json:"suite"`
	Problems int           `json:"problems"`
	A        float64       `json:"a"`
	B        float64       `json:"b"`
	Delta    stat.Estimate `json:"difference"` // B - A
	// P is the two-sided p-value of the sign-flip permutation test: the chance of a difference this large between
	// models that are alike. With one sample a problem it is that of McNemar's exact test.
	P float64 `json:"p"`
	// BetterA and BetterB count the problems on which one model got a larger share right.
	BetterA int     `json:"better_a"`
	BetterB int     `json:"better_b"`
	TokensA float64 `json:"tokens_a"`
	TokensB float64 `json:"tokens_b"`

	weighted []float64 // each problem's part in the mean difference
}

// Compare pairs a with another report by suite and problem. It is an error if they have
// no problem in common.
func (a Report) Compare(b Report) (comparison, error) {
	out := comparison{A: a.Settings, B: b.Settings}
	warn := func(format string, args ...any) { out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...)) }
	differ := func(format string, x, y any) {
		if x != y {
			warn(format, x, y)
		}
	}
	x, y := a.Settings, b.Settings
	differ("the templates differ: %s and %s", x.Template, y.Template)
	differ("the system messages differ: %q and %q", x.System, y.System)
	differ("the arguments of the templates differ: %s and %s", fmt.Sprintf("%q", x.Args), fmt.Sprintf("%q", y.Args))
	differ("the rewards differ: %s and %s", cmp.Or(x.Reward, "math"), cmp.Or(y.Reward, "math"))
	differ("the environments differ: %s and %s", cmp.Or(x.Environment, "single turns"), cmp.Or(y.Environment, "single turns"))
	differ("the token limits differ: %d and %d", x.MaxNewTokens, y.MaxNewTokens)
	if x.Describe() != y.Describe() { // the number of samples, which sampling tells too, may differ
		warn("the samplings differ: %s and %s", x.sampling(), y.sampling())
	}
	differ("the rules by which answers are found differ: extract %s and %s", cmp.Or(x.Extract, "auto"), cmp.Or(y.Extract, "auto"))
	others := map[string]Score{}
	for _, s := range b.Suites {
		others[s.Suite] = s
	}
	for _, s := range a.Suites {
		other, ok := others[s.Suite]
		delete(others, s.Suite)
		if !ok {
			warn("only the first has suite %s", s.Suite)
			continue
		}
		d, ok := compareSuite(s, other)
		if !ok {
			warn("the two have no problem of suite %s in common", s.Suite)
			continue
		}
		if left := len(s.Outcomes) + len(other.Outcomes) - 2*d.Problems; left > 0 {
			warn("%d problems of suite %s are left out: only one of the two has them", left, s.Suite)
		}
		out.Suites = append(out.Suites, d)
	}
	for _, s := range b.Suites {
		if _, only := others[s.Suite]; only {
			warn("only the second has suite %s", s.Suite)
		}
	}
	if len(out.Suites) == 0 {
		return out, fmt.Errorf("eval: the two have no problem in common, so there is nothing to compare")
	}
	if len(out.Suites) > 1 {
		out.Average = averageDifference(out.Suites)
	}
	return out, nil
}

// compareSuite pairs the problems of two scores; ok is false if they share none.
func compareSuite(a, b Score) (settingDifference, bool) {
	others := map[string]outcome{}
	for _, o := range b.Outcomes {
		others[o.Problem] = o
	}
	d := settingDifference{Suite: a.Suite}
	var as, bs, flips []float64 // shares of right samples, and differences whose signs the test flips
	for _, x := range a.Outcomes {
		y, ok := others[x.Problem]
		if !ok {
			continue
		}
		as = append(as, float64(x.Right)/float64(a.Samples))
		bs = append(bs, float64(y.Right)/float64(b.Samples))
		// In units of 1/(samples of A x samples of B) the difference is an integer, as the exact test needs.
		diff := y.Right*a.Samples - x.Right*b.Samples
		switch {
		case diff > 0:
			d.BetterB++
		case diff < 0:
			d.BetterA++
		}
		flips = append(flips, float64(diff/gcd(a.Samples, b.Samples)))
		d.TokensA += x.Tokens
		d.TokensB += y.Tokens
	}
	n := float64(len(as))
	if n == 0 {
		return d, false
	}
	d.Problems = len(as)
	d.TokensA, d.TokensB = d.TokensA/n, d.TokensB/n
	d.Delta = stat.Difference(as, bs, a.Samples, b.Samples)
	d.A, d.B = stat.Mean(as), stat.Mean(bs)
	d.P = stat.SignFlip(flips)
	for i := range as {
		d.weighted = append(d.weighted, (bs[i]-as[i])/n) // for the average over suites
	}
	return d, true
}

// averageDifference returns the mean over suites, each with the same weight. Its p-value is over the
// problems of all of them, and its problems are their sum.
func averageDifference(suites []settingDifference) *settingDifference {
	out := settingDifference{Suite: "average"}
	n := float64(len(suites))
	var deltas []stat.Estimate
	for _, d := range suites {
		out.Problems += d.Problems
		out.BetterA += d.BetterA
		out.BetterB += d.BetterB
		out.A += d.A / n
		out.B += d.B / n
		out.TokensA += d.TokensA / n
		out.TokensB += d.TokensB / n
		deltas = append(deltas, d.Delta)
		out.weighted = append(out.weighted, d.weighted...)
	}
	out.Delta = stat.Average(deltas)
	out.P = stat.SignFlip(out.weighted)
	return &out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ReadReport reads a report (one JSON object, as Report marshals) or computes one from a
// file of responses. same says whether two answers mean the same, for maj@k; nil compares texts.
func ReadReport(path string, same func(a, b string) bool) (Report, error) {
	f, err := files.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return Report{}, fmt.Errorf("eval: %q: no such file; name a report, as --json prints it, or a file of responses", path)
	}
	var head []byte
	if err == nil {
		head, err = io.ReadAll(io.LimitReader(f, 64)) // enough for the kind, with which a file of responses begins
		f.Close()
	}
	if err != nil {
		return Report{}, fmt.Errorf("eval: %w", err)
	}
	if first, _, _ := bytes.Cut(head, []byte("\n")); bytes.Contains(first, []byte(responsesKind)) {
		r, err := readResponses(path)
		if err != nil {
			return Report{}, err
		}
		report, err := r.Report(same)
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return report, err
	}
	text, err := files.Read(path, maxLine)
	if err != nil {
		return Report{}, fmt.Errorf("eval: %w", err)
	}
	var r Report
	if err := strict.JSON(text, &r); err != nil {
		return r, fmt.Errorf("eval: %s is neither a report nor a file of responses: %w", path, err)
	}
	if len(r.Suites) == 0 {
		return r, fmt.Errorf("eval: %s is not a report: it has no suites", path)
	}
	for _, s := range r.Suites {
		if s.Samples < 1 || len(s.Outcomes) == 0 {
			return r, fmt.Errorf("eval: %s: suite %q has no outcomes of its problems", path, s.Suite)
		}
		for _, o := range s.Outcomes {
			if o.Right < 0 || o.Right > s.Samples {
				return r, fmt.Errorf("eval: %s: suite %q, problem %q: %d of %d samples right", path, s.Suite, o.Problem, o.Right, s.Samples)
			}
		}
	}
	return r, nil
}
