package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"onering/data"
	"onering/verifier"
)

// rewardsFault says what is wrong with what the responses earned, by the figures of the whole round first, then of the parts
// of the reward, then by what is learned. The first fault explains those behind it.
func (p *reading) rewardsFault() *Finding {
	if f := p.wrongForm(); f != nil {
		return f
	}
	size, constant := max(math.Abs(p.rewardLeast), math.Abs(p.rewardMost)), p.rewardLeast == p.rewardMost
	pairs := p.rightEarnsMore + p.wrongEarnsMore // of a right and a wrong response that earn differently
	// Right and wrong responses earn the same: earnAlike counts the pairs of one of each that do.
	paidAlike := constant || p.earnAlike >= 20 && pairs < 0.1*p.earnAlike
	unclear := p.answersKnown && (p.right > 0.95 || p.right == 0) // equal rewards may be deserved
	pattern := cmp.Or(p.Settings["reward.pattern"], p.Settings["reward.format"])
	switch {
	case constant && p.rewardMost <= 0 && pattern != "":
		return newFinding("form", "the pattern of the reward (%s) never matches: it is met by no response, such as %q. Change "+
			"reward.pattern or reward.format, or ask for that form in the prompt", pattern, example(p.graded[0].Text))
	case p.equalRewards >= 0.95 && p.commonestReward < 0.9 && p.sameText < 0.5 && p.earnAlike >= 8 && pairs < 0.1*p.earnAlike:
		return newFinding("ignores-response", "the reward depends on the problem and not on the response: it is the same "+
			"for all responses in %s of the groups, for right and wrong answers alike, and differs between problems (%.3g to %.3g). Repair the reward",
			percent(p.equalRewards), p.rewardLeast, p.rewardMost)
	case constant && p.rewardMost > 0 && !unclear:
		return newFinding("pays-all", "the reward pays every response the same, %.3g, whatever it says, so that wrong answers earn as much as "+
			"right ones and every group has nothing to compare. Repair the reward, or take harder problems if all are right", p.rewardMost)
	case paidAlike && !unclear && p.answersKnown && p.rewardMost < 0.5 && (constant || p.rewardMean <= (p.rewardLeast+p.rewardMost)/2):
		orExtract := ""
		if answer := p.graded[0].Answer; answer != "" {
			orExtract = fmt.Sprintf(", or change reward.extract: it takes %q for an answer", example(answer))
		}
		return newFinding("never-paid", "the reward pays nothing for right answers: the mean is %.3g, the most %.3g, and "+
			"%s of the responses are right by the verifier. Repair the reward%s", p.rewardMean, p.rewardMost, percent(p.right), orExtract)
	case paidAlike && !unclear && p.answersKnown:
		return newFinding("pays-all", "the reward pays wrong responses as it pays right ones: the mean is %.3g, the least "+
			"%.3g, and %s of the responses are right by the verifier. Repair the reward", p.rewardMean, p.rewardLeast, percent(p.right))
	case constant && !p.answersKnown:
		return newFinding("never-paid", "no response earns more than %.3g of the reward: there is nothing to compare. Look "+
			"whether the reward pays what it should, or take easier problems", p.rewardMost)
	case p.rewardSpread > 0 && p.rewardSpread < 1e-4*size:
		return newFinding("tiny-spread", "rewards to the same problem differ by a tiny %.1g, beside a size of %.3g: "+
			"standardized advantages make noise of this rounding as large as any reward. Round the reward, or set objective.advantage = \"centered\"",
			p.rewardSpread, size)
	case p.twins >= 8 && p.twinsPaidApart >= 0.2*p.twins && p.noise > 0.1: // twins: pairs of equal texts, which should earn the same
		return newFinding("random-reward", "the same response to the same problem earns different rewards, in %s of %.0f "+
			"pairs: the reward is partly random, and its noise is learned. Make it repeatable", percent(p.twinsPaidApart/p.twins), p.twins)
	case p.rewardSpread > 0 && size < 1e-6:
		return newFinding("small-scale", "rewards are too small: at most %.1g, so that gradients vanish beside optimizer.eps "+
			"= %s and the weights hardly move. Scale the reward to about 1", size, p.Settings["optimizer.eps"])
	}
	if f := p.wrongPart(); f != nil {
		return f
	}
	return p.learnable(pairs)
}

