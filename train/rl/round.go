package rl

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"onering/data"
	"onering/objectives"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
	"onering/train/streams"
)

// A round has the responses sampled for some problems, on their way through the optimizer steps.
type round struct {
	problems     []data.Problem
	rollouts     []rollout               // by problem, then by sample
	greedy       []rollout               // by problem, not trained on; nil if the objective needs none
	trajectories []objectives.Trajectory // by rollout
	sequences    []runtime.Sequence      // by rollout
	updates      []rundir.Update         // by rollout; empty before its first step
	stats        sampler.Stats
	groups       int              // number of groups with rewards to compare
	equalGroups  int              // how many of them have equal rewards
	trained      []int            // indices of rollouts that are trained on, sorted
	batches      [][]int          // the rollouts of each optimizer step
	steps        []metrics.Record // records of finished optimizer steps
	rescored     bool             // old log-probs are the learner's, not the sampler's
	gap          metrics.Gap      // measured on the first optimizer step, or on all of a rescored round
}

// A rollout is one response to a problem, graded.
type rollout struct {
	Problem int // index into the round's problems
	Sample  int // sample number, from 0
	// EarlierSegment marks an earlier segment of an episode whose history was rewritten; the
	// episode's own rollout is its last segment. Such rollouts come after all others, and share
	// the advantage of their episode.
	EarlierSegment bool
	graded
	Teachers [][]float64 // the log-probs of the teachers that streams have
}

// responses are the rollouts without earlier segments of episodes: one for each sample.
func (r *round) responses() []rollout {
	if i := slices.IndexFunc(r.rollouts, func(x rollout) bool { return x.EarlierSegment }); i >= 0 {
		return r.rollouts[:i]
	}
	return r.rollouts
}

// A graded has the fields of a rollout that come from the rank which sampled it.
type graded struct {
	// PromptText is the rendered prompt, Prompt its tokens.
	PromptText       string
	Prompt           []int32
	Response         []int32            // the tokens that the policy sampled
	LogProb, Entropy []float64          // per response token, as the sampler saw it
	Kept             [][]int32          // per response token, the ids that the filters kept; see sampler.Response
	Observed         []sampler.Observed // tokens in it that the policy did not sample
	TurnRewards      []float64          // the environment's reward for each turn, NaN if there is none
	Failed           bool               // why the environment could not continue
	Text             string
	Earlier          []sampler.Segment // earlier segments of the episode, until the round has them as rollouts
	Score            reward.Score
	Truncated        bool // it reached the token limit
}

// sequence returns the rollout as the learner takes it.
func (r *rollout) sequence() runtime.Sequence {
	s := sequenceOf(r.Prompt, r.Response, r.Observed)
	s.Kept = r.Kept
	return s
}

// sequenceOf returns the tokens of a prompt and a response with what was observed in it, of
// which those in response, the policy's, are scored.
func sequenceOf(prompt, response []int32, observed []sampler.Observed) runtime.Sequence {
	all, sampledAt := sampler.Response{IDs: response, Observed: observed}.Tokens()
	s := runtime.Sequence{Tokens: slices.Concat(prompt, all)}
	for _, at := range sampledAt {
		at += len(prompt)
		if n := len(s.Scored); n > 0 && s.Scored[n-1].To == at {
			s.Scored[n-1].To++
		} else {
			s.Scored = append(s.Scored, runtime.Span{From: at, To: at + 1})
		}
	}
	return s
}

// streamed returns rollouts as streams read them.
func (r *round) streamed(rollouts []int) (list []streams.Rollout) {
	for _, j := range rollouts {
		x := &r.rollouts[j]
		of := sampler.Response{IDs: x.Response, Observed: x.Observed, Kept: x.Kept}
		list = append(list, streams.Rollout{Response: of, Right: x.Score.Right(), Teachers: x.Teachers})
	}
	return list
}

// newRound returns the round of the sampled rollouts: k to each problem, problem by problem, and
// behind all of them a greedy one to each problem if the objective compares with it. Earlier
// segments of episodes become rollouts of their own.
func newRound(problems []data.Problem, sampled []rollout, k int) *round {
	responses := len(problems) * k
	r := &round{problems: problems, rollouts: sampled[:responses:responses], greedy: sampled[responses:]} // capped: segments are appended
	r.addEarlierSegments()
	n := len(r.rollouts)
	r.trajectories = make([]objectives.Trajectory, n)
	r.sequences = make([]runtime.Sequence, n)
	r.updates = make([]rundir.Update, n)
	for i := range r.rollouts {
		r.trajectories[i] = r.rollouts[i].trajectory()
		r.sequences[i] = r.rollouts[i].sequence()
	}
	return r
}

