package train

import (
	"fmt"
	"strings"

	"onering/models"
	"onering/train/learn"
	"onering/train/memory"
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
	return fmt.Errorf("train: %s up to %s of memory, %s are available: %s", who, memory.Text(e.onHost(e.Peak)), memory.Text(e.Available), e.advice(c, model))
}

// advice says what to set so that the run fits.
func (e MemoryEstimate) advice(c Config, model models.Model) string {
	if certain := e.onHost(e.Certain()); certain > e.Available {
		text := fmt.Sprintf("weights, gradients and moments alone are %s; take a smaller model or a larger machine", memory.Text(certain))
		if e.OnHost > 1 {
			text = strings.Replace(text, "larger machine", "larger machine, or fewer ranks", 1)
		}
		if e.onHost(e.Certain()-e.Reference) <= e.Available {
			text += ", or an objective without a reference policy (kl_beta = 0)"
		}
		return text
	}
	// The larger of the two is halved until it fits.
	less, now := c, e
	for now.onHost(now.Peak) > e.Available {
		switch {
		case less.Rollout.Slots > 1 && (now.slots >= now.micro || less.Train.MicroTokens/2 < learn.SmallestMicroBatch):
			less.Rollout.Slots /= 2
		case less.Train.MicroTokens/2 >= learn.SmallestMicroBatch:
			less.Train.MicroTokens /= 2
		default:
			return fmt.Sprintf("lower rollout.max_new_tokens = %d or train.batch_size = %d", c.Rollout.MaxNewTokens, c.Train.BatchSize)
		}
		var err error
		if now, err = EstimateMemory(less, model, Split{e.Ranks, e.OnHost}); err != nil {
			return err.Error()
		}
	}
	var set []string
	if n := less.Rollout.Slots; n != c.Rollout.Slots {
		set = append(set, fmt.Sprintf("rollout.slots = %d", n))
	}
	if n := less.Train.MicroTokens; n != c.Train.MicroTokens {
		set = append(set, fmt.Sprintf("train.micro_tokens = %d", n))
	}
	return "set " + strings.Join(set, " and ")
}

// Refuse returns an error if not even Certain fits into the available memory.
func (e MemoryEstimate) Refuse(c Config, model models.Model) error {
	if e.Available > 0 && e.onHost(e.Certain()) > e.Available {
		return e.Check(c, model)
	}
	return nil
}
