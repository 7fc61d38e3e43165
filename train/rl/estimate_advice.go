package rl

import (
	"fmt"
	"strings"

	"onering/internal/memory"
	"onering/models"
	"onering/train/learn"
)

// Check returns an error if the peak exceeds the available memory. It says which
// settings to change.
func (e MemoryEstimate) Check(c Config, model models.Model) error {
	if e.Available == 0 || e.onHost(e.Peak) <= e.Available {
		return nil
	}
	who := "the run takes"
	if e.OnHost > 1 {
		who = fmt.Sprintf("the %d ranks of this machine take", e.OnHost)
	}
	advice, err := e.advice(c, model)
	if err != nil {
		return err
	}
	return fmt.Errorf("train: %s up to %s of memory, with %s; %s are available: %s",
		who, memory.Text(e.onHost(e.Peak)), e.assumed(), memory.Text(e.Available), advice)
}

// advice says what to set so that the run fits.
func (e MemoryEstimate) advice(c Config, model models.Model) (string, error) {
	fewer := "a smaller model or a larger machine"
	if e.OnHost > 1 {
		fewer += ", or fewer ranks"
	}
	if certain := e.onHost(e.Certain()); certain > e.Available {
		text := fmt.Sprintf("weights, gradients and moments alone are %s; take %s", memory.Text(certain), fewer)
		if e.onHost(e.Certain()-e.Reference) <= e.Available {
			text += ", or an objective without a reference policy (kl_beta = 0)"
		}
		return text, nil
	}
	less, fits, err := e.fitting(c, model)
	if err != nil || !fits {
		return "no rollout.slots, train.micro_tokens and rollout.max_new_tokens alone make it fit; take " + fewer, err
	}
	var set []string
	for _, s := range []struct {
		key      string
		was, now int
	}{
		{"rollout.slots", c.Rollout.Slots, less.Rollout.Slots},
		{"train.micro_tokens", c.Train.MicroTokens, less.Train.MicroTokens},
		{"rollout.max_new_tokens", c.Rollout.MaxNewTokens, less.Rollout.MaxNewTokens},
	} {
		if s.now != s.was {
			set = append(set, fmt.Sprintf("%s = %d", s.key, s.now))
		}
	}
	return "set " + strings.Join(set, " and "), nil
}

// fitting returns c with slots and micro-batches halved as seldom as makes the run
// fit, and of several such the one that takes least; responses are shorter only where
// that is not enough. Every candidate is estimated, since smaller micro-batches may
// take more: more of their layers is kept.
func (e MemoryEstimate) fitting(c Config, model models.Model) (best Config, fits bool, err error) {
	for n := c.Rollout.MaxNewTokens; n > 0; n /= 2 {
		for halvings, some := 0, true; some; halvings++ {
			some = false
			peak := e.Available
			for k := range halvings + 1 {
				less := c
				less.Rollout.MaxNewTokens, less.Rollout.Slots, less.Train.MicroTokens = n, c.Rollout.Slots>>k, c.Train.MicroTokens>>(halvings-k)
				if less.Rollout.Slots < 1 || less.Train.MicroTokens < min(c.Train.MicroTokens, learn.SmallestMicroBatch) {
					continue
				}
				some = true
				now, err := EstimateMemory(less, model, Split{e.Ranks, e.OnHost})
				if err != nil {
					return c, false, err
				}
				if taken := now.onHost(now.Peak); taken <= peak {
					best, fits, peak = less, true, taken
				}
			}
			if fits {
				return best, true, nil
			}
		}
	}
	return c, false, nil
}

// Refuse returns an error if not even Certain fits into the available memory.
func (e MemoryEstimate) Refuse(c Config, model models.Model) error {
	if e.Available > 0 && e.onHost(e.Certain()) > e.Available {
		return e.Check(c, model)
	}
	return nil
}
