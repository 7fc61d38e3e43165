package doctor

import (
	"math"
	"slices"
	"strings"

	"onering/internal/stat"
	"onering/train/metrics"
)

// Figures of a round that are compared with those of the first rounds.
const (
	figureEntropy = iota
	figureLength
	figureTruncated
	figures
)

// The elements of State.Before, the means of the first evaluation.
const (
	evaluated = iota // pass@1, or a supervised run's held-out loss
	evaluatedCut
	evaluatedUnanswered
	evaluations
)

// The elements of State.Best; NaN before the first round.
const (
	bestReward      = iota // the highest reward
	bestError              // its standard error
	bestRight              // the highest share of right responses
	bestRightReward        // the reward of the round with bestRight
	bests
	lowestLoss  = bestReward // of a supervised run in their place: the lowest held-out loss
	lowestEpoch = bestError  // the epoch with that loss
)

const (
	// lossWindow is the number of earlier steps that a loss is compared with.
	lossWindow = 64
	// A loss has jumped if its distance from their median is more than lossSpread standard deviations and more
	// than lossRecord times the largest distance among them. The standard deviation is estimated from the
	// median of the distances, which a single jump does not move. The second condition is for small batches
	// with rewards of 0 and 1: there most losses are the same, so that the median of the distances is close to
	// 0.
	lossSpread = 20
	lossRecord = 4
	// Losses smaller than lossNothing are left out: a step whose groups all have equal rewards has nothing but
	// a rounding error for a loss, and any other loss would look like a jump beside it.
	lossNothing = 1e-6
	// flatRounds is the number of rounds in a row that teach nothing which is said even where
	// no other rule knows why. The first round of a run does alone.
	flatRounds = 3
	// baseRounds is the number of first rounds that later ones are compared with.
	baseRounds = 3
	// sureErrors is the number of standard errors beyond which a change is not chance.
	sureErrors = 3
)

// remember takes a round into the state: the numbers of rounds, of those in a row that taught nothing and of those in a row
// whose reward is far below the best one's, the best reward, and the means of the first rounds. courseFault reads them.
func (d *Doctor) remember(r metrics.Record, round *Round) {
	s := &d.state
	s.Rounds++
	s.FruitlessRounds++
	if round.IdleShare < 1 {
		s.FruitlessRounds = 0
	}
	if reward, e := r.Float("reward"), groupError(round); e >= 0 { // NaN of too few responses
		s.RoundsFallen++
		if !(s.Best[bestReward]-reward > sureErrors*math.Hypot(e, s.Best[bestError])) { // also where Best is NaN
			s.RoundsFallen = 0
		}
		if !(reward < s.Best[bestReward]) { // also where Best is NaN
			s.Best[bestReward], s.Best[bestError] = reward, e
		}
	}
	if s.Rounds <= baseRounds {
		for i, name := range [figures]string{"entropy", "response_length/mean", "truncated_share"} {
			if x := r.Float(name); !math.IsNaN(x) {
				s.First[i] += x / baseRounds
			}
		}
	}
}

// groupError returns the standard error of a round's mean reward: that of the means of groups or that
// of single responses, whichever is larger, since both vary.
func groupError(round *Round) float64 {
	var all []float64
	sums, counts := make([]float64, len(round.Problems)), make([]float64, len(round.Problems))
	for _, x := range round.Responses {
		if !x.Skipped {
			all = append(all, x.Value)
			sums[x.Problem], counts[x.Problem] = sums[x.Problem]+x.Value, counts[x.Problem]+1
		}
	}
	var means []float64
	for i, n := range counts {
		if n > 0 {
			means = append(means, sums[i]/n)
		}
	}
	return max(stat.StandardError(means), stat.StandardError(all))
}

