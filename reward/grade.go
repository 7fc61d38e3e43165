package reward

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"onering/data"
	"onering/environment"
	"onering/sampler"
)

// A Grader has responses sampled, and scores them while others are sampled. Training and
// evaluation both use it, so a response is worth the same in both.
type Grader struct {
	Reward Reward
	// Name, if not empty, is the component that has the value of the reward. A Combined
	// names its own components.
	Name string
	// Decode returns the text of response tokens, without special tokens.
	Decode func(ids []int32) string
	// Together scores all responses to a prompt at once, when the last of them
	// has ended. Otherwise each is scored alone as it ends.
	Together bool
	// GradeTruncated hides from the reward that a limit cut a response off.
	GradeTruncated bool
	// Invariant lets no response depend on the number of slots; see sampler.Invariant.
	Invariant bool
	// Journal, if not nil, remembers the scores, and the environment's answers.
	Journal Journal
	// Player, if not nil, plays an episode with each response. If the environment gives
	// rewards, they are the score, else Reward scores the last turn.
	Player *environment.Player
}

// A Task asks for responses to one problem; in an environment they are a group of episodes.
type Task struct {
	environment.Group
	Prompt  string // the text of Request.Prompt
	Request sampler.Request
	Number  int // its number for the journal, in a list of which these tasks may be a part
}

// Task returns the task of a problem: its prompt, or what the environment opens an episode of it with.
func (g Grader) Task(ctx context.Context, p *data.Prompter, s environment.Start) (t Task, err error) {
	if g.Player == nil {
		t.Problem = s.Problem
		t.Prompt, t.Request.Prompt, err = p.Prompt(s.Problem)
		return t, err
	}
	t.Group, t.Prompt, t.Request.Prompt, err = g.Player.Open(ctx, s)
	return t, err
}

// A Graded is a response with its text and its score.
type Graded struct {
	sampler.Response        // its Request is the index of the task
	Text             string // the text, including tokens that the policy did not write
	Score            Score
	// Segments are the segments of an episode that a program has played, nil for others;
	// Response is the last one.
	Segments []sampler.Segment
	// Outcome is the result of the episode.
	Outcome environment.Outcome
}

// Truncated says whether a limit of length cut the response off.
func (g Graded) Truncated() bool { return g.Finish == sampler.Length }

