package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/reward"
	"onering/train/rl"
)

func newGrade() *cobra.Command {
	s := newChoice(asDefault, "reward", "model.template")
	c := newCommand("grade", nil, s.run(func(c *cobra.Command, args []string, r *resolved) error { return gradeFile(c, args, r.Config) }))
	s.register(c, "reward.name=reward")
	return c
}

// gradeFile grades the lines of the file that the arguments name.
func gradeFile(c *cobra.Command, args []string, config rl.Config) error {
	return withInput(c, args, func(in io.Reader, name string) error {
		ctx, stopped, stop := cli.CatchSignals(c.Context())
		defer stop()
		err := grade(ctx, in, name, c.OutOrStdout(), config.Reward.Grader())
		if s := stopped(); s != nil && err != nil {
			err = cli.Interrupted{Signal: s, Next: "the lines so far are graded"}
		}
		return errors.Join(err, reward.Close(config.Reward.Rule))
	})
}

// A gradedLine is a line of output.
type gradedLine struct {
	Problem string             `json:"problem"`
	Reward  *float64           `json:"reward"`
	Rewards map[string]float64 `json:"rewards"`
	Right   bool               `json:"right"`
	Answer  string             `json:"answer"`
	Reason  string             `json:"reason"`
	Status  string             `json:"status"`
	Skip    bool               `json:"skip"`
	Log     map[string]float64 `json:"log"`
}

// newGradedLine returns the line of output for one graded response.
func newGradedLine(problem string, s reward.Score) gradedLine {
	line := gradedLine{
		Problem: problem, Rewards: s.Components, Right: s.Judged() && s.Right(), Answer: s.Answer, Reason: s.Reason,
		Status: string(cmp.Or(s.Status, "ok")), Skip: s.Skip, Log: s.Log,
	}
	if !s.Skip {
		line.Reward = &s.Value
	}
	for _, figures := range []*map[string]float64{&line.Rewards, &line.Log} {
		if *figures == nil {
			*figures = map[string]float64{}
		}
	}
	return line
}

// A sampleGroup is lines to be graded together, or the error that ends the input.
type sampleGroup struct {
	line    int // the line of the first sample
	samples []reward.Sample
	known   []*reward.Score // by sample: the environment's result, nil if the reward grades it
	graded  chan error      // closed when the scores are there
	scores  []reward.Score
	err     error
}

// grade grades the lines of in and writes their scores in the same order. It grades as
// many groups at once as the reward takes.
func grade(ctx context.Context, in io.Reader, name string, out io.Writer, g reward.Grader) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan *sampleGroup, reward.Groups(g.Reward)-1)
	defer func() {
		cancel()
		for range queue { // the reader ends when it sees that ctx has ended
		}
	}()
	go func() {
		defer close(queue)
		readGroups(in, name, func(group *sampleGroup) bool {
			group.graded = make(chan error, 1)
			select {
			case queue <- group:
			case <-ctx.Done():
				return false
			}
			if group.err == nil {
				go func() {
					var err error
					group.scores, err = g.ScoreRest(ctx, 0, 0, group.samples, group.known)
					group.graded <- err
				}()
			}
			return true
		})
	}()
	lines, groups := 0, 0
	for group := range queue {
		if group.err != nil {
			return group.err
		}
		if err := <-group.graded; err != nil {
			return fmt.Errorf("%s:%d: reward: problem %q: %w", name, group.line, group.samples[0].Problem.ID, err)
		}
		for i, s := range group.scores {
			if err := cli.WriteLine(out, newGradedLine(group.samples[i].Problem.ID, s)); err != nil {
				return err
			}
		}
		lines, groups = lines+len(group.scores), groups+1
	}
	slog.Info("graded", "responses", lines, "groups", groups)
	return ctx.Err()
}

// readGroups hands the groups of in to yield until it returns false.
func readGroups(in io.Reader, name string, yield func(*sampleGroup) bool) {
	var group *sampleGroup
	key := ""
	err := cli.EachRow(in, name, func(_, number int, row rl.SampleLine) error {
		if !row.Stated {
			return missingField(name, number, "response")
		}
		s := row.Sample
		if group != nil && (row.Group == "" || row.Group != key) {
			if !yield(group) {
				group = nil
				return context.Canceled // nobody receives the error any more
			}
			group = nil
		}
		if group == nil {
			group, key = &sampleGroup{line: number}, row.Group
		}
		if len(group.samples) > 0 && row.Later {
			s.Problem.Fields = group.samples[0].Problem.Fields
		}
		group.samples, group.known = append(group.samples, s), append(group.known, row.Known)
		return nil
	})
	if (group == nil || yield(group)) && err != nil {
		yield(&sampleGroup{err: err})
	}
}
