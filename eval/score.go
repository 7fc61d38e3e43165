package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"onering/internal/stat"
	"onering/reward"
)

// A Report tells how a model did on some suites.
type Report struct {
	Settings Settings `json:"settings"`
	Suites   []Score  `json:"suites"`
	// Average gives each suite the same weight; nil for a single one.
	Average *Score `json:"average,omitempty"`
}

// A Score sums up the responses to a suite. Shares are in [0, 1].
type Score struct {
	Suite    string `json:"suite"`
	Problems int    `json:"problems"`
	Samples  int    `json:"samples"` // number of samples of each problem
	// Pass1 is the mean share of right responses: pass@1, with several samples
	// also called avg@n.
	Pass1 stat.Estimate `json:"pass@1"`
	// PassK and MajorityK are over k = 2, 4, ... and n; empty for one sample.
	// pass@k is the unbiased estimate from all samples, maj@k the vote of the
	// first k.
	PassK     []atK `json:"pass@k,omitempty"`
	MajorityK []atK `json:"maj@k,omitempty"`
	// Spread is the standard error of Pass1 from the sampling alone: how far another seed
	// would move it. It is 0 for one sample, from which it cannot be known.
	Spread     float64 `json:"spread"`
	Tokens     float64 `json:"tokens"`     // mean length of a response
	Truncated  float64 `json:"truncated"`  // share of truncated responses
	Unanswered float64 `json:"unanswered"` // share of responses without an answer
	Faults     int     `json:"faults"`     // number of responses that the verifier gave up on
	// Outcomes are the suite's problems in order; nil in an average.
	Outcomes []outcome `json:"outcomes,omitempty"`
}

// An atK is a number for one k.
type atK struct {
	K int `json:"k"`
	stat.Estimate
}

// An outcome is how one problem went.
type outcome struct {
	Problem string  `json:"problem"`
	Right   int     `json:"right"` // number of right samples
	Tokens  float64 `json:"tokens"`
}

// Report sums up the responses, none of which may be missing. same says whether two
// answers mean the same, for maj@k; see majority.
func (r *Responses) Report(same func(a, b string) bool) (Report, error) {
	if have, want := r.Count(); have < want {
		return Report{}, fmt.Errorf("eval: %d of %d responses are there: resume the evaluation first", have, want)
	}
	out := Report{Settings: r.Settings}
	for _, s := range r.Suites {
		out.Suites = append(out.Suites, r.score(s, same))
	}
	if len(out.Suites) > 1 {
		a := averageScore(out.Suites)
		out.Average = &a
	}
	return out, nil
}

// score grades a suite, all of whose responses are there. same says whether two answers are one
// in a vote.
func (r *Responses) score(s suitePlan, same func(a, b string) bool) Score {
	n := r.Settings.Samples
	out := Score{Suite: s.Name, Problems: len(s.IDs), Samples: n}
	ks := powers(n)
	pass, vote := make([][]float64, len(ks)), make([][]float64, len(ks))
	for i, samples := range r.suites[s.Name].responses {
		o := outcome{Problem: s.IDs[i]}
		votes := make([]voting, n)
		for k, x := range samples {
			if x.Right {
				o.Right++
			}
			o.Tokens += float64(x.Tokens) / float64(n)
			if x.Truncated() {
				out.Truncated++
			}
			if !x.Truncated() || r.Settings.GradeTruncated {
				votes[k] = voting{x.Answer, x.Right}
			} // else the response abstains: its vote has no answer
			if x.Answer == "" && x.Reason != reward.ByEnvironment {
				out.Unanswered++
			}
			if x.Fault != "" {
				out.Faults++
			}
		}
		for j, k := range ks {
			pass[j] = append(pass[j], passAtK(n, o.Right, k))
			won := 0.0
			if k > 1 && majority(votes[:k], same) {
				won = 1
			}
			vote[j] = append(vote[j], won)
		}
		p := float64(o.Right) / float64(n)
		if n > 1 {
			out.Spread += p * (1 - p) / float64(n-1) // the variance of p, estimated from its n samples
		}
		out.Tokens += o.Tokens
		out.Outcomes = append(out.Outcomes, o)
	}
	problems := float64(len(s.IDs))
	out.Spread = math.Sqrt(out.Spread) / problems
	out.Tokens /= problems
	out.Truncated /= problems * float64(n)
	out.Unanswered /= problems * float64(n)
	for j, k := range ks {
		if k == 1 {
			out.Pass1 = stat.Share(pass[j], n)
			continue
		}
		// Each k samples give one vote, so there are n/k of them.
		out.PassK = append(out.PassK, atK{k, stat.Share(pass[j], max(1, n/k))})
		out.MajorityK = append(out.MajorityK, atK{k, stat.Share(vote[j], 1)}) // one vote of each problem, its first k samples'
	}
	return out
}

