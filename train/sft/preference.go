package sft

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"onering/data"
	"onering/internal/settings"
	"onering/train/learn"
	"onering/train/metrics"
)

// newPreferring returns a trainer on preferences: the rows of list are all pairs, the chosen and then the
// rejected demonstration, or all single demonstrations with a label.
func newPreferring(c Config, list, heldOut []data.Demonstration) (*trainer, error) {
	t := &trainer{prefer: &preferring{loss: *c.Preference}, responses: 2}
	labeled := func(d data.Demonstration) bool { return d.Good != nil }
	switch oneResponse := slices.ContainsFunc(list, labeled); {
	case len(heldOut) > 0 && slices.ContainsFunc(heldOut, labeled) != oneResponse:
		return nil, fmt.Errorf("train: --data and --eval-data: one has two responses in a row and the other one with a label: give both the same form")
	case oneResponse && !c.Preference.usesMismatched():
		return nil, settings.About(fmt.Errorf("train: --data: its rows have one response and a label, which --loss kto learns from; %s compares "+
			"two responses to a prompt, in the columns %s and %s", c.Preference.Loss, c.Data.Chosen, c.Data.Rejected), "preference.loss")
	case oneResponse:
		t.responses = 1
	}
	t.unitSize = t.responses
	if c.Preference.usesMismatched() {
		t.unitSize *= 2
	}
	return t, nil
}

// preferring is what a trainer on preferences has more than one on demonstrations. The
// examples of a preference follow each other: the chosen and the rejected one, or the only one,
// and where the loss needs them their prompts with the responses of the preference before.
type preferring struct {
	loss   preferenceLoss
	scored bool // each example has its log-prob under the first policy
}

// addMismatched adds to each preference of a set, behind its so many responses, its prompts with the responses
// of the preference before; the first gets those of the last. Such examples are only scored.
func addMismatched(s *set, responses int) {
	list := s.Examples
	s.Examples = nil
	for i := 0; i < len(list); i += responses {
		s.Examples = append(s.Examples, list[i:i+responses]...)
		for k := range responses {
			prompt, other := list[i+k], list[(i+len(list)-responses+k)%len(list)]
			from, to := slices.Index(prompt.Learn, true), slices.Index(other.Learn, true) // where the responses begin
			s.Examples = append(s.Examples, Example{
				IDs:   slices.Concat(prompt.IDs[:from], other.IDs[to:]),
				Learn: slices.Concat(prompt.Learn[:from], other.Learn[to:]), place: prompt.place,
			})
		}
	}
}

// scoreReference notes the log-probs of the responses under the first policy, once, if the loss compares with it.
func (p *preferring) scoreReference(ctx context.Context, t *trainer) error {
	if p.scored || !p.loss.usesReference() {
		return nil
	}
	for _, s := range t.sets() {
		t.run.Observer.Begin("reference", "responses", len(s.Examples))
		scores, err := t.score(ctx, s.Examples)
		if err != nil {
			return fmt.Errorf("train: the log-probs of the first policy: %w", err)
		}
		for i, row := range scores.LogProb {
			s.Examples[i].reference = sum(row)
		}
	}
	p.scored = true
	return nil
}

// sum adds up a row.
func sum(row []float64) (all float64) {
	for _, x := range row {
		all += x
	}
	return all
}

// weigh returns the loss of examples whose scores are known, and their preferences as pairs. Every per examples in a row are
// one preference: first its responses, so many, and then mismatched ones. The weight of a token is the
// derivative with respect to its response's log-prob; mismatched ones have 0.
func (p *preferring) weigh(examples []Example, scores learn.Scores, responses, per int) (learn.Loss, []pair) {
	scored := func(k int) response {
		return response{sum(scores.LogProb[k]), examples[k].reference, len(scores.LogProb[k])}
	}
	var pairs []pair
	var mismatched []response
	for k := 0; k < len(examples); k += per {
		switch {
		case responses == 2:
			pairs = append(pairs, pair{chosen: scored(k), rejected: scored(k + 1)})
		case examples[k].bad:
			pairs = append(pairs, pair{rejected: scored(k), only: "rejected"})
		default:
			pairs = append(pairs, pair{chosen: scored(k), only: "chosen"})
		}
		for j := responses; j < per; j++ {
			mismatched = append(mismatched, scored(k+j))
		}
	}
	value, chosen, rejected := p.loss.meanOf(pairs, mismatched)
	loss := learn.Loss{Value: value, LogProb: make([][]float64, len(examples))}
	for k := range examples {
		w := 0.0
		switch unit := k / per; {
		case k%per == 0 && pairs[unit].only != "rejected": // the chosen one comes first, if there is one
			w = chosen[unit]
		case k%per < responses: // the rejected one
			w = rejected[unit]
		}
		loss.LogProb[k] = slices.Repeat([]float64{w}, len(scores.LogProb[k]))
	}
	return loss, pairs
}

// record has the figures of pairs: the share in which the policy prefers the chosen
// response more than the reference does, or a single response in the right sense, and by how much, times beta.
func (p *preferring) record(pairs []pair) metrics.Record {
	chosen, rejected := 0.0, 0.0 // how many pairs have each
	for _, x := range pairs {
		chosen, rejected = chosen+x.has("chosen"), rejected+x.has("rejected")
	}
	right, better, worse := 0.0, 0.0, 0.0 // pairs in the right order; mean rewards of the chosen and of the rejected
	for _, x := range pairs {
		c, r := p.loss.Beta*x.chosen.ahead(), p.loss.Beta*x.rejected.ahead()
		if c > r {
			right++
		}
		better, worse = better+c/max(chosen, 1), worse+r/max(rejected, 1)
	}
	return metrics.Record{}.With("accuracy", right/float64(len(pairs))).With("margin", better-worse).With("reward_chosen", better).With("reward_rejected", worse)
}

// save returns the log-probs of the sets' examples under the first policy as the text of a
// checkpoint, "" if they are not known.
func (p *preferring) save(sets []*set) string {
	var bytes []byte
	for _, s := range sets {
		for i := 0; i < len(s.Examples) && p.scored; i++ {
			bytes = binary.LittleEndian.AppendUint64(bytes, math.Float64bits(s.Examples[i].reference))
		}
	}
	return base64.StdEncoding.EncodeToString(bytes)
}

// restore gives the sets' examples what save has written.
func (p *preferring) restore(text string, sets []*set) error {
	responses := 0
	for _, s := range sets {
		responses += len(s.Examples)
	}
	if !p.loss.usesReference() { // then save has written no log-probs
		responses = 0
	}
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(bytes) != 8*responses {
		return fmt.Errorf("its objective_state has %d bytes, not the log-probs of %d responses: the checkpoint is damaged", len(bytes), responses)
	}
	for _, s := range sets {
		for i := 0; i < len(s.Examples) && responses > 0; i++ {
			s.Examples[i].reference = math.Float64frombits(binary.LittleEndian.Uint64(bytes))
			bytes = bytes[8:]
		}
	}
	p.scored = responses > 0
	return nil
}
