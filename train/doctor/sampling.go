package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// samplingFault says what is wrong with what was sampled. The first fault explains those behind it.
func (p *reading) samplingFault() *Finding {
	t, filters := p.number("rollout.temperature"), p.filters()
	uniform := math.Log(float64(p.Vocabulary)) // the entropy of uniform draws, in nats
	random := p.entropy / uniform
	lost := p.before[evaluated] > max(0.05, 3*p.right) // the evaluation finds right answers that sampling does not
	same := fmt.Sprintf("the responses to a problem are the same text in %s of the groups and %s of the pairs "+
		"(entropy %.2g nats a token), which leaves nothing to compare", percent(p.sameText), percent(p.equalPairs), p.entropy)
	switch {
	case t > 1 && (random > 0.5 || t > 1.25 && random > 0.15 && lost):
		return newFinding("hot", "a temperature of %g makes the responses nearly random: their entropy is %.2f nats a "+
			"token, near %s of the most that is possible. Set rollout.temperature = 1", t, p.entropy, percent(random))
	case random > 0.6:
		return newFinding("untrained", "the model writes random tokens: the entropy is %.2f nats a token, near the %.2f "+
			"of a uniform draw. Train it by onering sft first, or set model.path to a trained model", p.entropy, uniform)
	case p.ChatTemplateUnused && p.right < 0.05 && (p.unanswered > 0.3 || p.commonestText > 0.5 || p.truncated > 0.3):
		return newFinding("template", "prompts lack the chat template that the model's tokenizer has, and %s of the "+
			"responses are right (the prompts' template is %q): set model.template = \"chat\"", percent(p.right), p.Settings["model.template"]).
			With("model.template", "chat")
	case p.wentOn > 0.1 && p.wentOn > p.truncated/2: // wentOn: truncated ones that go on behind a token that ends a turn
		return newFinding("no-end", "responses do not end at the token %s that the model writes for it: %s go on after it "+
			"until rollout.max_new_tokens cuts them. Set eos_token_id in the model's generation_config.json to that token", p.token, percent(p.wentOn))
	case p.endedEarly > 0.5 && p.right < 0.05:
		return newFinding("no-end", "%s of the responses end at %q, which eos_token_id names and which is not an end token, "+
			"and %s are right: set eos_token_id in the model's generation_config.json to the token that ends its texts",
			percent(p.endedEarly), p.token, percent(p.right))
	case p.stopped > 0.1 && p.stoppedRight < 0.05 && (p.stopped == 1 || p.stoppedRight < p.right/2):
		return newFinding("stop", "%s of the responses are ended by a stop text (model.stop = %s), and %s of these are "+
			"right: it stands before the answer. Take it out of model.stop", percent(p.stopped), p.Settings["model.stop"], percent(p.stoppedRight)).
			With("model.stop", "[]")
	case p.outOfTurns > 0.5, p.outOfTurns > 0.25 && p.right < p.outOfTurns/4:
		return newFinding("turns", "%s of the episodes are cut off after environment.max_turns = %s turns, before they end, and "+
			"%s of all are right. Raise environment.max_turns", percent(p.outOfTurns), p.Settings["environment.max_turns"], percent(p.right)).
			times(p.Facts, "environment.max_turns", 2)
	case p.truncated >= 0.1:
		return newFinding("cut", "%s of the responses are cut off at rollout.max_new_tokens = %s before they end, and earn "+
			"nothing for what would follow; the mean length is %.0f tokens. Raise rollout.max_new_tokens", percent(p.truncated),
			p.Settings["rollout.max_new_tokens"], p.record.Float("response_length/mean")).times(p.Facts, "rollout.max_new_tokens", 2)
	case p.right > 0.9:
	case (p.sameText >= 0.5 || p.equalPairs > 0.25) && t <= 0.5:
		return newFinding("no-variety", "%s: rollout.temperature is %g. Set it to 1", same, t).With("rollout.temperature", 1)
	case p.sameText >= 0.5 && filters != "":
		return newFinding("no-variety", "%s: %s hides all other tokens. Leave it out", same, filters)
	case p.sameText > 0.8:
		return newFinding("no-variety", "%s: the model is certain of its answers, and right in %s. Begin with another model, or raise rollout.temperature",
			same, percent(p.right))
	case filters != "" && p.Settings["rollout.logp"] != "kept" && p.hiddenEntropy > 4 && p.surprise < 0.88*p.entropy:
		// hiddenEntropy is the difference of the two in standard errors, near 0 where the model's own distribution is sampled.
		return newFinding("filter", "with %s training does not see what the model would write: the sampled tokens have %.2g nats "+
			"each, of the %.2g that the model's distribution has. Leave it out of [rollout], or train the "+
			"filtered policy with rollout.logp = \"kept\"", filters, p.surprise, p.entropy)
	case filters != "" && lost && p.number("eval.temperature") != 0: // a greedy evaluation would find more without filters, too
		return newFinding("filter", "with %s %s of the responses are right, and %s in the evaluation before training: the filter "+
			"hides what the model would find. Leave it out of [rollout], or let it keep more", filters, percent(p.right), percent(p.before[evaluated]))
	}
	return nil
}

// filters are the settings that keep tokens from being sampled, as text; "" if none does.
func (p *reading) filters() string {
	var list []string
	for key, off := range map[string]float64{"top_p": 1, "min_p": 0, "top_k": 0} {
		if x := p.number("rollout." + key); !math.IsNaN(x) && x != off {
			list = append(list, fmt.Sprintf("rollout.%s = %g", key, x))
		}
	}
	return strings.Join(slices.Sorted(slices.Values(list)), " and ")
}
