package doctor

import (
	"math"
	"slices"
	"strings"

	"onering/data"
	"onering/internal/stat"
	"onering/train/metrics"
	"onering/verifier"
)

// A reading is the figures of a round's responses by which the rules judge. Shares are of the
// graded responses, and pairs are of responses to one problem.
type reading struct {
	*Facts
	record metrics.Record
	round  *Round
	before metrics.Exact
	graded []graded
	groups [][]graded // by problem

	answersKnown bool    // all problems have answers, so there is a second verdict
	right        float64 // share that is right by the second verdict, else by the reward

	skipped, truncated, outOfTurns float64 // shares of all responses; truncated are those that ran into the limit of tokens
	wentOn, endedEarly             float64 // shares of all responses: went on after token, ended at token
	token                          string
	stopped, stoppedRight          float64 // share that a stop text ended, and of right ones among these
	unanswered                     float64

	equalRewards, sameText                            float64 // shares of the groups in which all are equal
	commonestText, commonestReward                    float64 // shares of the responses that have them
	rewardMean, rewardLeast, rewardMost, rewardSpread float64 // the spread is the deviation within groups
	agreeing                                          float64 // share of pairs of answers that are equal
	rightEarnsMore, wrongEarnsMore, earnAlike         float64 // numbers of pairs of a right and a wrong answer
	twins, twinsPaidApart                             float64 // numbers of pairs of equal texts, and of those with other rewards
	equalPairs                                        float64 // share of the pairs that are twins
	noise                                             float64 // share of the rewards' variance within groups that twins have, too
	entropy, surprise                                 float64 // nats per token
	hiddenEntropy                                     float64 // mean over responses of entropy less surprise, in standard errors
	lengthCorrelation                                 float64 // of reward and length within groups
}

// A graded is a response with the second verdict: what the verifier says of the answer that it
// finds anywhere in the response.
type graded struct {
	*Response
	found string // the answer that was found anywhere
	right bool
}

// anywhere looks for answers in tags, boxes and running text.
var anywhere = verifier.Verifier{Mode: verifier.Auto}

// count is 1 for true, to count by adding.
func count(x bool) float64 {
	if x {
		return 1
	}
	return 0
}

// figuresOf computes the figures of a round: it adds over the responses, divides by their numbers, and compares
// within groups. Of responses that the reward skipped it only counts how they ended.
func (d *Doctor) figuresOf(r metrics.Record, round *Round) *reading {
	p := &reading{Facts: &d.facts, record: r, round: round, groups: make([][]graded, len(round.Problems)), before: d.state.Before}
	// Only if every problem has an answer is there a second verdict, beside the reward's.
	p.answersKnown = !slices.ContainsFunc(round.Problems, func(q data.Problem) bool { return len(q.Answers) == 0 })
	var hidden []float64                                         // of each response, the entropy less the surprise of its tokens
	texts, values := map[string]float64{}, map[float64]float64{} // how often each text and each reward occurs
	tokens, told := 0.0, 0.0                                     // told: responses that an environment judged, which need no answer
	for i := range round.Responses {
		x := graded{Response: &round.Responses[i]}
		tokens += float64(x.Tokens)
		p.entropy += x.Entropy
		p.surprise -= x.LogProb // what the sampled tokens show of the entropy
		hidden = append(hidden, x.Entropy+x.LogProb)
		if x.WentOnAfter+x.EndsAt != "" {
			p.token = x.WentOnAfter + x.EndsAt // a response has one of them at most
		}
		p.wentOn += count(x.WentOnAfter != "")
		p.endedEarly += count(x.EndsAt != "")
		p.truncated += count(x.Truncated && !x.OutOfTurns)
		p.outOfTurns += count(x.OutOfTurns)
		p.skipped += count(x.Skipped)
		if x.Skipped {
			continue
		}
		// A reward that compares no answers may call anything right: then only the verifier's verdict counts.
		x.right = x.Judged && x.Right && (p.ComparesAnswers || !p.answersKnown)
		if p.answersKnown {
			v := anywhere.VerifyAny(round.Problems[x.Problem].Answers, x.Text)
			x.found, x.right = v.Answer, v.Correct && !x.Truncated || x.right // by the verifier or by the reward
		}
		p.stopped += count(x.Stopped)
		p.stoppedRight += count(x.Stopped && x.right)
		told += count(x.Told)
		p.unanswered += count(!x.Told && x.Answer == "")
		p.right += count(x.right)
		texts[x.Text]++
		values[x.Value]++
		p.commonestText, p.commonestReward = max(p.commonestText, texts[x.Text]), max(p.commonestReward, values[x.Value])
		p.graded, p.groups[x.Problem] = append(p.graded, x), append(p.groups[x.Problem], x)
	}
	for _, x := range []*float64{&p.wentOn, &p.endedEarly, &p.truncated, &p.outOfTurns, &p.skipped} {
		*x /= float64(len(round.Responses))
	}
	n := float64(len(p.graded))
	p.stoppedRight, p.unanswered = p.stoppedRight/p.stopped, p.unanswered/(n-told)
	for _, x := range []*float64{&p.stopped, &p.right, &p.commonestText, &p.commonestReward} {
		*x /= n
	}
	p.hiddenEntropy = stat.Mean(hidden) / stat.StandardError(hidden) // about 0 where tokens are drawn from all of the distribution
	p.entropy, p.surprise = p.entropy/tokens, p.surprise/tokens
	p.compareWithinGroups()
	return p
}