// compareGroups shapes the rewards, computes the advantages of the groups of k rollouts and drops the groups that the
// objective does not keep. Rollouts without a grade are left out of their group, and with them a single one that has a
// grade where the objective compares it with others. If rollouts are compared with a greedy one, that one must be
// graded. The round is scored: a reward may have a penalty for leaving the reference.
func (r *round) compareGroups(k int, o objectives.Objective) {
	var indices [][]int
	var groups [][]objectives.Trajectory
	for g := range r.problems {
		rollouts, group := r.gradedAmong(g*k, (g+1)*k)
		if r.comparable(g, group, objectives.NeedsOf(o).Group) { // which gives each of the group the greedy one, if there is one
			indices, groups = append(indices, rollouts), append(groups, group)
		}
	}
	r.groups = len(groups)
	objectives.SetAdvantages(o, groups...) // in copies of the trajectories, which then replace those of the round
	for g, group := range groups {
		for i, j := range indices[g] {
			r.trajectories[j] = group[i]
			r.trajectories[j].Greedy = nil // a resumed round does not have it
		}
		if group[0].Degenerate && (len(group) > 1 || len(r.greedy) > 0) { // a single reward has no other to equal
			r.equalGroups++
		}
		if objectives.Keep(o, group) {
			r.trained = append(r.trained, indices[g]...)
		}
	}
	r.shareAdvantages(k) // with the earlier segments of episodes
}

// trajectory returns the rollout as an objective reads it.
func (r *rollout) trajectory() objectives.Trajectory {
	return objectives.Trajectory{
		Reward: r.Score.Value, LogProb: r.LogProb, OldLogProb: r.LogProb, SampleLogProb: r.LogProb, Entropy: r.Entropy,
		IDs: r.Response, Components: components(r.Score), Truncated: r.Truncated, Group: r.Problem, Turns: r.turns(),
	}
}

// setRoles gives each trajectory the role that a column of its problem names, unless there is none.
func (r *round) setRoles(column string) {
	for i := 0; i < len(r.trajectories) && column != ""; i++ {
		r.trajectories[i].Role, _ = r.problems[r.rollouts[i].Problem].Fields.Shown(column)
	}
}

// comparable says whether problem g's graded rollouts teach something: if they need to be
// compared, it takes several, or the greedy rollout, which comparable adds to them.
func (r *round) comparable(g int, group []objectives.Trajectory, needsGroup bool) bool {
	if len(r.greedy) == 0 {
		return len(group) >= 2 || len(group) == 1 && !needsGroup
	}
	greedy := r.greedy[g].trajectory()
	for i := range group {
		group[i].Greedy = &greedy
	}
	return len(group) >= 1 && !r.greedy[g].Score.Skip
}

// components returns the parts of a combined reward as an objective reads them.
func components(s reward.Score) map[string]objectives.Component {
	if s.Weights == nil {
		return nil
	}
	parts := map[string]objectives.Component{}
	for name, weight := range s.Weights {
		parts[name] = objectives.Component{Value: s.Components[name], Weight: weight}
	}
	return parts
}

// gradedAmong returns the indices of the graded rollouts from first to end-1, and copies of their trajectories.
func (r *round) gradedAmong(first, end int) (rollouts []int, group []objectives.Trajectory) {
	for i := first; i < end; i++ {
		if !r.rollouts[i].Score.Skip {
			rollouts, group = append(rollouts, i), append(group, r.trajectories[i])
		}
	}
	return rollouts, group
}

// checkGraded refuses a round in which no group has enough grades to learn from. The error
// names one response that the reward skipped, and why.
func (r *round) checkGraded(o objectives.Objective) error {
	if r.groups > 0 {
		return nil
	}
	all, needed := slices.Concat(r.rollouts, r.greedy), "fewer than two responses to each problem"
	switch {
	case len(r.greedy) > 0:
		needed = "not both the greedy response and another one to any problem"
	case !objectives.NeedsOf(o).Group:
		needed = "no response"
	}
	x := all[slices.IndexFunc(all, func(x rollout) bool { return x.Score.Skip })] // one was skipped, else there would be a group
	reason := x.Score.Reason
	if reason != "" {
		reason = ": " + reason
	}
	return fmt.Errorf("the reward graded %s, so there is nothing to learn from: problem %q, response %d was skipped%s",
		needed, r.problems[x.Problem].ID, x.Sample, reason)
}

// compare adds to the gap the differences between the learner's and the sampler's log-probs of rollout i.
func (r *round) compare(i int, logp []float64) {
	for t, x := range logp {
		r.gap.Add(r.rollouts[i].LogProb[t], x)
	}
}