// learnable finds rewards that differ, and from which something else is learned than the answer, or
// nothing. pairs counts pairs of a right and a wrong response to one problem that earn differently.
func (p *reading) learnable(pairs float64) *Finding {
	before, limit, extract := p.before, p.number("eval.max_new_tokens"), p.Settings["eval.extract"] // before: of the evaluation before training
	// paid is the correlation of rewards with the verdict within groups.
	paid := correlation(p.within(func(x graded) float64 { return x.Value }), p.within(func(x graded) float64 { return count(x.right) }))
	off := p.constantOffset()
	switch {
	case off != nil:
		return p.whyNoneRight(off)
	case math.Abs(p.lengthCorrelation) > 0.9 && paid < 0.9: // else right answers are the longer ones
		way := map[bool]string{true: "longer", false: "shorter"}[p.lengthCorrelation > 0]
		return newFinding("length", "the reward follows the length of the response and not its answer (correlation %.2f "+
			"within groups), so that %s responses will be learned. Have the reward grade the answer", p.lengthCorrelation, way)
	case pairs >= 20 && pairs > p.earnAlike && p.wrongEarnsMore > 0.35*pairs && p.wrongEarnsMore < 0.65*pairs:
		return newFinding("random-reward", "the reward is as good as random: of a right and a wrong response to one problem "+
			"the right one earns more in %s of %.0f pairs. Have the reward grade the answer", percent(p.rightEarnsMore/pairs), pairs)
	case pairs >= 20 && pairs > p.earnAlike && p.wrongEarnsMore > p.rightEarnsMore:
		return newFinding("pays-all", "the reward pays wrong responses more than right ones: in %s of %.0f pairs of answers "+
			"to one problem. Turn its sign, or repair it", percent(p.wrongEarnsMore/pairs), pairs)
	case p.answersKnown && p.right <= 0.01 && p.equalRewards >= 0.9:
		return p.whyNoneRight(nil) // nil: no constant offset
	case p.right >= 0.95 && p.equalRewards >= 0.9 && len(p.round.Problems) >= 8:
		return newFinding("too-easy", "%s of the responses are right before training, all in %s of the groups: the model "+
			"solves these problems already, and there is nothing to learn. Take harder problems", percent(p.right), percent(p.equalRewards))
	case before[evaluatedCut] > p.truncated+p.outOfTurns+0.2 && limit > 0 && limit < p.number("rollout.max_new_tokens"):
		return newFinding("eval-differs", "the evaluation cuts %s of its responses off at eval.max_new_tokens = %.0f, and "+
			"training %s at rollout.max_new_tokens = %s: leave eval.max_new_tokens out", percent(before[evaluatedCut]), limit,
			percent(p.truncated), p.Settings["rollout.max_new_tokens"]).With("eval.max_new_tokens", 0)
	case before[evaluatedUnanswered] > p.unanswered+0.2 && extract != "" && extract != p.Extract:
		return newFinding("eval-differs", "the evaluation finds no answer in %s of its responses (eval.extract = %q), and "+
			"training in %s (reward.extract = %q): leave eval.extract out", percent(before[evaluatedUnanswered]), extract, percent(p.unanswered), p.Extract).
			With("eval.extract", p.Extract)
	}
	return nil
}

