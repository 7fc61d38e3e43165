package report

import (
	"fmt"
	"math"
	"onering/internal/stat"
	"slices"
	"strconv"
	"strings"
)

// A finding answers one question about a run in a sentence.
type finding struct {
	Question string `json:"question"`
	Level    string `json:"level"` // "good", "note" (neither good nor bad) or "bad"
	Text     string `json:"text"`
	// Show is the verdict of the responses that the sentence is about: "wrong", or ""
	// if the sentence is about no responses.
	Show string `json:"show,omitempty"`
}

// Findings states what the run found wrong with itself, and answers five questions: did it
// learn, is it stable, what values did the exponent p take, which responses are wrong, where
// does the time go. It omits a question for which the run has no data.
func (r *Run) Findings() []finding {
	var list []finding
	for _, text := range r.Diagnoses {
		list = append(list, finding{Question: "What went wrong?", Level: "bad", Text: sentence([]string{text})})
	}
	for _, f := range []func() (finding, bool){r.learningFinding, r.stabilityFinding, r.exponentFinding, r.wrongFinding, r.timeFinding} {
		if f, ok := f(); ok {
			list = append(list, f)
		}
	}
	return list
}

// learningFinding compares the first and the last evaluation, and the rewards of the first and the last rounds. The level is
// good for a gain of over learned (as a share of the loss of a supervised run, else in pass@1, else in reward), else bad if
// pass@1 fell and its confidence intervals do not meet, the reward fell by three standard errors, or the loss rose by over
// learned and, unless it is held out, also by three standard errors.
func (r *Run) learningFinding() (finding, bool) {
	f := finding{Question: "Did it learn?", Level: "note"}
	var parts []string
	gain, lost := math.NaN(), false
	if r.supervised() {
		parts, gain, lost = lossParts(r)
	}
	for _, name := range evalNames([]*Run{r}) {
		first, last := r.Evals.First(name), r.Evals.Last(name)
		suite := strings.TrimSuffix(strings.TrimPrefix(name, "eval/"), "/pass@1")
		if r.Evals.Len() < 2 {
			parts = append(parts, fmt.Sprintf("%s pass@1 %.1f %%", suite, 100*first))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s pass@1 %.1f %% before, %.1f %% after", suite, 100*first, 100*last))
		lost = lost || r.Evals.Last(name+"_high") < r.Evals.First(name+"_low")
		if math.IsNaN(gain) {
			gain = last - first
		}
	}
	rewards := r.Rounds.Column("reward")
	if len(rewards) > 0 {
		first, last := firstAndLastTenth(rewards)
		parts = append(parts, fmt.Sprintf("reward %.3f in the first rounds, %.3f in the last", first, last))
		if a, b := firstAndLastTenth(r.Rounds.Column("right_share")); !math.IsNaN(b) && (a != first || b != last) { // else it is the same
			parts = append(parts, fmt.Sprintf("right responses %.1f %% and %.1f %%", 100*a, 100*b))
		}
		if math.IsNaN(gain) && len(rewards) > 1 {
			gain = last - first
			lost = r.errorsOf(-gain) > sureErrors
		}
	}
	switch {
	case gain > learned:
		f.Level = "good"
	case lost:
		f.Level = "bad"
	}
	f.Text = sentence(parts)
	return f, len(parts) > 0
}

// supervised says whether the run trained on given texts: it has steps with a loss, but
// neither rounds nor the log-ratios that every objective's steps have.
func (r *Run) supervised() bool {
	return r.Rounds.Len() == 0 && r.Steps.Column("loss") != nil && r.Steps.Column("log_ratio/mean") == nil
}

// heldOutLoss is the metric of the evaluations of supervised runs.
const heldOutLoss = "loss"

// lossParts says how the losses of a supervised run fell. gain is the share by which the held-out loss fell, or
// the loss of the steps if there is no other; lost says that it rose, by more than batches differ.
func lossParts(r *Run) (parts []string, gain float64, lost bool) {
	losses := r.Steps.Column("loss")
	first, last := firstAndLastTenth(losses)
	if len(losses) > 1 {
		parts, gain = append(parts, fmt.Sprintf("loss %.3f in the first steps, %.3f in the last", first, last)), (first-last)/first
		squares := 0.0 // of the differences between neighbours, whose mean is twice the variance of a loss
		for i, x := range losses[1:] {
			squares += (x - losses[i]) * (x - losses[i])
		}
		standardError := math.Sqrt(squares / float64(len(losses)-1) / float64(max(1, len(losses)/10))) // of last-first
		lost = gain < -learned && last-first > sureErrors*standardError
	}
	switch first, last := r.Evals.First(heldOutLoss), r.Evals.Last(heldOutLoss); {
	case math.IsNaN(first):
	case r.Evals.Len() < 2:
		parts = append(parts, fmt.Sprintf("held-out loss %.3f", first))
	default:
		parts, gain = append(parts, fmt.Sprintf("held-out loss %.3f before, %.3f after", first, last)), (first-last)/first
		lost = gain < -learned
	}
	return parts, gain, lost
}

// learned is the gain above which a run has learned; a loss whose rise is a smaller share has not risen.
const learned = 0.02

// sureErrors is the number of standard errors of a change that is not chance.
const sureErrors = 3

// errorsOf returns a difference of two rounds' mean rewards in standard errors, which the
// deviation of the rewards bounds: responses to one problem may be alike.
func (r *Run) errorsOf(difference float64) float64 {
	problems, _ := strconv.ParseFloat(r.Config["rollout.prompts_per_round"], 64)
	return difference / (stat.Mean(r.Rounds.Column("reward_std")) * math.Sqrt(2/problems))
}

// firstAndLastTenth returns the means of the first and of the last tenth of a column, NaN without values.
func firstAndLastTenth(x []float64) (first, last float64) {
	n := min(len(x), max(1, len(x)/10))
	return stat.Mean(x[:n]), stat.Mean(x[len(x)-n:])
}

// What is above one of these limits is told.
const (
	spikeLimit = 10   // largest gradient norm, as a multiple of the median
	gapLimit   = 1e-3 // difference between the sampler's and the learner's log-prob
)

// stabilityFinding checks gradient norms, log-prob gaps, the reward, the environment and the verifier.
func (r *Run) stabilityFinding() (finding, bool) {
	f := finding{Question: "Is it stable?", Level: "good"}
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	bad := func(format string, args ...any) {
		f.Level = "bad"
		say(format, args...)
	}
	norms := stat.Finite(r.Steps.Column("grad_norm"))
	if len(norms) > 0 && slices.Max(norms) == 0 {
		bad("no step changed the weights: every gradient was 0")
	} else if len(norms) > 0 {
		sorted := slices.Sorted(slices.Values(norms))
		median, largest := sorted[len(sorted)/2], sorted[len(sorted)-1]
		say("gradient norm %.2g in the median, %.2g at most", median, largest)
		if largest > spikeLimit*median {
			f.Level = "note"
			say("the largest is more than %d times the median", spikeLimit)
		}
	}
	if n := len(r.Steps.Column("grad_norm")) - len(norms); n > 0 {
		bad("%d steps without a finite gradient norm", n)
	}
	if largest := stat.Quantile(r.Rounds.Column("logp_gap_max"), 1); largest > gapLimit {
		bad("sampler and learner differ by up to %.1g in log-prob", largest)
	}
	if x := stat.Finite(r.Rounds.Column("reward")); len(x) > 4 {
		_, last := firstAndLastTenth(x)
		if best := slices.Max(x); r.errorsOf(best-last) > sureErrors {
			bad("the reward fell from %.3f to %.3f, by %.0f standard errors", best, last, r.errorsOf(best-last))
		}
	}
	if n := r.Rounds.Last("environment/failed"); n > 0 {
		bad("the environment failed in %.0f of the last round's episodes", n)
	}
	if stat.Mean(r.Rounds.Column("verifier/errors")) > 0 {
		bad("the verifier failed on some responses")
	}
	f.Text = sentence(parts)
	return f, len(parts) > 0
}

// exponentFinding reports the values of the exponent p, for objectives that log it.
func (r *Run) exponentFinding() (finding, bool) {
	f := finding{Question: "What did p do?", Level: "note"}
	p, atMax := stat.Finite(r.Steps.Column("p/mean")), stat.Mean(r.Steps.Column("p/share_at_max"))
	if len(p) == 0 {
		return f, false
	}
	low, high := slices.Min(p), slices.Max(p)
	f.Text = fmt.Sprintf("The mean of p was %.3f (%.3f to %.3f by step)", stat.Mean(p), low, high)
	if looksSame(low, high) {
		f.Text = fmt.Sprintf("p was %.3g in every step", low)
	}
	f.Text += fmt.Sprintf("; %.0f %% of the responses were at p_max.", 100*atMax)
	if r.Config["objective.p_rule"] != "fixed" && atMax > 0.95 {
		f.Text += " The rule almost never chose another p, so this run acted as one with a fixed p."
	}
	return f, true
}

// wrongFinding counts the wrong responses of the last round.
func (r *Run) wrongFinding() (finding, bool) {
	v := r.newestVerdicts
	f := finding{Question: "What is wrong?", Level: "note"}
	switch {
	case v.unknown == v.all:
		f.Text = fmt.Sprintf("The reward does not say which responses of round %d are right.", v.round)
	case v.wrong == 0:
		f.Text = fmt.Sprintf("None of the %d responses of round %d.", v.all, v.round)
	default:
		f.Show = "wrong"
		f.Text = strings.NewReplacer(" 0 with a wrong answer,", "", " 0 truncated,", "").Replace(fmt.Sprintf(
			"%d of the %d responses of round %d: %d with a wrong answer, %d truncated, %d without an answer.",
			v.wrong, v.all, v.round, v.wrong-v.truncated-v.unanswered, v.truncated, v.unanswered))
		f.Text = strings.Replace(f.Text, ", 0 without an answer.", ".", 1)
	}
	return f, v.all > 0
}

// timeFinding reports the share of time of each phase, and the tokens sampled.
func (r *Run) timeFinding() (finding, bool) {
	f := finding{Question: "Where does the time go?", Level: "note"}
	names, seconds, total := r.Seconds()
	if total == 0 {
		return f, false
	}
	var parts []string
	for _, name := range names {
		if share := seconds[name] / total; share >= 0.005 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", name, 100*share))
		}
	}
	f.Text = sentence([]string{strings.Join(parts, ", ") + fmt.Sprintf(" of %.1f s", total)})
	if tokens := sum(r.Rounds.Column("tokens")); tokens > 0 {
		f.Text += fmt.Sprintf(" %.0f tokens sampled", tokens)
		if s := seconds["rollout"]; s > 0 {
			f.Text += fmt.Sprintf(", %.0f a second of rollout", tokens/s)
		}
		f.Text += "."
	}
	if tokens := sum(r.Steps.Column("train_tokens")); r.supervised() && tokens > 0 {
		f.Text += fmt.Sprintf(" %.0f tokens learned, %.0f a second.", tokens, tokens/total)
	}
	return f, true
}

// sum adds the finite values.
func sum(x []float64) float64 {
	total := 0.0
	for _, v := range stat.Finite(x) {
		total += v
	}
	return total
}

// sentence joins parts by semicolons, starts with a capital letter and ends with a full stop.
func sentence(parts []string) string {
	text := strings.Join(parts, "; ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