// courseFault says what is wrong with how the figures of rounds change; right is the share of right responses. It also
// notes the round with the most of them in s.Best. What else it reads of s, remember has brought up to this round.
//
// A low entropy alone is no harm: in every run that succeeds it falls, since a policy that knows the answer is
// certain of it. The harm is that all responses to a problem that is not solved are alike, so that nothing can
// be learned from it. Rewards are 0 or 1 (but for an objective's penalty on length). Of all problems, the share
// IdleShare teaches nothing, since all responses earn the same, and at most the share reward is solved by every
// response. So at least IdleShare - reward are failed by every response, and 1 - IdleShare are learned from.
func (d *Doctor) courseFault(r metrics.Record, round *Round, right float64) *Finding {
	s, best, rate := &d.state, d.state.Best, d.facts.Settings["optimizer.learning_rate"]
	reward, entropy := r.Float("reward"), r.Float("entropy")
	length, truncated := r.Float("response_length/mean"), r.Float("truncated_share")
	later := s.Rounds > baseRounds
	// The standard error of the change of right is what chance alone may change; NaN in the first round.
	chance := math.Sqrt((best[bestRight]*(1-best[bestRight]) + right*(1-right)) / float64(len(round.Problems)))
	defer func() { // at the end, since the cases below compare with the rounds before
		if !(right < best[bestRight]) { // also in the first round, where it is NaN
			best[bestRight], best[bestRightReward] = right, reward
		}
	}()
	switch {
	case later && entropy < 0.1*s.First[figureEntropy] && round.IdleShare-reward > 1-round.IdleShare:
		return newFinding("collapse", "the entropy has collapsed before the problems are solved: it is %.2g nats a token, "+
			"in the first rounds %.2g, and %s of the problems teach nothing at a reward of %.3f. Lower optimizer.learning_rate "+
			"= %s, or set objective.entropy_bonus", entropy, s.First[figureEntropy], percent(round.IdleShare), reward, rate)
	case best[bestRight]-right > 2*chance && reward-best[bestRightReward] > 2*groupError(round):
		return newFinding("hacked", "the reward rises (%.3f to %.3f) while right answers fall (%.0f %% to %.0f %%): it is "+
			"being hacked. Lower the weight of the parts that do not grade the answer, in reward.use", best[bestRightReward], reward, 100*best[bestRight], 100*right)
	case s.RoundsFallen > 1 && d.facts.Settings["data.curriculum"] == "": // with a curriculum problems become harder
		return newFinding("rate-high", "the reward fell from %.3f to %.3f, by more than %d standard errors, and stays "+
			"there: the steps destroy what the model knew. Lower optimizer.learning_rate = %s and begin again from the checkpoint before",
			best[bestReward], reward, sureErrors, rate).times(&d.facts, "optimizer.learning_rate", 0.1)
	case later && length > 2*s.First[figureLength] && reward < best[bestReward]:
		return newFinding("length", "responses have grown long without earning more: %.0f tokens, in the first rounds "+
			"%.0f, at a reward of %.3f (best %.3f). Take length into the reward, or lower optimizer.learning_rate",
			length, s.First[figureLength], reward, best[bestReward])
	case later && truncated > s.First[figureTruncated]+0.25:
		limit := "rollout.max_new_tokens"
		if slices.ContainsFunc(round.Responses, func(x Response) bool { return x.OutOfTurns }) {
			limit = "environment.max_turns"
		}
		return newFinding("cut", "more responses are truncated: %s, in the first rounds %s. Raise %s = %s",
			percent(truncated), percent(s.First[figureTruncated]), limit, d.facts.Settings[limit])
	case (s.FruitlessRounds >= flatRounds || s.FruitlessRounds == s.Rounds) && s.FruitlessRounds > 0 && len(s.Said) == 0:
		// Nothing was learned in the last few rounds, or in all of them, and no other cause was named.
		return newFinding("nothing", "nothing is learned from the rewards, %d rounds in a row: no response has an advantage "+
			"that the objective keeps, at a reward of %.3f and %s of the groups with equal rewards. Look at the responses of onering report",
			s.FruitlessRounds, reward, percent(r.Float("frac_reward_zero_std")))
	}
	return nil
}

