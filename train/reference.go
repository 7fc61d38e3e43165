package train

import (
	"onering/models"
	"onering/runtime"
)

// A reference is the policy as it was when training began.
type reference struct {
	weights *models.Weights
	ring    *runtime.Ring
	learner *runtime.Learner
}

// newReference copies the policy's weights. Of a policy with an adapter the weights
// stay as they are, and the reference is the ring without the adapter.
func newReference(env *runtime.Env, policy *Policy) (r *reference, err error) {
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
}
