package rl

import (
	"errors"
	"fmt"

	"onering/eval"
	"onering/sampler"
	"onering/train/ranks"
)

// Each of several ranks samples and grades the responses to its share of the problems,
// and receives the other ranks' responses: then all have the same round, and compute the
// same advantages and batches. The Stepper distributes each batch among them again.

// mine says whether a problem, by its number in the round, is this rank's to sample. Neighbours, which
// may be equally hard, go to different ranks.
func (r *roller) mine(problem int) bool {
	return problem%r.ranks.Size() == r.ranks.Rank()%r.ranks.Size()
}

// count is how many of n problems are this rank's.
func (r *roller) count(n int) int {
	size := r.ranks.Size()
	return (n + size - 1 - r.ranks.Rank()%size) / size
}

// sampled holds the rollouts that a rank has sampled for a round.
type sampled struct {
	Rollouts []graded // rollouts in order
	Stats    sampler.Stats
}

// gather completes a round of which each rank has sampled its share, or failed to do so: it fills in the
// rollouts of other ranks, and adds up the statistics of all. An error of one rank is returned on all of them.
func (r *roller) gather(rollouts []rollout, stats *sampler.Stats, failed error) error {
	if r.ranks.Size() == 1 {
		return failed
	}
	own := sampled{Stats: *stats}
	for _, x := range rollouts {
		if r.mine(x.Problem) {
			own.Rollouts = append(own.Rollouts, x.graded)
		}
	}
	all, err := ranks.GatherAll(r.ranks, own, failed)
	if err != nil {
		return err
	}
	for i := range rollouts {
		x, from := &rollouts[i], rollouts[i].Problem%len(all) // the rank that sampled it, as mine says
		if len(all[from].Rollouts) == 0 {
			return fmt.Errorf("train: rank %d has sampled too few responses", from)
		}
		x.graded, all[from].Rollouts = all[from].Rollouts[0], all[from].Rollouts[1:]
	}
	*stats = sampler.Stats{}
	for _, x := range all {
		stats.Add(x.Stats)
	}
	return nil
}

// evaluated holds the responses that a rank has sampled for an evaluation.
type evaluated struct {
	Responses []eval.Response
	Ungraded  *eval.UngradedError
}

// gatherResponses adds to the responses of an evaluation those that other ranks have sampled; added are this rank's own,
// which are there already, and err is what its evaluation ended with. An UngradedError is returned on all ranks too,
// with the responses of all counted, but only after all responses are added.
func (r *roller) gatherResponses(err error, added []eval.Response, to *eval.Responses) error {
	if r.ranks.Size() == 1 {
		return err
	}
	own := evaluated{Responses: added}
	if errors.As(err, &own.Ungraded) { // it is sent beside the responses
		err = nil
	}
	all, err := ranks.GatherAll(r.ranks, own, errors.Join(err, r.grades.exchange()))
	if err != nil {
		return err
	}
	var ungraded *eval.UngradedError
	for rank, x := range all {
		if x.Ungraded != nil && ungraded == nil {
			ungraded = x.Ungraded
		} else if x.Ungraded != nil {
			ungraded.Count += x.Ungraded.Count
		}
		if rank == r.ranks.Rank() {
			continue
		}
		for _, response := range x.Responses {
			if err := to.Add(response); err != nil {
				return err
			}
		}
	}
	if ungraded != nil { // a nil pointer would not be a nil error
		return ungraded
	}
	return nil
}