// evaluation looks at the record of an evaluation: it notes the figures of the first one, the means of its
// suites, in State.Before, and compares the held-out losses of supervised runs.
func (d *Doctor) evaluation(r metrics.Record) *Finding {
	before := d.state.Before
	if loss := r.Float("loss"); !math.IsNaN(loss) {
		return d.heldOutFault(r, loss)
	}
	if !math.IsNaN(before[evaluated]) { // not the first
		return nil
	}
	var bySuite [evaluations][]float64
	for _, m := range r {
		for i, end := range [evaluations]string{"/pass@1", "/truncated_share", "/no_answer_share"} {
			if v, ok := m.Value.(float64); ok && len(m.Name) > len(end) && strings.HasSuffix(m.Name, end) {
				bySuite[i] = append(bySuite[i], v)
			}
		}
	}
	for i, x := range bySuite {
		before[i] = stat.Mean(x)
	}
	return nil
}

// stepFault returns what the record of an optimizer step shows: a loss that jumps away from those before and, in a
// supervised run, more. It adds the loss to the state.
func (d *Doctor) stepFault(r metrics.Record) *Finding {
	s := &d.state
	loss := r.Float("loss")
	if math.IsNaN(loss) || math.IsInf(loss, 0) || math.Abs(loss) < lossNothing {
		return nil
	}
	if d.facts.Settings["rollout.temperature"] == "" { // supervised
		if f := d.supervisedFault(r, loss); f != nil {
			return f
		}
	}
	var f *Finding
	if len(s.Losses) >= lossWindow/4 { // enough for a median
		middle, deviation, largest := medianDeviation(s.Losses)
		if off := math.Abs(loss - middle); deviation > 0 && off > lossSpread*deviation && off > lossRecord*largest {
			f = newFinding("loss-jump", "the loss has jumped: it is %.3g at step %v, %.0f deviations from the median %.3g of "+
				"the steps before, with a gradient norm of %.2g. Lower optimizer.max_grad_norm or optimizer.learning_rate = %s",
				loss, r.Get("step"), off/deviation, middle, r.Float("grad_norm"), d.facts.Settings["optimizer.learning_rate"])
		}
	}
	if len(s.Losses) == lossWindow {
		s.Losses = append(s.Losses[:0], s.Losses[1:]...)
	}
	s.Losses = append(s.Losses, loss)
	return f
}

// earlySteps is the number of steps whose losses a supervised run is compared with.
const earlySteps = 4