// wrongForm finds rewards that look for another form of the answer than the model writes: many responses have no answer
// there, and the verifier may find one anywhere in them, as extract = "auto" does, or at their end.
func (p *reading) wrongForm() *Finding {
	if math.IsNaN(p.record.Float("no_answer_share")) || p.unanswered < 0.3 || !p.answersKnown {
		return nil // the share is NaN where the reward reads no answers
	}
	such := "" // the text of one of the responses without an answer
	// How many such there are; of these, with an answer elsewhere, with a right one there, and with a right one as the last expression.
	n, elsewhere, right, rightAtEnd := 0.0, 0.0, 0.0, 0.0
	for _, x := range p.graded {
		if x.Answer != "" || x.Told { // an environment told the reward, so no answer was needed
			continue
		}
		n, such = n+1, x.Text
		elsewhere += count(x.found != "")
		right += count(x.right)
		rightAtEnd += count(verifier.Verifier{Mode: verifier.Last}.VerifyAny(p.round.Problems[x.Problem].Answers, x.Text).Correct)
	}
	text := fmt.Sprintf("%s of the responses have no answer where the reward looks for it", percent(p.unanswered))
	pattern := p.Settings["reward.pattern"]
	switch {
	case p.Extract != "" && right > 0 && right >= rightAtEnd/2: // "last" takes any expression, so it must find over twice as many
		return newFinding("form", "%s (extract = %q); extract = \"auto\" finds one in %s of these, right in %s: set reward.extract = \"auto\"",
			text, p.Extract, percent(elsewhere/n), percent(right/n)).With("reward.extract", "auto")
	case p.Extract != "" && rightAtEnd > 0:
		return newFinding("form", "%s (extract = %q); the last expression is right in %s of these: set reward.extract = "+
			"\"last\", or ask for the form by model.template", text, p.Extract, percent(rightAtEnd/n)).With("reward.extract", "last")
	case pattern != "" && right+rightAtEnd > 0:
		return newFinding("form", "%s (its pattern %s does not match); one stands elsewhere in %s of these, right in %s: "+
			"change reward.pattern, or ask for that form in the prompt", text, pattern, percent(elsewhere/n), percent(max(right, rightAtEnd)/n))
	case right+rightAtEnd > 0 || p.unanswered > 0.5:
		return newFinding("form", "%s, such as %q, and %s are right elsewhere: ask for the answer in that form, by model.template or in the problems",
			text, example(such), percent(max(right, rightAtEnd)/n))
	}
	return nil
}

// wrongPart says what is wrong with the parts that the reward adds: one with a negative weight that
// right answers earn; one that is the same for all responses, unless all earn it in full or it
// is a penalty on length; and one that overrules right answers.
func (p *reading) wrongPart() *Finding {
	weights := p.Weights
	total, right := p.within(func(x graded) float64 { return x.Value }), p.within(func(x graded) float64 { return count(x.right) })
	answerGraded, most, largest := false, "", 0.0 // the part that makes most of the differences, and its share of them
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		part, first := p.within(func(x graded) float64 { return x.Parts[name] }), p.graded[0].Parts[name]
		// Of the distances from group means: how the part follows right answers, and its share of the rewards' variance.
		agreed, share := correlation(part, right), weights[name]*dot(part, total)/dot(total, total)
		same := p.share(func(x graded) bool { return x.Parts[name] == first })
		switch {
		case weights[name] < 0 && agreed > 0.3:
			return newFinding("negative", "the part %s of the reward has a negative weight (%g) although it is paid for right "+
				"answers, so that right answers will fall. Give it a positive weight in reward.use", name, weights[name])
		case len(weights) < 2: // what a reward alone pays is read elsewhere
		case same > 0.995 && first < 1 && weights[name] != 0 && !(first == 0 && strings.HasPrefix(name, "length")):
			return newFinding("dead-part", "the part %s of the reward is the same for every response: always %.3g. It teaches "+
				"nothing. Repair it, ask for what it pays for in the prompt, or take it out of reward.use", name, first)
		case agreed > 0.95:
			answerGraded = true // this part follows the right answer
		case share > largest:
			most, largest = name, share
		}
	}
	if !answerGraded || largest < 0.4 {
		return nil
	}
	return newFinding("outweighed", "the part %s (weight %g) makes %s of the differences between rewards: the reward "+
		"can rise while right answers fall. Lower its weight in reward.use", most, weights[most], percent(largest))
}

// within returns the distances of a figure from the mean of its group.
func (p *reading) within(of func(graded) float64) (out []float64) {
	for _, group := range p.groups {
		var values []float64
		for _, x := range group {
			values = append(values, of(x))
		}
		out = append(out, deviations(values)...)
	}
	return out
}

