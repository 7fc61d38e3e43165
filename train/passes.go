package train

import (
	"onering/policy"
	"onering/runtime"
	"onering/train/learn"
)

// PassesOf returns how a step on the policy is cut into passes, and what they keep, for
// micro-batches of micro tokens and sequences of up to longest. alone is that of
// learn.PassesFor.
func PassesOf(p *policy.Policy, env *runtime.Env, micro, longest int, alone bool) learn.Passes {
	passes := learn.PassesFor(p.Geometry(), len(p.Weights.Data), micro, longest, alone && env.Device() == "cpu")
	if p.Adapter != nil { // which is trained to take little memory
		passes.StashBytes = 0
	}
	return passes
}