// note records an optimizer step's weights and changes of log-probs of the rollouts of a batch,
// except those that the step left out, which have no log-probs in its report. It does not overwrite the slices of earlier steps, since a checkpoint may be
// written from them in the background.
func (r *round) note(batch []int, b objectives.Batch, report learn.Report) {
	w := report.Loss.LogProb
	for i, j := range batch {
		if report.LogProb[i] == nil { // left out
			continue
		}
		x := &b.Trajectories[i]
		u := rundir.Update{W: make([]float32, len(w[i])), Delta: make([]float32, len(w[i]))}
		for t, v := range w[i] {
			u.W[t] = float32(v)
			u.Delta[t] = float32(x.LogProb[t] - x.OldLogProb[t])
		}
		r.updates[j] = u
	}
}

// metrics returns the figures of the finished round. findsAnswers says whether the reward
// looks for answers in responses.
func (r *round) metrics(findsAnswers bool) metrics.Record {
	var rewards, lengths, entropies []float64
	truncated := 0.0
	responses := r.responses()
	for _, x := range responses {
		lengths = append(lengths, float64(len(x.Response)))
		entropies = append(entropies, x.Entropy...)
		if x.Truncated {
			truncated++
		}
		if !x.Score.Skip {
			rewards = append(rewards, x.Score.Value)
		}
	}
	n := float64(len(responses))
	mean, deviation := metrics.Moments(rewards)
	length, _ := metrics.Moments(lengths)
	entropy, _ := metrics.Moments(entropies)
	record := metrics.Record{}.With("reward", mean).With("reward_std", deviation).
		With("frac_reward_zero_std", float64(r.equalGroups)/float64(r.groups)).
		With("groups_kept", float64(len(r.trained))/n).
		With("entropy", entropy).
		With("response_length/mean", length).With("response_length/max", slices.Max(lengths)).
		With("truncated_share", truncated/n)
	record = append(record, r.gradeMetrics(findsAnswers)...).
		With("tokens", r.stats.Tokens).With("prompt_tokens", r.stats.PrefillTokens).With("slot_occupancy", r.stats.Occupancy())
	return append(append(record, r.rewardMetrics()...), r.gap.Record()...).AppendSteps(r.steps)
}

// gradeMetrics returns figures of the grades: the share of responses that each status of the verifier
// has, how many met an error or a limit of it, the share of right ones among those that were judged,
// with findsAnswers the share of those without an answer among those whose reward the environment has
// not told, and how many the reward skipped. Skipped responses count in no other figure.
func (r *round) gradeMetrics(findsAnswers bool) (record metrics.Record) {
	counts := map[reward.Status]float64{}
	var unanswered, skipped, told, judged, right float64
	responses := r.responses()
	for i := range responses {
		s := responses[i].Score
		if s.Skip {
			skipped++
			continue
		}
		counts[s.Status]++
		if s.Judged() {
			judged++
			if s.Right() {
				right++
			}
		}
		if s.Reason == reward.ByEnvironment {
			told++
		} else if s.Answer == "" {
			unanswered++
		}
	}
	if judged > 0 {
		record = record.With("right_share", right/judged)
	}
	if n := float64(len(responses)) - skipped; n > 0 {
		if findsAnswers && n > told {
			record = record.With("no_answer_share", unanswered/(n-told))
		}
		for _, s := range [...]reward.Status{reward.OK, reward.Limit, reward.Error} {
			record = record.With("verifier/status/"+s.String(), counts[s]/n)
		}
	}
	return record.With("verifier/errors", counts[reward.Error]).With("verifier/limits", counts[reward.Limit]).With("reward/skipped", skipped)
}