// whyNoneRight says why no response is right: a wrong column of prompts or answers, answers of other rows, or of another form,
// or else problems that are too hard. off is the finding of answers that are off by the same, nil if they are not.
func (p *reading) whyNoneRight(off *Finding) *Finding {
	first, column, answered := p.round.Problems[0], p.answerColumn(), p.share(func(x graded) bool { return x.answer() != "" })
	if f := p.wrongPrompt(); f != nil {
		return f
	}
	for _, field := range first.Fields {
		if met := p.shareWithAnswer(func(q data.Problem) []string {
			value, _ := q.Fields.Get(field.Name)
			return []string{plain(value)}
		}); met > 0.05 { // of the responses
			return newFinding("wrong-gold", "the answers are read from the wrong column: no response meets the column %q, "+
				"and %s meet the column %q. Set data.answer = %q", column, percent(met), field.Name, field.Name).With("data.answer", field.Name)
		}
	}
	for _, rows := range []int{1, -1, 2, -2} { // how far the column may be shifted
		if met := p.shareWithAnswer(func(q data.Problem) []string { return p.Neighbor(q, rows) }); met > 0.05 {
			return newFinding("wrong-gold", "the answers of the data are those of other rows: no response meets its own row's, "+
				"and %s meet that of a row %s it (by %.0f). Shift the column %q back", percent(met),
				map[bool]string{true: "after", false: "before"}[rows > 0], math.Abs(float64(rows)), column)
		}
	}
	if off != nil {
		return off
	}
	// Responses with a number for an answer, those whose gold answer is no number, those of gold's size, and an example of each of the first two.
	numbers, wordGolds, near, gold, answer := 0.0, 0.0, 0.0, "", ""
	var sizes [2][]float64 // logarithms of what responses say, and of the data's answers
	for _, x := range p.graded {
		said, is := number(x.answer())
		if is {
			numbers, answer = numbers+1, x.answer()
		}
		list := p.round.Problems[x.Problem].Answers
		if right, ok := number(list[0]); !ok {
			wordGolds, gold = wordGolds+1, list[0]
		} else if is && said != 0 && right != 0 {
			a, b := math.Log(math.Abs(said)), math.Log(math.Abs(right))
			sizes[0], sizes[1] = append(sizes[0], a), append(sizes[1], b)
			near += count(math.Abs(a-b) < 1) // within a factor of e
		}
	}
	// The sizes of answers follow those of the data: then the responses are about these problems.
	sized := near > 0.25*numbers || math.Abs(correlation(deviations(sizes[0]), deviations(sizes[1]))) > 0.8
	switch n := float64(len(p.graded)); {
	case numbers > 0.6*n && wordGolds > 0.6*n:
		return newFinding("wrong-gold", "the answers of the data have another form than those of the responses: the column "+
			"%q has %q where responses say %q, so that none is right. Write the column as the model writes, or set data.answer to another",
			column, example(gold), example(answer))
	case p.agreeing > 0.035 && p.agreeing < 1 && answered > 0.5 && (sized || numbers < 0.5*n && p.agreeing > 0.1):
		// Guesses neither agree nor have the right size, or one that follows from it.
		return newFinding("wrong-gold", "no response meets the answers of the data (column %q) although %s have an answer "+
			"and the responses to a problem agree (%s of the pairs): the column is another one, or the tokenizer is "+
			"another model's. Compare both; set data.answer", column, percent(answered), percent(p.agreeing))
	}
	return p.tooHard(answered)
}

// tooHard says that the model does not solve the problems, or is not asked for a form; answered is the share with an answer.
func (p *reading) tooHard(answered float64) *Finding {
	if alone := p.share(func(x graded) bool { return strings.TrimSpace(x.Text) == x.answer() }); alone > 0.9 {
		return newFinding("form", "no response is right (pass@%d is 0 on %d problems), and %s are an answer alone, such as %q, in no form and "+
			"without working: the prompt asks for neither. Ask for both, by model.template or in the problems, or begin with onering sft",
			len(p.graded)/len(p.round.Problems), len(p.round.Problems), percent(alone), example(p.graded[0].Text))
	}
	return newFinding("too-hard", "no response is right (pass@%d is %.3g on %d problems), although %s have an answer, "+
		"of which %s of the pairs agree: the model does not solve these as model.template = %q asks. Take easier problems, or begin with onering sft",
		len(p.graded)/len(p.round.Problems), p.right, len(p.round.Problems), percent(answered), percent(p.agreeing), p.Settings["model.template"])
}

// plain writes a value of a row as a short text; "" for others.
func plain(value any) string {
	switch v := value.(type) {
	case string:
		if len(v) < 200 {
			return strings.TrimSpace(v)
		}
	case int64, uint64, float64, json.Number:
		return fmt.Sprint(v)
	}
	return ""
}