// supervisedFault finds a loss that rises, that of responses known by heart, and one that shows that
// nothing is learned but how often tokens occur. It compares the losses of the first steps with
// those of the newest; loss is that of this step.
func (d *Doctor) supervisedFault(r metrics.Record, loss float64) *Finding {
	s, f := &d.state, &d.facts
	if len(s.Early) < earlySteps {
		s.Early = append(s.Early, loss)
		return nil
	}
	newest := append(slices.Clone(s.Losses[max(0, len(s.Losses)-2*earlySteps+1):]), loss)
	first, last := slices.Min(s.Early), slices.Min(newest[max(0, len(newest)-earlySteps):])
	step, rate := r.Float("step"), f.number("optimizer.learning_rate")
	comparable := f.Frequency > 0 && len(newest) == 2*earlySteps // with the loss of knowing frequencies alone
	middle := median(newest)
	switch {
	case last > 1.5*first+1, comparable && slices.Min(newest) > max(f.Frequency, 1.1*first+0.1):
		return newFinding("rate-high", "the loss rose from %.3g to %.3g by step %v: the steps are too large. Lower optimizer.learning_rate (--lr) = %g",
			first, loss, r.Get("step"), rate).times(f, "optimizer.learning_rate", 0.1)
	case !comparable: // the cases below need the comparison
	case middle < 0.02*f.Frequency && r.Float("epoch") >= 20 && f.Settings["data.eval"] == "" && f.Settings["data.held_out"] == "0":
		return newFinding("epochs", "the demonstrations are learned by heart: after %.0f passes over them the loss is %.2g. Lower train.epochs "+
			"(--epochs) = %s, and see by data.held_out = 0.1 (--held-out) what the model makes of others", r.Float("epoch"), middle, f.Settings["train.epochs"])
	case int(step) < max(f.Steps, 4*earlySteps) || first < f.Frequency || middle < 0.85*f.Frequency: // not over yet, or more was learned
	case rate*step > f.Weight && (f.Settings["lora.on"] != "true" || rate*step > 10*f.Weight): // an adapter's rate is ten times as high
		return newFinding("rate-high", "the model has learned no more than how often each token occurs, for which the loss is %.3g: it is %.3g after "+
			"%.0f steps. The steps were too large. Lower optimizer.learning_rate (--lr) = %g", f.Frequency, middle, step, rate).times(f, "optimizer.learning_rate", 0.1)
	case middle > 0.8*first:
		return newFinding("rate-low", "hardly anything is learned: the loss is %.3g after %.0f steps, and knowing how often each token occurs "+
			"makes it %.3g. Raise optimizer.learning_rate (--lr) = %g", middle, step, f.Frequency, rate).times(f, "optimizer.learning_rate", 10)
	}
	return nil
}

// heldOutFault compares a held-out loss with the first one and with the lowest, and notes it where it is one of these.
func (d *Doctor) heldOutFault(r metrics.Record, loss float64) *Finding {
	before, best := d.state.Before, d.state.Best
	step, rate := r.Float("step"), d.facts.Settings["optimizer.learning_rate"]
	learned := stat.Mean(d.state.Losses[max(0, len(d.state.Losses)-earlySteps):])
	switch first, lowest := before[evaluated], best[lowestLoss]; {
	case math.IsNaN(first):
		before[evaluated] = loss
	case loss > 1.1*lowest+0.05 && learned < lowest/2:
		return newFinding("epochs", "the demonstrations are learned by heart: the held-out loss rose from %.3g to %.3g by step %.0f, while "+
			"that of the steps fell to %.2g. Lower train.epochs (--epochs) = %s", lowest, loss, step, learned, d.facts.Settings["train.epochs"]).
			With("train.epochs", max(1, math.Ceil(best[lowestEpoch])))
	case loss > 1.5*first+1, int(step) == d.facts.Steps && loss > 1.2*first+0.05:
		return newFinding("rate-high", "the held-out loss rose from %.3g to %.3g by step %.0f: the steps are too large. "+
			"Lower optimizer.learning_rate (--lr) = %s", first, loss, step, rate).times(&d.facts, "optimizer.learning_rate", 0.1)
	case int(step) == d.facts.Steps && step >= 8 && math.Abs(loss-first) < 1e-4*first:
		return newFinding("rate-low", "nothing was learned: the held-out loss hardly changed from %.4g to %.4g in %.0f "+
			"steps. Raise optimizer.learning_rate (--lr) = %s", first, loss, step, rate).times(&d.facts, "optimizer.learning_rate", 10)
	}
	if !(loss >= best[lowestLoss]) { // also the first, where it is NaN
		best[lowestLoss], best[lowestEpoch] = loss, r.Float("epoch")
	}
	return nil
}

// medianDeviation returns the median, the standard deviation of normally distributed
// numbers with the same median distance from it, and the largest distance.
func medianDeviation(x []float64) (middle, deviation, largest float64) {
	middle = median(x)
	distances := make([]float64, len(x))
	for i, v := range x {
		distances[i] = math.Abs(v - middle)
	}
	return middle, 1.4826 * median(distances), slices.Max(distances) // 1.4826: of normally distributed numbers
}

func median(x []float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
