package rl

import (
	"fmt"

	"onering/models"
	"onering/policy"
	"onering/runtime"
)

// A reference is the model that objectives compare the policy with: another one, or
// the policy as it was when training began.
type reference struct {
	other   *policy.Policy // nil if it is the policy of the beginning
	weights *models.Weights
	ring    *runtime.Ring
	learner *runtime.Learner
}

// newReference opens the reference of a run: the model of model.reference, or else a
// copy of the policy.
func newReference(env *runtime.Env, c Config, policy *policy.Policy) (*reference, error) {
	if c.Model.Reference == "" {
		return copyPolicy(env, policy, c.LoRA.Adapter)
	}
	r, err := openReference(env, c, policy)
	if err != nil {
		return nil, fmt.Errorf("train: model.reference: %w", err)
	}
	return r, nil
}

// openReference opens another model, which must have the tokens of the policy and room
// for its sequences.
func openReference(env *runtime.Env, c Config, trained *policy.Policy) (r *reference, err error) {
	made := &reference{}
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if made.other, err = policy.Open(env, policy.Options{Path: c.Model.Reference, DType: c.Model.DType}); err != nil {
		return nil, err
	}
	if err = sameTokens(trained, made.other); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Model.Reference, err)
	}
	if have, want := made.other.Model.MaxPositions, c.Rollout.MaxPromptTokens+c.Rollout.MaxNewTokens; have > 0 && have < want {
		return nil, fmt.Errorf("%s: its max_position_embeddings is %d, and sequences may have %d tokens (rollout.max_prompt_tokens and max_new_tokens)", c.Model.Reference, have, want)
	}
	made.learner, err = env.NewLearner(made.other.Ring, runtime.LearnerOptions{Stash: models.StashInput, ScoreOnly: true})
	return made, err
}

// sameTokens returns an error unless every id of the policy means the same to another
// model. Models without a tokenizer have as many ids.
func sameTokens(policy, other *policy.Policy) error {
	if policy.Tokenizer == nil || other.Tokenizer == nil {
		if policy.Model.Vocab != other.Model.Vocab {
			return fmt.Errorf("its vocab_size is %d, that of the policy %d, and one of them has no tokenizer: they cannot be compared", other.Model.Vocab, policy.Model.Vocab)
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

// copyPolicy copies the policy's weights. Of a policy with an adapter the weights
// stay as they are, and the reference is the ring without the adapter, or with the one that
// the run goes on with as it was.
func copyPolicy(env *runtime.Env, policy *policy.Policy, begun string) (r *reference, err error) {
	if begun != "" {
		made := &reference{}
		if made.other, err = policy.Beside(begun); err == nil {
			made.learner, err = env.NewLearner(made.other.Ring, runtime.LearnerOptions{Stash: models.StashInput, ScoreOnly: true})
		}
		if err != nil {
			made.close()
			return nil, err
		}
		return made, nil
	}
	if policy.Adapter != nil {
		learner, err := env.NewLearner(policy.Ring, runtime.LearnerOptions{Stash: models.StashInput, Base: true})
		if err != nil {
			return nil, err
		}
		return &reference{learner: learner}, nil
	}
	if err := env.Download(policy.Weights); err != nil {
		return nil, err
	}
	defer env.Forget(policy.Weights)
	made := &reference{}
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if made.weights, err = models.NewWeights(policy.Weights.Layout); err != nil {
		return nil, err
	}
	copy(made.weights.Data, policy.Weights.Data)
	if made.ring, err = runtime.NewRing(policy.Ring.Arch, made.weights); err != nil {
		return nil, err
	}
	if made.learner, err = env.NewLearner(made.ring, runtime.LearnerOptions{Stash: models.StashInput, ScoreOnly: true}); err != nil {
		return nil, err
	}
	return made, nil
}

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
