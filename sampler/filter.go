package sampler

import (
	"math"
	"slices"
)

// A Candidate is a token that may be drawn.
type Candidate struct {
	ID      int32
	LogProb float32 // over the whole vocabulary, at the sampling temperature
	Prob    float64 // its exponential, which Draw sets
}

// A filter says how many of the candidates may be drawn: the first keep of likeliest; 0 means
// all, also those that follow likeliest, and -1 means that a longer likeliest is needed.
// likeliest has at least one candidate and descends; logTotal is the logarithm of the
// probability of all candidates that the filter chooses from, those not in likeliest too.
type filter func(s Sampling, likeliest []Candidate, logTotal float64) (keep int)

// filters apply in this order, each to the candidates that the previous one has kept. A
// new filter is a field of Sampling with its tags, a function, and an entry here.
var filters = []filter{topK, topP, minP}

func topK(s Sampling, likeliest []Candidate, _ float64) int {
	if s.TopK > len(likeliest) {
		return -1
	}
	return s.TopK
}

// topP keeps the likeliest candidates up to the first at which their probabilities reach the share TopP of the total.
func topP(s Sampling, likeliest []Candidate, logTotal float64) int {
	if s.TopP >= 1 {
		return 0
	}
	limit, sum := s.TopP*math.Exp(logTotal), 0.0
	for i, c := range likeliest {
		if sum += c.Prob; sum >= limit {
			return i + 1
		}
	}
	return -1
}

func minP(s Sampling, likeliest []Candidate, _ float64) int {
	if s.MinP == 0 {
		return 0
	}
	bound := float64(likeliest[0].LogProb) + math.Log(s.MinP)
	return slices.IndexFunc(likeliest, func(c Candidate) bool { return float64(c.LogProb) < bound })
}

// Filtered reports whether s restricts the choice.
func (s Sampling) Filtered() bool {
	off := Plain(s.MaxNewTokens)
	off.Temperature = s.Temperature
	return !s.Greedy && s != off
}

// Draw draws among the candidates that the filters keep, which it returns: the first id, in vocabulary order,
// whose cumulative probability exceeds u. likeliest descends, and all says whether the vocabulary has no other
// ids. If it has, and likeliest is too short to draw from, Draw reports false. Its length changes nothing else.
func (s Sampling) Draw(u float32, likeliest []Candidate, all bool) (drawn Candidate, kept []Candidate, ok bool) {
	if first := likeliest[0]; first.LogProb-first.LogProb != 0 {
		return first, likeliest, true // NaN or an infinity, which the caller refuses
	}
	for i := range likeliest {
		likeliest[i].Prob = math.Exp(float64(likeliest[i].LogProb))
	}
	logTotal := 0.0 // the whole vocabulary's probability is 1
	for _, filter := range filters {
		keep := filter(s, likeliest, logTotal)
		switch {
		case keep == 0 || keep < 0 && all: // the filter keeps all, or asks for more than there are
			continue
		case keep > 0:
			// Candidates that are equally likely are kept or left out together.
			for last := likeliest[keep-1]; keep < len(likeliest) && likeliest[keep].LogProb == last.LogProb; {
				keep++
			}
		}
		if keep < 0 || keep == len(likeliest) && !all { // an id not listed may be kept, or as likely as the last kept
			return drawn, nil, false
		}
		likeliest, all = likeliest[:keep], true // the next filter chooses from these alone
		logTotal = math.Log(totalProb(likeliest))
	}
	if !all {
		return drawn, nil, false
	}
	var few [128]uint64 // ids with their places, which sort faster than candidates
	order := few[:0]
	for i, c := range likeliest {
		order = append(order, uint64(c.ID)<<32|uint64(i))
	}
	slices.Sort(order)
	target, sum := float64(u)*totalProb(likeliest), 0.0
	for _, key := range order {
		c := likeliest[uint32(key)]
		if c.Prob > 0 { // rounding can bring the target to the end, but not to an id of probability 0
			drawn = c
		}
		if sum += c.Prob; sum > target {
			break
		}
	}
	return drawn, likeliest, true
}

// restrict makes x, a token with its log-prob over the whole vocabulary, a draw from the kept
// candidates alone: log q = log pi - log S, where S is their probability. It sorts them by id.
func (x *Drawn) restrict(kept []Candidate) {
	slices.SortFunc(kept, func(a, b Candidate) int { return int(a.ID - b.ID) })
	logS, entropy := math.Log(totalProb(kept)), 0.0
	if len(kept) == 1 {
		logS = float64(kept[0].LogProb) // exactly: log q is 0
	}
	x.Kept = make([]int32, len(kept))
	for i, c := range kept {
		x.Kept[i] = c.ID
		logQ := float64(c.LogProb) - logS
		if q := math.Exp(logQ); q > 0 {
			entropy -= q * logQ
		}
	}
	x.LogProb, x.Entropy = min(float32(float64(x.LogProb)-logS), 0), max(float32(entropy), 0)
}

// totalProb is the probability of candidates.
func totalProb(candidates []Candidate) (sum float64) {
	for _, c := range candidates {
		sum += c.Prob
	}
	return sum
}
