// Package external has what rewards by other programs share: the JSON object for a group,
// the answer, and what happens if a group could not be graded. Packages command and http
// transport both.
package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"onering/internal/process"
	"onering/internal/remote"
	"onering/reward"
)

// Settings say how patient a reward is with the program that grades.
type Settings struct {
	Timeout float64 `toml:"timeout" range:"(0,86400]" help:"seconds that the grading of a group may take"`
	Retries int     `toml:"retries" range:"[0,100]" help:"how often a group is sent again after a failure; the pause before that doubles each time"`
	OnError string  `toml:"on_error" choice:"stop skip" note:"stop ends the run, skip leaves the group out of training; it never counts as a reward of 0" help:"what happens when a group could not be graded"`
}

// Default returns the settings of a patient run that stops at a group that it cannot grade.
func Default() Settings { return Settings{Timeout: 60, Retries: 3, OnError: "stop"} }

// Wait returns the timeout.
func (s Settings) Wait() time.Duration { return time.Duration(s.Timeout * float64(time.Second)) }

// A permanent error would occur again if the group were sent again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that another attempt would not solve.
func Permanent(err error) error { return permanent{err} }

// A delayed error says when to try again.
type delayed struct {
	error
	after time.Duration
}

func (d delayed) Unwrap() error { return d.error }

// After marks an error after which the program asked for a pause.
func After(err error, pause time.Duration) error { return delayed{err, pause} }

// The pauses between attempts, and the longest that a program may ask for.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	longestAsked = 5 * time.Minute
)

// Backoff returns the pause after so many failures in a row, at least 1: it doubles each
// time up to half a minute, less up to half of it at random, so that groups that failed
// together do not return together.
func Backoff(failures int) time.Duration {
	pause := longestPause
	if failures < 10 {
		pause = min(pause, firstPause<<(failures-1))
	}
	return pause - time.Duration(rand.Int64N(int64(pause/2)))
}

// Grade calls attempt to grade the group, and after a failure again with pauses between; after the last
// failure, or a permanent one, it stops the run or skips the group, as the settings say. try is the
// number of the attempt, from 0. name is the reward's name.
func (s Settings) Grade(ctx context.Context, name string, group []reward.Sample, attempt func(ctx context.Context,
	try int) ([]reward.Score, error)) ([]reward.Score, error) {
	if len(group) == 0 {
		return nil, ctx.Err()
	}
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		scores, err := attempt(ctx, try)
		if err == nil {
			return scores, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.As(err, new(permanent)) || try == s.Retries {
			return s.giveUp(name, group, fmt.Errorf("reward %q: %w%s", name, err, attempts(try+1)))
		}
		pause := Backoff(try + 1)
		if asked := (delayed{}); errors.As(err, &asked) {
			pause = max(pause, min(asked.after, longestAsked))
		}
		slog.Warn("a group could not be graded and is sent again", "reward", name, "problem", group[0].Problem.ID,
			"reason", process.Printable(err.Error()), "pause", pause.Round(time.Millisecond))
		if err := remote.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func attempts(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (after %d attempts)", n)
}

// giveUp ends the run with err, or leaves the group without a grade.
func (s Settings) giveUp(name string, group []reward.Sample, err error) ([]reward.Score, error) {
	if s.OnError != "skip" {
		return nil, err
	}
	slog.Warn("a group could not be graded and is left out", "reward", name, "problem", group[0].Problem.ID,
		"responses", len(group), "reason", process.Printable(err.Error()))
	scores := make([]reward.Score, len(group))
	for i := range scores {
		scores[i] = reward.Score{Skip: true, Status: reward.Error, Reason: err.Error()}
	}
	return scores, nil
}