// Sample samples the responses to the tasks, and hands each to done when it is scored: in
// any order, but never two at the same time. Groups says how many groups are scored at
// once, while others are sampled; neither the order nor the overlap changes a score.
//
// A response that the reward skipped has no grade: done must leave it out, and must not
// use its value of 0.
//
// An error of the reward or of done ends the sampling. When ctx ends, the reward still
// scores the responses that have ended before.
func (g Grader) Sample(ctx context.Context, lanes sampler.Lanes, o sampler.Options, tasks []Task, done func(Graded) error) (sampler.Stats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // protects failed and serializes done
	var failed error
	total := 0
	for _, t := range tasks {
		total += t.Request.Samples
	}
	// The queue has room for all responses, so the sampler never waits.
	queue := make(chan []Graded, total)
	var workers sync.WaitGroup
	for range Groups(g.Reward) {
		workers.Go(func() {
			for responses := range queue {
				graded, err := g.grade(ctx, tasks[responses[0].Request], responses)
				mu.Lock()
				for i := 0; i < len(graded) && err == nil && failed == nil; i++ {
					err = done(graded[i])
				}
				if err != nil && failed == nil {
					failed = err
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	groups := make([][]Graded, len(tasks))
	stats, err := g.sample(ctx, lanes, o, tasks, func(x Graded) {
		if !g.Together {
			queue <- []Graded{x}
			return
		}
		group := append(groups[x.Request], x)
		groups[x.Request] = group
		if len(group) == tasks[x.Request].Request.Samples {
			queue <- group
		}
	})
	close(queue)
	workers.Wait()
	if failed != nil {
		err = failed // then the sampler's error says that it was cancelled
	}
	return stats, err
}

// sample has the responses sampled, or the episodes played, and reports each that has ended. Without
// an environment the Player and the Round are nil: they have no Driver, and outcomes are empty.
func (g Grader) sample(ctx context.Context, lanes sampler.Lanes, o sampler.Options, tasks []Task, ended func(Graded)) (sampler.Stats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if g.Invariant {
		invariant, done := lanes.Invariant()
		defer done()
		lanes = invariant
	}
	var requests []sampler.Request
	var groups []environment.Group
	for _, t := range tasks {
		requests, groups = append(requests, t.Request), append(groups, t.Group)
	}
	var episodes *environment.Round
	if g.Player != nil {
		episodes = g.Player.Play(ctx, &o, groups, g.Journal) // it sets what the sampler calls, in o
	}
	if driver := g.Player.Driver(); driver != nil {
		drive := environment.Drive{Player: g.Player, Decoder: lanes.Decoders[0], Options: o, Requests: requests, Groups: groups}
		return driver.Drive(ctx, drive, func(d environment.Driven) {
			x := Graded{Response: sampler.Response{Finish: sampler.Stop}, Outcome: d.Outcome, Segments: d.Segments}
			if n := len(d.Segments); n > 0 {
				x.Response = d.Segments[n-1].Response
			}
			x.Request, x.Sample = d.Request, d.Sample
			ended(x)
		})
	}
	_, stats, err := lanes.Sample(ctx, o, requests, func(r sampler.Response) { ended(Graded{Response: r, Outcome: episodes.End(r)}) })
	if err != nil {
		cancel() // so that Close does not wait for the environment
	}
	episodes.Close()
	return stats, err
}

// ByEnvironment is the reason of a score that the environment or a program told: no answer was
// looked for.
const ByEnvironment = "the environment's"

// Earned is the score of an episode whose turns got rewards from the environment; sum is their sum.
func Earned(sum float64) *Score {
	return &Score{Value: sum, Reason: ByEnvironment, Components: map[string]float64{"environment": sum}}
}

// grade scores responses to one task, in the order of their numbers. The reward scores
// those that the environment has not scored.
func (g Grader) grade(ctx context.Context, t Task, out []Graded) ([]Graded, error) {
	slices.SortFunc(out, func(a, b Graded) int { return cmp.Compare(a.Sample, b.Sample) })
	var group []Sample
	known := make([]*Score, len(out))
	for i := range out {
		x := &out[i]
		tokens, _ := x.Tokens()
		x.Text = g.Decode(tokens)
		if x.Outcome.Failed != nil {
			known[i] = &Score{Skip: true, Reason: x.Outcome.Failed.Error()}
		} else if sum, given := x.Outcome.Reward(); given {
			known[i] = Earned(sum)
		}
		last := x.LastTurn()
		logp := x.LogProb
		if logp != nil {
			logp = logp[len(logp)-len(last):] // those of IDs, the last turn
		}
		group = append(group, Sample{
			Problem: t.Problem, Prompt: t.Prompt, PromptIDs: t.Request.Prompt,
			Response: g.Decode(last), IDs: last, Earlier: g.earlier(*x), LogProb: logp, Truncated: x.Truncated() && !g.GradeTruncated,
		})
	}
	scores, err := g.ScoreRest(ctx, t.Number, out[0].Sample, group, known)
	if err != nil {
		return nil, fmt.Errorf("reward: problem %q: %w", t.Problem.ID, err)
	}
	for i := range scores {
		out[i].Score = scores[i]
	}
	return out, nil
}

// earlier returns what the policy wrote before the last turn of an episode.
func (g Grader) earlier(x Graded) (all []Written) {
	turns := x.Turns()
	turns = turns[:len(turns)-1]
	for i := len(x.Segments) - 2; i >= 0; i-- {
		turns = slices.Concat(x.Segments[i].Response.Turns(), turns)
	}
	for _, ids := range turns {
		all = append(all, Written{g.Decode(ids), ids})
	}
	return all
}

// ScoreRest returns the scores of a group, of which some are known, the others nil: the journal or the
// reward gives these. The journal finds them by the number of the task and that of the first sample.
func (g Grader) ScoreRest(ctx context.Context, task, sample int, group []Sample, known []*Score) ([]Score, error) {
	scores := make([]Score, len(group))
	var asked []Sample
	var places []int
	for i, s := range known {
		if s != nil {
			scores[i] = *s
			continue
		}
		asked, places = append(asked, group[i]), append(places, i)
	}
	if len(asked) == 0 {
		return scores, nil
	}
	var rest []Score
	if g.Journal != nil {
		rest = g.Journal.Find(task, sample, asked)
	}
	var err error
	if rest == nil { // nothing is stored
		if rest, err = g.Score(ctx, asked); err == nil && g.Journal != nil {
			err = g.Journal.Keep(task, sample, asked, rest)
		}
	}
	for i, s := range rest {
		scores[places[i]] = s
	}
	return scores, err
}

// Score scores responses to one prompt, and refuses scores that break the rules of Reward. The value of each
// becomes its component Name, unless it has one of that name.
func (g Grader) Score(ctx context.Context, group []Sample) ([]Score, error) {
	scores, err := g.Reward.Score(ctx, group)
	if err != nil {
		return nil, err
	}
	_, combined := g.Reward.(*Combined) // a Combined has checked its parts
	if err := checkScores(scores, len(group), combined); err != nil {
		return nil, err
	}
	for i, s := range scores {
		if _, taken := s.Components[g.Name]; g.Name == "" || taken || s.Skip {
			continue
		}
		scores[i].Components = map[string]float64{g.Name: s.Value}
		maps.Copy(scores[i].Components, s.Components)
	}
	return scores, nil
}

// checkScores refuses scores of a group of n that break the rules of Reward. Scores of a
// Combined may have a value and a status.
func checkScores(scores []Score, n int, combined bool) error {
	if len(scores) != n {
		return fmt.Errorf("%d scores for %d responses", len(scores), n)
	}
	for i, s := range scores {
		if combined {
			s.Status = OK
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("response %d: %w", i, err)
		}
	}
	return nil
}

// Check refuses a score that breaks the rules of Reward.
func (s Score) Check() error {
	if err := environment.CheckReward(s.Value); err != nil {
		return err
	}
	for _, figures := range []map[string]float64{s.Components, s.Log} {
		for _, name := range slices.Sorted(maps.Keys(figures)) {
			if !finite(figures[name]) {
				return fmt.Errorf("%q is %v, which is not a finite number", name, figures[name])
			}
		}
	}
	switch {
	case s.Status != OK && s.Status != Limit && s.Status != Error:
		return fmt.Errorf("the status %q is unknown", s.Status)
	case (s.Skip || s.Status != OK) && s.Value != 0:
		return fmt.Errorf("the sample was not graded, but its value is %v and not 0", s.Value)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// A Journal remembers the scores of a reward that Varies. A group that is graded again after
// the run was killed gets the same scores as before. Its methods may be called concurrently.
type Journal interface {
	environment.Journal
	// Find returns the stored scores of the responses to a task from number sample on,
	// nil if there are none.
	Find(task, sample int, group []Sample) []Score
	// Keep stores scores. An error ends the sampling.
	Keep(task, sample int, group []Sample, scores []Score) error
}