// averageScore returns the mean over suites, with the sums of their problems and faults.
func averageScore(suites []Score) Score {
	out := Score{Suite: "average", Samples: suites[0].Samples}
	n := float64(len(suites))
	var pass []stat.Estimate
	for _, s := range suites {
		out.Problems += s.Problems
		out.Faults += s.Faults
		out.Spread += s.Spread * s.Spread
		out.Tokens += s.Tokens / n
		out.Truncated += s.Truncated / n
		out.Unanswered += s.Unanswered / n
		pass = append(pass, s.Pass1)
	}
	out.Spread = math.Sqrt(out.Spread) / n
	out.Pass1 = stat.Average(pass)
	for j := range suites[0].PassK {
		var pass, vote []stat.Estimate
		for _, s := range suites {
			pass, vote = append(pass, s.PassK[j].Estimate), append(vote, s.MajorityK[j].Estimate)
		}
		k := suites[0].PassK[j].K
		out.PassK = append(out.PassK, atK{k, stat.Average(pass)})
		out.MajorityK = append(out.MajorityK, atK{k, stat.Average(vote)})
	}
	return out
}

// A voting is a response's answer; "" abstains, as do truncated responses that are
// not graded.
type voting struct {
	Answer string
	Right  bool
}

// majority says whether the answer that most votes agree on is right. A vote
// joins the group of an equal answer, else the first group for whose first answer
// same returns true; same may be nil. If the largest groups have the same size,
// the one that was begun first wins. If all abstain, the result is false.
//
// A group is right if its first answer is: a reward may accept one spelling of an
// answer and not another.
func majority(votes []voting, same func(a, b string) bool) bool {
	type group struct {
		first voting
		size  int
	}
	var groups []group
	groupOf := map[string]int{} // from an answer to its group
	for _, v := range votes {
		if v.Answer == "" {
			continue
		}
		g, known := groupOf[v.Answer]
		if !known {
			g = slices.IndexFunc(groups, func(g group) bool { return same != nil && same(g.first.Answer, v.Answer) })
			if g < 0 {
				g, groups = len(groups), append(groups, group{first: v})
			}
			groupOf[v.Answer] = g
		}
		groups[g].size++
	}
	if len(groups) == 0 {
		return false
	}
	return slices.MaxFunc(groups, func(a, b group) int { return cmp.Compare(a.size, b.size) }).first.Right // the first of the largest
}

// passAtK estimates the probability that at least one of k samples is right
// from n samples of which c are: 1 - C(n-c, k) / C(n, k), which is unbiased
// (Chen et al., "Evaluating Large Language Models Trained on Code", 2021,
// equation 1). It needs 0 <= c <= n and 1 <= k <= n. With k = 1 it is c/n.
//
// The quotient of binomials is the product over i = n-c+1 .. n of (1 - k/i),
// which neither overflows nor loses digits.
func passAtK(n, c, k int) float64 {
	if n-c < k {
		return 1 // any k samples contain a right one
	}
	if k == 1 {
		return float64(c) / float64(n)
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}

// powers returns the k at which pass@k and maj@k are reported: the powers of
// two up to n, and n.
func powers(n int) []int {
	var ks []int
	for k := 1; k < n; k *= 2 {
		ks = append(ks, k)
	}
	return append(ks, n)
}