// number reads an answer that is a decimal number.
func number(text string) (x float64, ok bool) {
	x, err := strconv.ParseFloat(strings.NewReplacer(",", "", "$", "", " ", "").Replace(text), 64)
	return x, err == nil && !strings.ContainsAny(text, "xXpP_")
}

// wrongPrompt finds prompts that are the answers, or another column than the problems: one whose name is usual for prompts and
// which has longer texts.
func (p *reading) wrongPrompt() *Finding {
	column, same, better := p.Settings["data.prompt"], 0, "" // better: a column of longer texts with a usual name
	for _, q := range p.round.Problems {
		if slices.Contains(q.Answers, strings.TrimSpace(q.Text)) {
			same++
		}
		for _, x := range q.Fields {
			if text, ok := x.Value.(string); ok && x.Name != column && slices.Contains(data.PromptNames, x.Name) && len(text) > len(q.Text) {
				better = x.Name
			}
		}
	}
	switch {
	case 2*same > len(p.round.Problems):
		return newFinding("wrong-prompt", "the prompts are the answers: in %d of %d problems both are the same text. Set "+
			"data.prompt to the column with the problems", same, len(p.round.Problems))
	case column != "" && better != "":
		return newFinding("wrong-prompt", "no response is right, and the prompts are the column %q (data.prompt), such as "+
			"%q, although the rows have a column %q: set data.prompt = %q", column, example(p.round.Problems[0].Text), better, better).
			With("data.prompt", better)
	}
	return nil
}

// answerColumn returns the name of the column of answers.
func (p *reading) answerColumn() string {
	name, first := p.Settings["data.answer"], p.round.Problems[0]
	for _, x := range first.Fields {
		if name == "" && plain(x.Value) == first.Answers[0] && slices.Contains(data.AnswerNames, x.Name) {
			name = x.Name
		}
	}
	return name
}

// constantOffset finds answers of the data that differ from those of the responses by the same number or
// factor, or the order of their digits, problem after problem: another unit, or a mistake of the file.
func (p *reading) constantOffset() *Finding {
	// By the way in which answers differ: how often, and the different answers of the data with which.
	times, golds := map[string]float64{}, map[string]map[float64]bool{}
	for _, x := range p.graded {
		said, is := number(x.answer())
		if !is || !p.answersKnown || x.right {
			continue // only wrong numbers can be off
		}
		gold, is := number(p.round.Problems[x.Problem].Answers[0])
		if !is || said == 0 || gold == 0 {
			continue
		}
		ways := []string{fmt.Sprintf("the same %.6g", gold-said), fmt.Sprintf("a factor of %.6g", gold/said)}
		if slices.Equal(slices.Sorted(strings.SplitSeq(fmt.Sprint(said), "")), slices.Sorted(strings.SplitSeq(fmt.Sprint(gold), ""))) {
			ways = append(ways, "the order of their digits")
		}
		for _, way := range ways {
			if golds[way] == nil {
				golds[way] = map[float64]bool{}
			}
			times[way]++
			golds[way][gold] = true
		}
	}
	most := ""
	for _, way := range slices.Sorted(maps.Keys(times)) {
		if times[way] > times[most] {
			most = way
		}
	}
	if share := times[most] / float64(len(p.graded)); share > max(0.1, 3*p.right) && len(golds[most]) >= 8 { // not one answer again and again
		return newFinding("wrong-gold", "the answers of the data (column %q) differ from those of the responses by %s in %s "+
			"of the responses, and %s meet them: the column has another unit, or is another one. Correct it, or set data.answer",
			p.answerColumn(), most, percent(share), percent(p.right))
	}
	return nil
}

// shareWithAnswer returns the share of the responses whose answer is one of those that answers returns for their problem; an
// answer that is the problem's text does not count.
func (p *reading) shareWithAnswer(answers func(data.Problem) []string) float64 {
	return p.share(func(x graded) bool {
		q := p.round.Problems[x.Problem]
		list := slices.DeleteFunc(slices.Clone(answers(q)), func(a string) bool { return a == "" || a == strings.TrimSpace(q.Text) })
		return len(list) > 0 && anywhere.VerifyAny(list, x.Text).Correct
	})
}
