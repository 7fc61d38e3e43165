package rl

import (
	"fmt"
	"reflect"

	"onering/models"
	"onering/policy"
	"onering/runtime"
)

// A reference is the model with which objectives compare the policy: another model, or
// the policy at the beginning of training.
type reference struct {
	other   *policy.Policy   // another model or adapter; nil if it is the policy of the beginning
	weights *models.Weights  // the copy of that policy's weights, and
	ring    *runtime.Ring    // their ring; nil with an adapter, since the policy's ring has the weights
	learner *runtime.Learner // scores with the reference
}

// newReference opens the reference of a run: the model of model.reference, or else the present policy, of whose weights
// it makes a copy. If the policy has an adapter, its weights do not change, so the reference is the policy's ring
// without the adapter, or with the adapter that the run continues as it was. Close it even after an error.
func newReference(env *runtime.Env, c Config, policy *policy.Policy) (r *reference, err error) {
	r = &reference{}
	ring, o := policy.Ring, runtime.LearnerOptions{ScoreOnly: true}
	switch {
	case c.Model.Reference != "":
		err = r.open(env, c, policy)
	case c.LoRA.Adapter != "":
		r.other, err = policy.WithAdapter(c.LoRA.Adapter)
	case policy.Adapter != nil:
		o.Base = true
	default:
		err = r.copy(env, policy)
	}
	if r.other != nil {
		ring = r.other.Ring
	} else if r.ring != nil {
		ring = r.ring
	}
	if err == nil {
		r.learner, err = env.NewLearner(ring, o)
	}
	return r, err
}

// open opens another model as r.other. It must have the policy's tokens and room for its
// sequences, and to follow the policy the same tensors.
func (r *reference) open(env *runtime.Env, c Config, trained *policy.Policy) (err error) {
	if r.other, err = policy.Open(env, policy.Options{Path: c.Model.Reference, DType: c.Model.DType}); err != nil {
		return err
	}
	r.other.Ring.Offload = trained.Ring.Offload
	if c.Model.ReferenceUpdate != 0 && !reflect.DeepEqual(r.other.Weights.Layout, trained.Weights.Layout) {
		return fmt.Errorf("%s: it has other tensors than the policy, so it cannot follow it: set model.reference_update = 0", c.Model.Reference)
	}
	if err = sameTokens(trained, r.other); err != nil {
		return fmt.Errorf("%s: %w", c.Model.Reference, err)
	}
	if have, want := r.other.Model.MaxPositions, c.Rollout.MaxPromptTokens+c.Rollout.MaxNewTokens; have > 0 && have < want {
		return fmt.Errorf("%s: sequences may have %d tokens (rollout.max_prompt_tokens and max_new_tokens), and its %s",
			c.Model.Reference, want, r.other.Model.Context())
	}
	return nil
}

// sameTokens returns an error unless every id of the policy means the same to another
// model. Without tokenizers, both need equally many ids.
func sameTokens(policy, other *policy.Policy) error {
	if policy.Tokenizer == nil || other.Tokenizer == nil {
		if policy.Model.Vocab != other.Model.Vocab {
			return fmt.Errorf("its vocab_size is %d, that of the policy %d, and one of them has no tokenizer: they cannot be compared",
				other.Model.Vocab, policy.Model.Vocab)
		}
		return nil
	}
	for id := range int32(policy.Tokenizer.VocabSize()) {
		if a, b := policy.Tokenizer.Token(id), other.Tokenizer.Token(id); a != b {
			return fmt.Errorf("its token %d is %q, that of the policy %q: a reference must have the tokens of the policy", id, b, a)
		}
	}
	return nil
}

// copy makes a ring of a copy of a policy's weights.
func (r *reference) copy(env *runtime.Env, policy *policy.Policy) (err error) {
	if err := env.Download(policy.Weights); err != nil {
		return err
	}
	defer env.Forget(policy.Weights) // only the host's copy
	if r.weights, err = models.NewWeights(policy.Weights.Layout); err != nil {
		return err
	}
	copy(r.weights.Data, policy.Weights.Data)
	r.ring = runtime.NewRing(policy.Ring.Arch, r.weights)
	r.ring.Offload = policy.Ring.Offload
	return nil
}

// moving returns the weights that follow the policy's.
func (r *reference) moving() *models.Weights {
	if r.other != nil {
		return r.other.Weights
	}
	return r.weights
}

// follow moves the reference: each weight becomes share of the policy's and 1 - share of its
// own, as TRL's ref_model_mixup_alpha has it.
func (r *reference) follow(trained *policy.Policy, share float64) error {
	env, from, to := trained.Env, trained.Weights, r.moving()
	if err := env.Download(from, to); err != nil {
		return err
	}
	defer env.Forget(from, to)
	its, own := float32(share), float32(1-share)
	for i, x := range from.Data {
		to.Data[i] = float32(own*to.Data[i]) + float32(its*x) // not fused, so that the bits are those of any machine
	}
	return env.Upload(to)
}

// close frees what the reference holds, as far as it was made.
func (r *reference) close() {
	if r.learner != nil {
		r.learner.Close()
	}
	if r.ring != nil {
		r.ring.Close()
	}
	if r.weights != nil {
		r.weights.Close()
	}
	if r.other != nil {
		r.other.Close()
	}
}