// rewardMetrics returns the means of the rewards' components and of the figures that rewards have logged, each
// over the responses that have it, and the mean reward of the greedy responses.
func (r *round) rewardMetrics() (record metrics.Record) {
	values := map[string][]float64{}
	for _, x := range r.greedy {
		if !x.Score.Skip {
			values["reward_greedy"] = append(values["reward_greedy"], x.Score.Value)
		}
	}
	for _, response := range r.responses() {
		for name, x := range response.Score.Components {
			values["reward/"+name+"/mean"] = append(values["reward/"+name+"/mean"], x)
		}
		for name, x := range response.Score.Log {
			values["reward_log/"+name+"/mean"] = append(values["reward_log/"+name+"/mean"], x)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		mean, _ := metrics.Moments(values[name])
		record = record.With(name, mean)
	}
	return record
}

// lines yields the lines of the round's file in rollouts/. decode gives the text of tokens. Only the first line of a
// problem has its columns and its greedy response.
func (r *round) lines(decode func([]int32) string) iter.Seq[rundir.RolloutLine] {
	return func(yield func(rundir.RolloutLine) bool) {
		for i := range r.rollouts {
			x, q := &r.rollouts[i], r.problems[r.rollouts[i].Problem]
			line := rundir.RolloutLine{
				Problem: q.ID, Source: q.Source, Sample: x.Sample, Prompt: q.Text, Response: x.Text, Answers: q.Answers,
				Answer: x.Score.Answer, Reason: x.Score.Reason, Status: x.Score.Status.String(), Skipped: x.Score.Skip,
				Failed: x.Failed, Rewards: x.Score.Components, Log: x.Score.Log,
				Advantage: r.trajectories[i].Advantage, Truncated: x.Truncated, IDs: x.Response,
				PromptText: x.PromptText, PromptIDs: x.Prompt, Part: x.EarlierSegment,
				LogP: x.LogProb, W: r.updates[i].W, Delta: r.updates[i].Delta,
			}
			for _, set := range x.Kept { // a checkpoint does not tell nil from empty
				line.Kept = append(line.Kept, append([]int32{}, set...))
			}
			if x.EarlierSegment { // it has no Text
				all, _ := sampler.Response{IDs: x.Response, Observed: x.Observed}.Tokens()
				line.Response = decode(all)
			}
			// A response of one turn has turns only where the environment has given a reward for it.
			if len(x.Observed) > 0 || len(x.Response) > 0 && slices.ContainsFunc(x.TurnRewards, func(e float64) bool { return !math.IsNaN(e) }) {
				x.addTurns(&line, decode)
			}
			if x.Sample == 0 {
				line.Greedy = r.greedyLine(x.Problem)
				if q.Fields != nil {
					line.Columns, _ = q.Fields.MarshalJSON() // the line can always be encoded
				}
			}
			if !x.Score.Skip {
				line.Reward = &r.trajectories[i].Reward
			}
			if x.Score.Judged() {
				right := x.Score.Right()
				line.Right = &right
			}
			if !yield(line) {
				return
			}
		}
	}
}

// greedyLine returns the part of a line for the greedy response to a problem, if there is one.
func (r *round) greedyLine(problem int) *rundir.GreedyLine {
	if len(r.greedy) == 0 {
		return nil
	}
	x := &r.greedy[problem]
	line := &rundir.GreedyLine{Response: x.Text, Answer: x.Score.Answer, Skipped: x.Score.Skip, Truncated: x.Truncated, IDs: x.Response, LogP: x.LogProb}
	if !x.Score.Skip {
		line.Reward = &x.Score.Value
	}
	return line
}

// A lineMetric is a metric in the terminal's line of a round.
type lineMetric struct {
	name, label, format string
	least               float64 // below which it is not worth a place
}

// reasons are the shares that may explain a reward.
var reasons = []lineMetric{
	{"truncated_share", "truncated", "%.2f", 0.005}, {"no_answer_share", "no answer", "%.2f", 0.005},
	{"environment/failed_share", "failed", "%.2f", 0.005}, {"frac_reward_zero_std", "equal", "%.2f", 0.8},
}

// roundLine returns a round of so many rounds in a line that fits a terminal of 80 columns: as
// many of the watched metrics as fit, in order of importance; behind the reward comes what
// explains it, the largest share before the others. left is the time left, as text, or "". It
// omits metrics that the record lacks, which are NaN, and those below their least.
func roundLine(r metrics.Record, rounds int, left string) string {
	line, end := fmt.Sprintf("round %d/%d", int(r.Float("round")), rounds), fmt.Sprintf("  %.2f s", r.Seconds())
	if left != "" {
		end += ", " + left
	}
	byShare := slices.SortedStableFunc(slices.Values(reasons), func(a, b lineMetric) int { return cmp.Compare(r.Float(b.name), r.Float(a.name)) })
	for _, m := range slices.Concat([]lineMetric{{"reward", "reward", "%.3f", math.Inf(-1)}}, byShare, []lineMetric{
		{"response_length/mean", "length", "%.0f", 0},
		{"entropy", "entropy", "%.3f", 0},
		{"logp_gap_max", "logp gap", "%.1e", 1e-3},
		{"p/mean", "p", "%.3f", math.Inf(-1)},
		{"grad_norm", "grad norm", "%.3g", 0},
		{"kl", "kl", "%.1e", 0},
		{"clip_fraction", "clip", "%.4f", 0},
		{"loss", "loss", "%+.1e", math.Inf(-1)},
	}) {
		if x := r.Float(m.name); x >= m.least { // not if it is NaN
			if part := fmt.Sprintf("  %s "+m.format, m.label, x); len(line)+len(part)+len(end) <= 80 {
				line += part
			}
		}
	}
	return line + end
}