// share returns the share of the graded responses that are so.
func (p *reading) share(so func(graded) bool) (share float64) {
	for _, x := range p.graded {
		share += count(so(x)) / float64(len(p.graded))
	}
	return share
}

// compareWithinGroups compares the rewards, texts, lengths and answers within groups of two or more, and sets
// the figures of p that follow from that.
func (p *reading) compareWithinGroups() {
	var rewards, fromMean, lengthFromMean []float64 // distances from the means of the groups
	groups, answerPairs, pairs := 0.0, 0.0, 0.0     // answerPairs: pairs in which both have an answer
	for _, group := range p.groups {
		if len(group) < 2 {
			continue
		}
		var values, lengths []float64
		same := true
		for i, x := range group {
			values, lengths = append(values, x.Value), append(lengths, float64(x.Tokens))
			same = same && x.Text == group[0].Text
			for _, y := range group[:i] { // each pair once
				p.countPair(x, y) // it adds to twins and noise, and to who earns more, the right or the wrong one
				pairs++
				both := x.answer() != "" && y.answer() != ""
				answerPairs += count(both)
				p.agreeing += count(both && x.answer() == y.answer())
			}
		}
		groups++
		p.sameText += count(same)
		p.equalRewards += count(slices.Max(values) == slices.Min(values))
		rewards, fromMean = append(rewards, values...), append(fromMean, deviations(values)...)
		lengthFromMean = append(lengthFromMean, deviations(lengths)...)
	}
	p.equalPairs = p.twins / max(1, pairs)
	p.equalRewards, p.sameText, p.agreeing = p.equalRewards/groups, p.sameText/groups, p.agreeing/max(1, answerPairs)
	p.rewardMean, p.rewardLeast, p.rewardMost = stat.Mean(rewards), stat.Quantile(rewards, 0), stat.Quantile(rewards, 1)
	p.lengthCorrelation = correlation(fromMean, lengthFromMean)
	_, p.rewardSpread = metrics.Moments(fromMean)
	p.noise /= max(1, p.twins) * p.rewardSpread * p.rewardSpread // from a sum over twins to a share of the variance
}

// countPair counts two responses to a problem: as twins if they are the same text, whose rewards differ by noise alone, and
// by which earns more if one is right and the other one wrong; truncated ones may earn nothing for another reason.
func (p *reading) countPair(x, y graded) {
	if x.Text == y.Text && x.Tokens == y.Tokens {
		off := x.Value - y.Value
		p.twins++
		p.twinsPaidApart += count(math.Abs(off) > 1e-12*math.Abs(x.Value)) // more than rounding
		p.noise += off * off / 2                                           // the variance of two values
	}
	if x.right == y.right || x.Truncated || y.Truncated {
		return
	}
	if y.right {
		x, y = y, x
	}
	p.rightEarnsMore += count(x.Value > y.Value) // x is the right one
	p.wrongEarnsMore += count(x.Value < y.Value)
	p.earnAlike += count(x.Value == y.Value)
}

// answer returns the answer that the reward read, or else the one that stands anywhere.
func (x graded) answer() string {
	if x.Answer != "" {
		return x.Answer
	}
	return x.found
}

// deviations returns the distances from the mean.
func deviations(x []float64) []float64 {
	mean, out := stat.Mean(x), make([]float64, len(x))
	for i, v := range x {
		out[i] = v - mean
	}
	return out
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// correlation returns the correlation of distances from means, 0 if one has none.
func correlation(a, b []float64) float64 {
	if size := math.Sqrt(dot(a, a) * dot(b, b)); size > 0 {
		return dot(a, b) / size
	}
	return 0
}

// example returns a short form of a text for a message.
func example(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 24 {
		text = string(r[:24]) + "…"
	}
	return text
}
