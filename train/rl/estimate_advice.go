package rl

import (
	"errors"
	"fmt"
	"strings"

	"onering/internal/memory"
	"onering/models"
	"onering/runtime"
	"onering/train/learn"
)

// Refuse returns an error if not even Certain fits into the available memory, or if a
// buffer is larger than the GPU has them.
func (e MemoryEstimate) Refuse(c Config, model models.Model) error {
	if e.onHost(e.Certain()) <= e.Available || e.Available == 0 {
		return runtime.CheckBuffers(c.Runtime.Device, e.Buffers...)
	}
	return e.Check(c, model)
}

// Check returns an error if the peak exceeds the available memory, or a buffer what the
// GPU has. It says which settings to change.
func (e MemoryEstimate) Check(c Config, model models.Model) error {
	tooLarge := runtime.CheckBuffers(c.Runtime.Device, e.Buffers...)
	if e.Available == 0 || e.onHost(e.Peak) <= e.Available {
		return tooLarge
	}
	who, fewer := "the run takes", "a smaller model or a larger machine"
	if e.OnHost > 1 {
		who, fewer = fmt.Sprintf("the %d ranks of this machine take", e.OnHost), fewer+", or fewer ranks"
	}
	var advice string
	if certain := e.onHost(e.Certain()); certain > e.Available {
		advice = fmt.Sprintf("weights, gradients and moments alone are %s; take %s", memory.Text(certain), fewer)
		if e.onHost(e.Certain()-e.Of("reference").Device) <= e.Available {
			advice += ", or an objective without a reference policy (kl_beta = 0)"
		}
	} else if set, err := e.fitting(c, model); err != nil {
		return err
	} else if advice = "set " + strings.Join(set, " and "); set == nil {
		advice = "no rollout.slots, train.micro_tokens and rollout.max_new_tokens alone make it fit; take " + fewer
	}
	return errors.Join(fmt.Errorf("train: %s up to %s of memory, with %s; %s are available: %s",
		who, memory.Text(e.onHost(e.Peak)), e.assumed(), memory.Text(e.Available), advice), tooLarge)
}

// fitting returns the settings of c with slots and micro-batches halved as seldom as makes
// the run fit, and of several such those that take least; responses are shorter only where
// that is not enough. Every candidate is estimated, since smaller micro-batches may
// take more: more of their layers is kept.
func (e MemoryEstimate) fitting(c Config, model models.Model) (set []string, err error) {
	for n := c.Rollout.MaxNewTokens; n > 0 && set == nil; n /= 2 {
		for halvings, some := 0, true; some && set == nil; halvings++ {
			some = false
			peak := e.Available
			for k := range halvings + 1 {
				less := c
				less.Rollout.MaxNewTokens, less.Rollout.Slots, less.Train.MicroTokens = n, c.Rollout.Slots>>k, c.Train.MicroTokens>>(halvings-k)
				if less.Rollout.Slots < 1 || less.Train.MicroTokens < min(c.Train.MicroTokens, learn.SmallestMicroBatch) {
					continue
				}
				some = true
				now, err := EstimateMemory(less, model, e.Split)
				if err != nil {
					return nil, err
				}
				if taken := now.onHost(now.Peak); taken <= peak {
					set, peak = changed(c, less), taken
				}
			}
		}
	}
	return set, nil
}

// changed lists the sizes of less that are not those of c.
func changed(c, less Config) (set []string) {
	was := []int{c.Rollout.Slots, c.Train.MicroTokens, c.Rollout.MaxNewTokens}
	for i, now := range []int{less.Rollout.Slots, less.Train.MicroTokens, less.Rollout.MaxNewTokens} {
		if now != was[i] {
			set = append(set, fmt.Sprintf("%s = %d", [...]string{"rollout.slots", "train.micro_tokens", "rollout.max_new_tokens"}[i], now))
		}
	}
	return set
}
