package eval

import (
	"math"
	"testing"

	"onering/sampler"
)

// TestReport follows a small evaluation by hand: two suites, four samples.
func TestReport(t *testing.T) {
	p := Plan{
		Settings: Settings{Model: "m", Template: "no", Samples: 4, Sampling: sampler.Plain(10)},
		Suites:   []suitePlan{{"one", []string{"a", "b"}, ""}, {"two", []string{"c"}, ""}},
	}
	r := must(newResponses(p))
	for _, x := range []struct {
		suite, problem string
		answers        string // one letter for each sample: a capital is right, "-" has no answer, "." is truncated
	}{{"one", "a", "ABAb"}, {"one", "b", "-.cC"}, {"two", "c", "xxXx"}} {
		for k, answer := range x.answers {
			y := Response{Suite: x.suite, Problem: x.problem, Sample: k, Answer: string(answer), Finish: "stop", Tokens: 10}
			switch {
			case answer == '-':
				y.Answer = ""
			case answer == '.':
				y.Finish, y.Tokens = "length", 30
			case answer < 'a':
				y.Right = true
			}
			if err := r.Add(y); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := must(r.Report(nil))
	one, two, all := report.Suites[0], report.Suites[1], *report.Average
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	near("one avg@4", one.Pass1.Value, (3.0/4+1.0/4)/2)
	near("two avg@4", two.Pass1.Value, 1.0/4)
	near("average", all.Pass1.Value, (0.5+0.25)/2)
	if one.PassK[0].K != 2 || one.PassK[1].K != 4 || len(one.PassK) != 2 {
		t.Fatalf("pass@k: %+v", one.PassK)
	}
	near("one pass@2", one.PassK[0].Value, (1+0.5)/2) // 1 - C(3,2)/C(4,2) = 1/2
	near("one pass@4", one.PassK[1].Value, 1)
	near("one maj@2", one.MajorityK[0].Value, 0.5) // A is at the same place before B; b abstains twice.
	near("one maj@4", one.MajorityK[1].Value, 0.5) // A; c before C
	near("two maj@4", two.MajorityK[1].Value, 0)
	near("one tokens", one.Tokens, (10+15)/2.0)
	near("one truncated", one.Truncated, 1.0/8)
	near("one unanswered", one.Unanswered, 1.0/8)
	near("one spread", one.Spread, math.Sqrt(2*0.75*0.25/3)/2)
	near("average spread", all.Spread, math.Sqrt(one.Spread*one.Spread+two.Spread*two.Spread)/2)
	if all.Problems != 3 || one.Outcomes[0] != (outcome{"a", 3, 10}) {
		t.Errorf("problems %d, outcome %+v", all.Problems, one.Outcomes[0])
	}
}

// TestTable2 recomputes an average of the paper's Table 2.
func TestTable2(t *testing.T) {
	p := Plan{Settings: Settings{Samples: 1, Sampling: sampler.Greedy(1)}}
	right := []int{5, 36, 309, 41, 192} // Qwen2.5-Math-1.5B has 16.7 43.4 61.8 15.1 28.4.
	for _, b := range Benchmarks {
		s := suitePlan{Name: b.Name}
		for i := range b.Problems {
			s.IDs = append(s.IDs, string(rune(i)))
		}
		p.Suites = append(p.Suites, s)
	}
	r := must(newResponses(p))
	for i, s := range p.Suites {
		for j, id := range s.IDs {
			if err := r.Add(Response{Suite: s.Name, Problem: id, Right: j < right[i]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := must(r.Report(nil))
	if got := percent(report.Average.Pass1.Value); got != "33.1" {
		t.Errorf("average %s, the paper has 33.1", got)
	}
	if report.Suites[0].PassK != nil || report.Suites[0].Spread != 0 {
		t.Error("one sample has no pass@k and no spread")
	}
}
