package doctor

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"onering/internal/stat"
	"onering/train/metrics"
)

// settingsFaults finds what is wrong with the settings, before any step: warm-up, learning rate and weight decay. A
// setting that the run does not have is NaN, which meets no condition.
func (f *Facts) settingsFaults() (list []Finding) {
	rate, decay, warmup := f.number("optimizer.learning_rate"), f.number("optimizer.weight_decay"), f.number("optimizer.warmup")
	if warmup >= 1 && warmup > float64(f.Steps)/2 && f.Steps > 1 || warmup > 0.5 && warmup < 1 {
		list = append(list, *newFinding("warmup", "the warm-up takes most of the run, so that its learning rate stays "+
			"below the one that is set: optimizer.warmup = %g, and the run has %d steps. Give it a share of the steps, such as 0.1", warmup, f.Steps).
			With("optimizer.warmup", 0.1))
	}
	if f.Settings["lora.on"] != "true" && f.Weight > 0 && rate > f.Weight/2 {
		list = append(list, *newFinding("rate-high", "the learning rate is too high: each step changes a weight by about %.2g, and "+
			"their typical size is %.2g, so the first steps destroy what the model knows. Lower optimizer.learning_rate (--lr)", rate, f.Weight).
			With("optimizer.learning_rate", fmt.Sprintf("%.0e", f.Weight/100)))
	}
	if inAll := rate * float64(f.Steps); f.Steps >= 8 && rate > 0 && inAll < 1e-6 {
		list = append(list, *newFinding("rate-low", "nothing will be learned: all %d steps change a weight by about %.1g. Raise "+
			"optimizer.learning_rate (--lr) = %g", f.Steps, inAll, rate).times(f, "optimizer.learning_rate", 10))
	}
	if shrink := rate * decay; decay >= 1 && shrink > 0.002 && f.Settings["lora.on"] != "true" && shrink*float64(f.Steps) > 0.2 {
		list = append(list, *newFinding("decay", "weight decay shrinks the weights by %.2g %% in each step (optimizer.weight_decay "+
			"= %g times the learning rate %g), to %.2g %% by the end of the run, faster than the rewards can hold them. Lower optimizer.weight_decay",
			100*shrink, decay, rate, 100*math.Pow(1-min(1, shrink), float64(f.Steps))))
	}
	return list
}

// stepsFault says what is wrong with the optimizer steps of a round: a term of the loss outweighs
// the reward, steps leave the policy that sampled, a clip cuts most tokens, or nothing moves.
func (d *Doctor) stepsFault(record metrics.Record, steps []metrics.Record) *Finding {
	column := func(name string) (x []float64) {
		for _, s := range steps {
			x = append(x, s.Float(name))
		}
		return stat.Finite(x)
	}
	f := &d.facts
	most, mostFirst, clippedShare := 0.0, 0.0, 0.0 // the largest change of log-probs in all passes, and in the first
	epochs, moved := f.number("train.epochs"), column("delta/std")
	if len(moved) > 0 {
		most, mostFirst = slices.Max(moved), slices.Max(moved[:max(1, len(moved)/int(max(1, epochs)))])
	}
	if clipped := column("clipped"); len(clipped) > 1 {
		clippedShare = stat.Mean(clipped[1:]) // in the first step no ratio has left 1
	}
	kl, entropy, clip := stat.Mean(column("term_share/kl")), stat.Mean(column("term_share/entropy")), f.narrowClip()
	switch {
	case kl > 0.5 && f.Settings["model.reference"] != "":
		return newFinding("kl", "the KL penalty overrules the reward: %s of the gradient pull to model.reference = %q "+
			"(objective.kl_beta = %s). Lower objective.kl_beta, or take another reference", percent(kl), f.Settings["model.reference"], f.Settings["objective.kl_beta"]).
			times(f, "objective.kl_beta", 0.1)
	case kl > 0.5:
		return newFinding("kl", "the KL penalty overrules the reward: %s of the gradient hold the policy at the reference "+
			"(objective.kl_beta = %s). Lower objective.kl_beta", percent(kl), f.Settings["objective.kl_beta"]).times(f, "objective.kl_beta", 0.1)
	case entropy > 0.5:
		return newFinding("entropy", "the entropy bonus overrules the reward: %s of the gradient are for the entropy "+
			"(objective.entropy_bonus = %s). Lower objective.entropy_bonus", percent(entropy), f.Settings["objective.entropy_bonus"]).
			times(f, "objective.entropy_bonus", 0.1)
	case most > 2.5 && epochs > 1 && most > 2*mostFirst:
		return newFinding("stale", "the %.0f passes over one round's responses move the policy too far: the log-ratio of "+
			"a token deviates by %.2g nats in the last and by %.2g in the first pass. Lower train.epochs (or optimizer.learning_rate)", epochs, most, mostFirst).
			With("train.epochs", 1)
	case most > 2.5:
		return newFinding("rate-high", "the steps are too large and destroy the policy: within a round the log-ratio of "+
			"a token deviates by %.2g nats. Lower optimizer.learning_rate = %s", most, f.Settings["optimizer.learning_rate"]).
			times(f, "optimizer.learning_rate", 0.1)
	case clippedShare > 0.3 && clip != "":
		return newFinding("clip", "the clip of the ratio cuts %s of the tokens after a round's first step: %s, although "+
			"the log-ratio of a token deviates by no more than %.2g. Widen the clip", percent(clippedShare), clip, most)
	}
	if d.state.Rounds > 3 || len(moved) > 1 && most > 1e-3 { // later rounds may well stand still, and these move
		return nil
	}
	return f.whyUnmoved(record, len(moved) > 1, most, stat.Mean(column("grad_norm")), stat.Mean(column("learning_rate")))
}

