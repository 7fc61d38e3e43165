package environmenttest_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"onering/environment"
	"onering/environment/environmenttest"
	"onering/internal/registry"
	"onering/tokenize"
)

// A plain environment is correct: it says how long a turn is, and ends at an empty one. The
// broken ones below differ from it in one thing each.
type plain struct {
	Bonus float64 `toml:"bonus"`

	step   func(p *plain, t environment.Turn, o *environment.Observation) error
	begin  func(ctx context.Context) error
	closed func() error
}

func (p *plain) Begin(ctx context.Context, _ environment.Start) (environment.Episode, error) {
	if p.begin != nil {
		if err := p.begin(ctx); err != nil {
			return nil, err
		}
	}
	return &episode{p, "go on"}, nil
}

func (p *plain) Repeats() bool { return true }

type episode struct {
	plain   *plain
	opening string
}

func (e *episode) Opening() (environment.Opening, error) {
	return environment.Opening{Messages: []tokenize.Message{{Role: "user", Content: e.opening}}}, nil
}

func (e *episode) Step(_ context.Context, t environment.Turn) (environment.Observation, error) {
	reward := float64(len(t.Text)) + e.plain.Bonus
	o := environment.Observation{Messages: []tokenize.Message{{Role: "user", Content: "more"}}, Reward: &reward, Done: t.Text == ""}
	if e.plain.step != nil {
		return o, e.plain.step(e.plain, t, &o)
	}
	return o, nil
}

func (e *episode) Close() error {
	if e.plain.closed != nil {
		return e.plain.closed()
	}
	return nil
}

func TestPlain(t *testing.T) {
	environmenttest.RunNew(t, func() environment.Environment { return new(plain) })
}

// random opens each episode in another way.
type random struct {
	plain
	openings atomic.Int64
}

func (r *random) Begin(context.Context, environment.Start) (environment.Episode, error) {
	return &episode{&r.plain, strings.Repeat("x", int(r.openings.Add(1)))}, nil
}

// unnamed has a setting without a name.
type unnamed struct {
	plain
	Cards int
}

// TestBroken: each rule finds the environment that breaks it.
func TestBroken(t *testing.T) {
	var one = new(plain)
	var calls atomic.Int64
	with := func(step func(p *plain, t environment.Turn, o *environment.Observation) error) func() environment.Environment {
		return func() environment.Environment { return &plain{step: step} }
	}
	for _, tt := range []struct {
		rule string
		new  func() environment.Environment
		want string
	}{
		{"defaults", func() environment.Environment { return one }, "the same value twice"},
		{"defaults", func() environment.Environment { return new(unnamed) }, "needs a tag"},
		{"any-text", with(func(_ *plain, t environment.Turn, _ *environment.Observation) error {
			if strings.Contains(t.Text, "\xff") {
				return errors.New("bad text")
			}
			return nil
		}), "bad text"},
		{"any-text", with(func(_ *plain, t environment.Turn, _ *environment.Observation) error {
			if len(t.Calls) > 0 && t.Calls[0].Name == "no such tool" {
				return errors.New("unknown tool")
			}
			return nil
		}), "unknown tool"},
		{"any-text", with(func(_ *plain, t environment.Turn, o *environment.Observation) error {
			o.Messages[0].Role = "robot"
			return nil
		}), `the role "robot"`},
		{"any-text", with(func(_ *plain, t environment.Turn, o *environment.Observation) error {
			o.Messages = nil
			return nil
		}), "nothing is read after it"},
		{"rewards", with(func(_ *plain, t environment.Turn, o *environment.Observation) error {
			*o.Reward = math.NaN()
			return nil
		}), "NaN"},
		{"context", func() environment.Environment {
			return &plain{begin: func(ctx context.Context) error {
				if ctx.Err() != nil {
					return errors.New("too late")
				}
				return nil
			}}
		}, "does not wrap"},
		{"arguments", with(func(_ *plain, t environment.Turn, _ *environment.Observation) error {
			if len(t.Calls) > 0 {
				t.Calls[0].Name = "mine"
			}
			return nil
		}), "was changed"},
		{"alike", func() environment.Environment { return new(random) }, "opens as"},
		{"alike", with(func(_ *plain, t environment.Turn, o *environment.Observation) error {
			*o.Reward = float64(calls.Add(1))
			return nil
		}), "answered with"},
		{"close", func() environment.Environment {
			return &plain{closed: func() error { return errors.New("still busy") }}
		}, "still busy"},
	} {
		err := environmenttest.Check(tt.new)
		var found []string
		for _, err := range joined(err) {
			var f *registry.Failure
			if !errors.As(err, &f) {
				t.Errorf("%v is not a Failure", err)
			} else if found = append(found, f.Rule); f.Rule == tt.rule && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
			}
		}
		if !slices.Contains(found, tt.rule) {
			t.Errorf("%s: only %q failed (%v)", tt.rule, found, err)
		}
	}
}

func joined(err error) []error {
	if err == nil {
		return nil
	}
	return err.(interface{ Unwrap() []error }).Unwrap()
}
