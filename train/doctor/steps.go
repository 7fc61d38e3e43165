package doctor

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"onering/internal/stat"
	"onering/train/metrics"
)

// A rule of the steps or of the course of a run looks at the record of a round and its
// evidence.
type rule = func(*Doctor, metrics.Record, *Round) *Finding

// stepRules look at the optimizer steps of a round.
var stepRules = []rule{overruled, destroyed, clipped, unmoved}

// planned finds what the settings alone show.
func (d *Doctor) planned() (list []Finding) {
	f := &d.facts
	if w := f.number("optimizer.warmup"); w >= 1 && w > float64(f.Steps)/2 && f.Steps > 1 || w > 0.5 && w < 1 {
		list = append(list, *found("warmup", "the warm-up takes most of the run, so that its learning rate stays below the one that is set: optimizer.warmup = %g, and the run has %d steps. Give it a share of the steps, such as 0.1", w, f.Steps))
	}
	rate, decay := f.number("optimizer.learning_rate"), f.number("optimizer.weight_decay")
	if shrink := rate * decay; decay >= 1 && shrink > 0.002 && f.Settings["lora.on"] != "true" && (f.Steps == 0 || shrink*float64(f.Steps) > 0.2) {
		list = append(list, *found("decay", "weight decay shrinks the weights by %.2g %% in each step (optimizer.weight_decay = %g times the learning rate %g), to %.2g %% by the end of the run, faster than the rewards can hold them. Lower optimizer.weight_decay", 100*shrink, decay, rate, 100*math.Pow(1-min(1, shrink), float64(max(1, f.Steps)))))
	}
	return list
}

// column returns the finite figures of steps.
func column(steps []metrics.Record, name string) (x []float64) {
	for _, s := range steps {
		x = append(x, s.Float(name))
	}
	return stat.Finite(x)
}

// overruled finds a term of the loss that outweighs the reward.
func overruled(d *Doctor, _ metrics.Record, r *Round) *Finding {
	for _, x := range []struct{ cause, name, setting, remedy string }{
		{"kl", "KL penalty", "objective.kl_beta", "the policy is held at the reference"},
		{"entropy", "entropy bonus", "objective.entropy_bonus", "the entropy is learned and not the reward"},
	} {
		if share := stat.Mean(column(r.Steps, "term_share/"+x.cause)); share > 0.5 {
			reference := ""
			if path := d.facts.Settings["model.reference"]; x.cause == "kl" && path != "" {
				reference = fmt.Sprintf(" (model.reference = %q)", path)
			}
			return found(x.cause, "the %s overrules the reward: %s of the gradient is its (%s = %s)%s, so that %s. Lower %s", x.name, per(share), x.setting, d.facts.Settings[x.setting], reference, x.remedy, x.setting)
		}
	}
	return nil
}

// farMoved is the deviation of a token's log-ratio, in nats, above which a round's steps have
// left the policy that sampled.
const farMoved = 2

// destroyed finds steps that are too large, or too many over the same responses.
func destroyed(d *Doctor, _ metrics.Record, r *Round) *Finding {
	moved, epochs := column(r.Steps, "delta/std"), d.facts.number("train.epochs")
	if len(moved) == 0 || slices.Max(moved) < farMoved {
		return nil
	}
	pass := moved[:max(1, len(moved)/int(max(1, epochs)))]
	if most := slices.Max(moved); epochs > 1 && most > 2*slices.Max(pass) {
		return found("stale", "the %.0f passes over one round's responses move the policy too far: the log-ratio of a token deviates by %.2g nats in the last and by %.2g in the first pass. Lower train.epochs (or optimizer.learning_rate)", epochs, most, slices.Max(pass))
	}
	return found("rate-high", "the steps are too large and destroy the policy: within a round the log-ratio of a token deviates by %.2g nats. Lower optimizer.learning_rate = %s", slices.Max(moved), d.facts.Settings["optimizer.learning_rate"])
}

// clipped finds a clip that cuts most tokens.
func clipped(d *Doctor, _ metrics.Record, r *Round) *Finding {
	cut, moved := column(r.Steps, "clipped"), column(r.Steps, "delta/std")
	if len(cut) < 2 || len(moved) == 0 || stat.Mean(cut[1:]) < 0.3 {
		return nil
	}
	text := fmt.Sprintf("the clip of the ratio cuts %s of the tokens after a round's first step", per(stat.Mean(cut[1:])))
	if epochs := d.facts.number("train.epochs"); epochs > 1 && slices.Max(moved) > 0.5 {
		return found("stale", "%s: the %.0f passes over one round's responses move the policy too far. Lower train.epochs", text, epochs)
	}
	for _, key := range []string{"objective.clip_low", "objective.clip_high", "objective.clip"} {
		usual, _ := strconv.ParseFloat(d.facts.Usual[key], 64)
		if x := d.facts.number(key); x > 0 && x < usual/20 {
			return found("clip", "%s: %s = %g, by default %g, although the log-ratio of a token deviates by no more than %.2g. Widen the clip", text, key, x, usual, slices.Max(moved))
		}
	}
	return nil
}

// unmoved finds steps that change nothing.
func unmoved(d *Doctor, record metrics.Record, r *Round) *Finding {
	f, moved := &d.facts, column(r.Steps, "delta/std")
	rate, norms, rates := f.number("optimizer.learning_rate"), column(r.Steps, "grad_norm"), column(r.Steps, "learning_rate")
	if d.state.Rounds > 3 || len(norms) == 0 || slices.Max(norms) == 0 || len(rates) == 0 || slices.Max(rates) < rate/2 {
		return nil
	}
	text := ""
	if len(moved) > 1 && slices.Max(moved) < 1e-3 {
		text = fmt.Sprintf("the policy hardly moves: within a round the log-prob of a token changes by %.1g", slices.Max(moved))
	} else if whole := rate * float64(f.Steps) / f.Weight; f.Steps > 0 && f.Weight > 0 && whole < 1e-5 && f.Settings["optimizer.eps"] != "" {
		text = fmt.Sprintf("the weights hardly move: all %d steps change them by at most %.1g of their size", f.Steps, whole)
	} else {
		return nil
	}
	norm, most, eps := stat.Mean(norms), f.number("optimizer.max_grad_norm"), f.number("optimizer.eps")
	held := norm
	if most > 0 {
		held = min(norm, most)
	}
	element := held / math.Sqrt(float64(max(1, f.Parameters)))
	switch {
	case !(element < 10*eps):
		return found("rate-low", "%s. Raise optimizer.learning_rate = %s", text, f.Settings["optimizer.learning_rate"])
	case held < norm/100:
		return found("small-scale", "%s: optimizer.max_grad_norm = %g scales a gradient of norm %.2g down until optimizer.eps swallows it. Raise optimizer.max_grad_norm", text, most, norm)
	case eps > 1e-5:
		return found("small-scale", "%s: optimizer.eps = %g is larger than the gradient (%.1g an element). Lower optimizer.eps", text, eps, element)
	case record.Float("reward_std") < 1e-4:
		return found("small-scale", "%s: rewards are too small, they deviate by %.1g. Scale the reward to about 1", text, record.Float("reward_std"))
	}
	return found("small-scale", "%s: the gradient is too small (%.1g an element, beside optimizer.eps = %g). Scale the loss up by the settings of [objective], such as constant_length", text, element, eps)
}