// Right returns a line for beginners that says that a first loss of 0 is right, if the first of steps has one; else "".
func Right(steps []metrics.Record) string {
	if len(steps) == 0 || !(math.Abs(steps[0].Float("loss")) < 1e-6 && steps[0].Float("grad_norm") > 0) {
		return ""
	}
	return fmt.Sprintf("this is right: the first loss is 0 and the ratio 1, since the policy that learns is still the one that sampled and "+
		"the advantages of a group add up to 0; the gradient has a norm of %.2g", steps[0].Float("grad_norm"))
}

// narrowClip names a clip that is far below the objective's default; "" if there is none.
func (f *Facts) narrowClip() string {
	for _, key := range []string{"objective.clip_low", "objective.clip_high", "objective.clip"} {
		usual, _ := strconv.ParseFloat(f.Defaults[key], 64)
		if x := f.number(key); x > 0 && x < usual/20 {
			return fmt.Sprintf("%s = %g, by default %g", key, x, usual)
		}
	}
	return ""
}

// whyUnmoved says why steps change nothing: a learning rate that is too low, or gradients so small that optimizer.eps
// swallows them. measured says that the log-probs of tokens have changed by most nats; otherwise the size of the steps
// tells. norm is that of the gradients, and step the mean learning rate. Without gradients or in a warm-up it returns nil.
func (f *Facts) whyUnmoved(record metrics.Record, measured bool, most, norm, step float64) *Finding {
	rate, eps := f.number("optimizer.learning_rate"), f.number("optimizer.eps")
	inAll := rate * float64(f.Steps) / f.Weight // Weight is the typical size of a weight; a step of Adam changes each by about the rate
	text := fmt.Sprintf("the policy hardly moves: within a round the log-prob of a token changes by %.1g", most)
	if !measured {
		text = fmt.Sprintf("the weights hardly move: all %d steps change them by at most %.1g of their size", f.Steps, inAll)
	}
	if !(norm > 0) || !(step > rate/2) || !measured && !(inAll < 1e-5 && eps > 0) {
		return nil
	}
	limit, clipped := f.number("optimizer.max_grad_norm"), norm // the norm after clipping
	if limit > 0 {
		clipped = min(norm, limit)
	}
	element := clipped / math.Sqrt(float64(max(1, f.Parameters))) // the typical size of a gradient's element
	switch {
	case !(element < 10*eps):
		return newFinding("rate-low", "%s. Raise optimizer.learning_rate = %g", text, rate).times(f, "optimizer.learning_rate", 10)
	case clipped < norm/100:
		return newFinding("small-scale", "%s: optimizer.max_grad_norm = %g scales a gradient of norm %.2g down until "+
			"optimizer.eps swallows it. Raise optimizer.max_grad_norm", text, limit, norm)
	case eps > 1e-5:
		return newFinding("small-scale", "%s: optimizer.eps = %g is larger than the gradient (%.1g an element). Lower optimizer.eps", text, eps, element)
	case record.Float("reward_std") < 1e-4:
		return newFinding("small-scale", "%s: rewards are too small, they deviate by %.1g. Scale the reward to about 1", text, record.Float("reward_std"))
	}
	return newFinding("small-scale", "%s: the gradient is too small (%.1g an element, beside optimizer.eps = %g). Scale "+
		"the loss up by the settings of [objective], such as constant_length", text, element, eps)
}
