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

	known                           bool    // all problems have answers, so there is a second verdict
	right                           float64 // share that is right by the second verdict, else by the reward
	skipped, truncated, turned      float64 // shares of all responses; turned ran out of turns, and truncated into the limit of tokens
	passed, early                   float64 // of all responses: went on after token, ended at token
	token                           string
	stopped, stoppedRight           float64 // share that a stop text ended, and of right ones among these
	unanswered                      float64
	flat, same, alike, level, twice float64 // share of groups with equal rewards, and with equal texts; shares of the commonest text and reward; share of pairs with equal texts
	mean, least, most, spread       float64 // of the rewards; spread is the deviation within groups
	agree                           float64 // share of pairs of answers that are equal
	ahead, behind, ties             float64 // pairs of a right and a wrong answer, by which earns more
	twins, differ                   float64 // pairs of equal texts, and those among them with other rewards
	noise                           float64 // share of the rewards' variance within groups that equal texts have, too
	entropy, surprise, hidden       float64 // per token; their difference in standard errors
	length                          float64 // correlation of reward and length within groups
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

// one is 1 for true.
func one(x bool) float64 {
	if x {
		return 1
	}
	return 0
}

// read makes the figures of a round.
func (d *Doctor) read(r metrics.Record, round *Round) *reading {
	p := &reading{Facts: &d.facts, record: r, round: round, groups: make([][]graded, len(round.Problems)), before: d.state.Before}
	p.known = !slices.ContainsFunc(round.Problems, func(q data.Problem) bool { return len(q.Answers) == 0 })
	var hidden []float64 // of each response, the entropy that its tokens do not show
	texts, values, tokens, told := map[string]float64{}, map[float64]float64{}, 0.0, 0.0
	for i := range round.Responses {
		x := graded{Response: &round.Responses[i]}
		tokens, p.entropy, p.surprise = tokens+float64(x.Tokens), p.entropy+x.Entropy, p.surprise-x.LogProb
		hidden = append(hidden, x.Entropy+x.LogProb)
		if x.Passed+x.EndsAt != "" {
			p.token = x.Passed + x.EndsAt
		}
		p.passed, p.early = p.passed+one(x.Passed != ""), p.early+one(x.EndsAt != "")
		p.truncated, p.turned, p.skipped = p.truncated+one(x.Truncated && !x.OutOfTurns), p.turned+one(x.OutOfTurns), p.skipped+one(x.Skipped)
		if x.Skipped {
			continue
		}
		x.right = x.Judged && x.Right && (p.Judges || !p.known)
		if p.known {
			v := anywhere.VerifyAny(round.Problems[x.Problem].Answers, x.Text)
			x.found, x.right = v.Answer, v.Correct && !x.Truncated || x.right
		}
		p.stopped, p.stoppedRight = p.stopped+one(x.Stopped), p.stoppedRight+one(x.Stopped && x.right)
		told, p.unanswered, p.right = told+one(x.Told), p.unanswered+one(!x.Told && x.Answer == ""), p.right+one(x.right)
		texts[x.Text]++
		values[x.Value]++
		p.alike, p.level = max(p.alike, texts[x.Text]), max(p.level, values[x.Value])
		p.graded, p.groups[x.Problem] = append(p.graded, x), append(p.groups[x.Problem], x)
	}
	for _, x := range []*float64{&p.passed, &p.early, &p.truncated, &p.turned, &p.skipped} {
		*x /= float64(len(round.Responses))
	}
	n := float64(len(p.graded))
	p.stoppedRight, p.unanswered = p.stoppedRight/p.stopped, p.unanswered/(n-told)
	for _, x := range []*float64{&p.stopped, &p.right, &p.alike, &p.level} {
		*x /= n
	}
	p.hidden = stat.Mean(hidden) / stat.StandardError(hidden)
	p.entropy, p.surprise = p.entropy/tokens, p.surprise/tokens
	p.compare()
	return p
}

// share returns the share of the graded responses that are so.
func (p *reading) share(so func(graded) bool) (share float64) {
	for _, x := range p.graded {
		share += one(so(x)) / float64(len(p.graded))
	}
	return share
}

// compare compares the rewards, texts and answers within groups.
func (p *reading) compare() {
	var rewards, off, longer []float64
	groups, answers, pairs := 0.0, 0.0, 0.0
	for _, group := range p.groups {
		if len(group) < 2 {
			continue
		}
		var values, lengths []float64
		same := true
		for i, x := range group {
			values, lengths = append(values, x.Value), append(lengths, float64(x.Tokens))
			same = same && x.Text == group[0].Text
			for _, y := range group[:i] {
				p.pair(x, y)
				pairs++
				both := x.answer() != "" && y.answer() != ""
				answers, p.agree = answers+one(both), p.agree+one(both && x.answer() == y.answer())
			}
		}
		groups, p.same, p.flat = groups+1, p.same+one(same), p.flat+one(slices.Max(values) == slices.Min(values))
		rewards, off, longer = append(rewards, values...), append(off, apart(values)...), append(longer, apart(lengths)...)
	}
	p.twice = p.twins / max(1, pairs)
	p.flat, p.same, p.agree = p.flat/groups, p.same/groups, p.agree/max(1, answers)
	p.mean, p.least, p.most = stat.Mean(rewards), stat.Quantile(rewards, 0), stat.Quantile(rewards, 1)
	p.length = together(off, longer)
	_, p.spread = metrics.Moments(off)
	p.noise /= max(1, p.twins) * p.spread * p.spread
}

// pair counts two responses to a problem.
func (p *reading) pair(x, y graded) {
	if x.Text == y.Text && x.Tokens == y.Tokens {
		off := x.Value - y.Value
		p.twins, p.differ, p.noise = p.twins+1, p.differ+one(math.Abs(off) > 1e-12*math.Abs(x.Value)), p.noise+off*off/2
	}
	if x.right == y.right || x.Truncated || y.Truncated {
		return
	}
	if y.right {
		x, y = y, x
	}
	p.ahead, p.behind, p.ties = p.ahead+one(x.Value > y.Value), p.behind+one(x.Value < y.Value), p.ties+one(x.Value == y.Value)
}

// answer returns the answer that the reward read, or else the one that stands anywhere.
func (x graded) answer() string {
	if x.Answer != "" {
		return x.Answer
	}
	return x.found
}

// apart returns the distances from the mean.
func apart(x []float64) []float64 {
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

// together returns the correlation of distances from means, 0 if one has none.
func together(a, b []float64) float64 {
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
