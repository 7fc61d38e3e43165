package rl

import (
	"os"

	"onering/policy"
	"onering/runtime"
)

// OpenPolicy opens the policy that the run c trains: the model of c, and beside it
// a new adapter where c trains one. base is what the adapter's files call the model.
// shared, if not nil, is what policy.ShareBase has made of the model.
func OpenPolicy(env *runtime.Env, c Config, base string, shared *os.File) (*policy.Policy, error) {
	p, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType, Base: c.LoRA.BaseDType, Shared: shared, Name: base})
	if err != nil || !c.LoRA.On {
		return p, err
	}
	if err := p.NewAdapter(c.LoRA.Settings, base, uint64(c.Train.Seed)); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}
