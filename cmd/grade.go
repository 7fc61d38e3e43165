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
	s := newSettings(withTrainDefaults, "reward", "model.template")
	c := newCommand("grade", nil, s.withResolved(func(c *cobra.Command, args []string, r *resolved) error { return gradeFile(c, args, r.Config) }))
	s.addRunFlags(c, "reward.name=reward")
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

// newGradedLine returns the line of output for one graded response to a problem. A skipped response has no reward.
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
	graded  chan error      // receives the result of grading when scores are there
	scores  []reward.Score
	err     error // the error that ends the input; then there are no samples
}

// grade grades the lines of in, which is called name in errors, and writes their scores in the same order. It grades
// as many groups at once as the reward takes: groups wait in a queue in the order of the input while they are graded.
func grade(ctx context.Context, in io.Reader, name string, out io.Writer, g reward.Grader) error {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan *sampleGroup, reward.Groups(g.Reward)-1) // one more is being waited for below
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
					group.scores, err = g.ScoreRest(ctx, 0, 0, group.samples, group.known) // 0, 0: places in a journal, which there is none of
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

// readGroups hands the groups of in to yield until it returns false, and at last the error that ends the input, if
// one does, as a group. Neighbouring lines with the same group, which is not empty, are one.
func readGroups(in io.Reader, name string, yield func(*sampleGroup) bool) {
	var group *sampleGroup
	key := ""
	err := cli.EachRow(in, name, func(_, number int, row rl.SampleLine) error {
		if !row.Stated {
			return missingField(name, number, "response")
		}
		s := row.Sample
		if group != nil && (row.Group == "" || row.Group != key) {
			more := yield(group)
			group = nil
			if !more {
				return context.Canceled // nobody receives the error any more
			}
		}
		if group == nil {
			group, key = &sampleGroup{line: number}, row.Group
		}
		if len(group.samples) > 0 && row.Later { // only the first line of a group has the problem's fields
			s.Problem.Fields = group.samples[0].Problem.Fields
		}
		group.samples, group.known = append(group.samples, s), append(group.known, row.Known) // Known is an environment's result, or nil
		return nil
	})
	if (group == nil || yield(group)) && err != nil {
		yield(&sampleGroup{err: err})
	}
}
