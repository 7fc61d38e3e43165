package train

import (
	"onering/objectives"
	"onering/reward"
	"onering/sampler"
	"onering/train/rundir"
)

// state returns what a checkpoint holds of the round. Nothing in it changes later,
// so it may be written while training goes on.
func (r *round) state() *rundir.Round {
	s := &rundir.Round{
		Kept: r.kept, Groups: r.groups, Flat: r.flat, Gap: rundir.Gap(r.gap), Steps: r.steps[:len(r.steps):len(r.steps)],
		Stats: rundir.Sampling{
			Tokens: r.stats.Tokens, PrefillTokens: r.stats.PrefillTokens,
			Steps: r.stats.Steps, Slots: r.stats.Slots, SlotSteps: r.stats.SlotSteps,
		},
	}
	for i := range r.rollouts {
		x, y := &r.rollouts[i], &r.trajectories[i]
		s.Rollouts = append(s.Rollouts, rundir.Rollout{
			Problem: x.Problem, Sample: x.Sample, Prompt: x.Prompt, Response: x.Response, LogProb: x.LogProb, Entropy: x.Entropy,
			Text: x.Text, Truncated: x.Truncated, Reward: x.Score.Value, Components: x.Score.Components, Log: x.Score.Log,
			Verdict: rundir.Verdict{Answer: x.Score.Answer, Reason: x.Score.Reason, Status: string(x.Score.Status)},
		})
		learned := rundir.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			Truncated: y.Truncated, Degenerate: y.Degenerate,
		}
		if r.rescored {
			learned.OldLogProb = y.OldLogProb
		}
		s.Trajectories = append(s.Trajectories, learned)
		s.Updates = append(s.Updates, rundir.Update(r.updates[i]))
	}
	return s
}

// roundOf returns the round that state was called on, except its problems and
// batches.
func roundOf(s *rundir.Round, rescored bool) *round {
	r := &round{
		kept: s.Kept, groups: s.Groups, flat: s.Flat, gap: gap(s.Gap), rescored: rescored, steps: s.Steps,
		stats: sampler.Stats{
			Tokens: s.Stats.Tokens, PrefillTokens: s.Stats.PrefillTokens,
			Steps: s.Stats.Steps, Slots: s.Stats.Slots, SlotSteps: s.Stats.SlotSteps,
		},
	}
	for i, x := range s.Rollouts {
		if x.Verdict.Status == "ok" { // in checkpoints from before package reward
			x.Verdict.Status = string(reward.OK)
		}
		r.rollouts = append(r.rollouts, Rollout{
			Problem: x.Problem, Sample: x.Sample, Prompt: x.Prompt, Response: x.Response, LogProb: x.LogProb, Entropy: x.Entropy,
			Text: x.Text, Truncated: x.Truncated, Score: reward.Score{
				Value: x.Reward, Components: x.Components, Log: x.Log,
				Answer: x.Verdict.Answer, Reason: x.Verdict.Reason, Status: reward.Status(x.Verdict.Status),
			},
		})
		y := s.Trajectories[i]
		if y.OldLogProb == nil {
			y.OldLogProb = x.LogProb
		}
		r.trajectories = append(r.trajectories, objectives.Trajectory{
			Reward: y.Reward, Advantage: y.Advantage, TokenAdvantage: y.TokenAdvantage, RefLogProb: y.RefLogProb,
			LogProb: x.LogProb, OldLogProb: y.OldLogProb, Entropy: x.Entropy, Truncated: y.Truncated, Degenerate: y.Degenerate,
		})
		r.updates = append(r.updates, update(s.Updates[i]))
		r.sequences = append(r.sequences, r.rollouts[i].sequence())
	}
	return r
}
