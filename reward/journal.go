package reward

import "context"

// A Journal remembers the scores of a Varying reward. A group that is graded a second
// time, since the run was killed after the first, gets the scores of the first time.
// Its methods may be called concurrently.
type Journal interface {
	// Find returns the scores of the responses to a task from number sample on, nil
	// if it does not know them.
	Find(task, sample int, group []Sample) []Score
	// Keep remembers scores. An error ends the sampling.
	Keep(task, sample int, group []Sample, scores []Score) error
}

// remembered scores a group as Grader.Score does, unless the journal knows it.
func (g Grader) remembered(ctx context.Context, task, sample int, group []Sample) ([]Score, error) {
	if g.Journal == nil {
		return g.Score(ctx, group)
	}
	if scores := g.Journal.Find(task, sample, group); scores != nil {
		return scores, nil
	}
	scores, err := g.Score(ctx, group)
	if err != nil {
		return nil, err
	}
	return scores, g.Journal.Keep(task, sample, group, scores)
}

// Renumbered is a Journal for some of the tasks of a whole: Numbers are those that they
// have there.
type Renumbered struct {
	Journal
	Numbers []int
}

// Find implements Journal.
func (r Renumbered) Find(task, sample int, group []Sample) []Score {
	return r.Journal.Find(r.Numbers[task], sample, group)
}

// Keep implements Journal.
func (r Renumbered) Keep(task, sample int, group []Sample, scores []Score) error {
	return r.Journal.Keep(r.Numbers[task], sample, group, scores)
}
