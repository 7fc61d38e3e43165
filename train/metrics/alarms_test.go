package metrics

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

// Each alarm warns once, with its figure, when the figure goes wrong, and not again while
// the figure stays wrong.
func TestAlarms(t *testing.T) {
	var log bytes.Buffer
	a := NewAlarms(slog.New(slog.NewTextHandler(&log, nil)))
	round := 0
	reward := 0.5
	rounds := func(n int, entropy, length, cut, flat float64) {
		for range n {
			round++
			a.round(Record{
				{"round", round}, {"reward", reward}, {"entropy", entropy}, {"response_length/mean", length},
				{"truncated_share", cut}, {"frac_reward_zero_std", flat},
			}, flat)
		}
	}
	said := func(want ...string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if log.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(want) {
			t.Fatalf("%d warnings, want %d:\n%s", len(lines), len(want), &log)
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s lacks %q", lines[i], want[i])
			}
		}
		log.Reset()
	}
	rounds(10, 1, 100, 0.1, 0.5)
	said()
	rounds(2, 1, 100, 0.1, 1)
	said()
	rounds(1, 1, 100, 0.1, 1)
	said("rounds_in_a_row=3 reward=0.5")
	// A low entropy usually means success, but not if the responses to most problems are
	// equal and fewer are right: of 100 problems at least 80 - 50 = 30 are failed by
	// every response, and 20 are learned from.
	reward = 0.92
	rounds(4, 0.05, 100, 0.1, 0.53)
	reward = 0.5
	rounds(4, 0.05, 100, 0.1, 0.7)
	said()
	rounds(4, 0.05, 100, 0.1, 0.8)
	said("round=22 entropy=0.05 first_rounds=1 reward=0.5 frac_reward_zero_std=0.8")
	rounds(4, 0.02, 100, 0.1, 0.8)
	said("round=26 entropy=0.02 first_rounds=1")
	rounds(4, 0.2, 100, 0.1, 0.8)
	said()
	rounds(4, 1, 250, 0.1, 0)
	said("round=34 tokens=250 first_rounds=100")
	rounds(4, 1, 100, 0.5, 0)
	said("round=38 truncated_share=0.5 first_rounds=0.1")

	failing := func(share float64) {
		round++
		a.round(Record{{"round", round}, {"reward", 0.5}, {"entropy", 1.0}, {"response_length/mean", 100.0}, {"truncated_share", 0.1}, {"frac_reward_zero_std", 0.0},
			{"environment/failed", int(8 * share)}, {"environment/failed_share", share}, {"environment/reason", "the tool died"}}, 0)
	}
	failing(0.5)
	said()
	failing(0.75)
	failing(1)
	said(`round=43 failed=6 share=0.75 commonest_reason="the tool died"`)
	rounds(1, 1, 100, 0.1, 0)
	failing(0.75)
	said("round=46")

	for i := range 40 {
		a.step(Record{{"step", i}, {"loss", 0.01 * float64(i%5)}, {"grad_norm", 1.0}})
		// Steps whose groups all have equal rewards say nothing about other steps.
		a.step(Record{{"step", i}, {"loss", 1e-9 * float64(i%3)}, {"grad_norm", 1e-9}})
		a.step(Record{{"step", i}, {"loss", 1e-9 * float64(i%7)}, {"grad_norm", 1e-9}})
	}
	said()
	a.step(Record{{"step", 40}, {"loss", 3.0}, {"grad_norm", 50.0}})
	said("step=40 loss=3")

	// Most losses of small batches are equal, so a different loss is not a jump.
	a = NewAlarms(a.log)
	for i := range 80 {
		loss := -0.0625 + 1e-7*float64(i%3)
		if i%8 == 7 {
			loss = 0.0625
		}
		a.step(Record{{"step", i}, {"loss", loss}, {"grad_norm", 1.0}})
	}
	said()
	a.step(Record{{"step", 80}, {"loss", 3.0}, {"grad_norm", 50.0}})
	said("step=80 loss=3")
}

// TestFirstRoundAlarm: a first round that teaches nothing is warned of at once, and equal
// rewards do not count where advantages differ.
func TestFirstRoundAlarm(t *testing.T) {
	for _, x := range []struct {
		equal, flat float64
		want        int
	}{{1, 1, 2}, {0, 1, 2}, {1, 0, 0}, {0.5, 0.99, 0}} {
		var log bytes.Buffer
		a := NewAlarms(slog.New(slog.NewTextHandler(&log, nil)))
		for round := range 4 {
			a.Look(Record{{"kind", "round"}, {"round", round + 1}, {"reward", 0.5}, {"entropy", 1.0}, {"frac_reward_zero_std", x.equal}}, x.flat)
		}
		if got := strings.Count(log.String(), "nothing is learned from the rewards"); got != x.want {
			t.Errorf("%+v: %d warnings\n%s", x, got, &log)
		}
	}
}

// TestAlarmsResume: a run that was stopped at any place gives the same warnings from
// there on as a run that was not.
func TestAlarmsResume(t *testing.T) {
	const rounds, steps = 40, 4
	feed := func(stop int) string {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		a := NewAlarms(logger)
		for n := range rounds {
			if n == stop {
				text, err := json.Marshal(a.State())
				if err != nil {
					t.Fatal(err)
				}
				var s AlarmState
				if err := json.Unmarshal(text, &s); err != nil {
					t.Fatal(err)
				}
				a = NewAlarms(logger)
				if err := a.Restore(&s); err != nil {
					t.Fatal(err)
				}
			}
			for i := range steps {
				loss := 0.01 * float64((n+i)%5)
				if n == 30 && i == 1 {
					loss = 3
				}
				a.step(Record{{"step", n*steps + i}, {"loss", loss}, {"grad_norm", 1.0}})
			}
			entropy, length, cut, flat := 1.0, 100.0, 0.1, 0.0
			if n > 8 {
				entropy /= float64(n * n)
				length *= float64(n) / 4
			}
			if n > 20 {
				cut = 0.7
			}
			if n > 10 {
				flat = 0.8
			}
			if n > 25 {
				flat = 1
			}
			a.round(Record{
				{"round", n + 1}, {"reward", 0.5}, {"entropy", entropy}, {"response_length/mean", length},
				{"truncated_share", cut}, {"frac_reward_zero_std", flat},
			}, flat)
		}
		return log.String()
	}
	want := feed(-1)
	for _, alarm := range []string{"the loss has jumped", "nothing is learned from the rewards", "entropy has collapsed", "have grown long", "are truncated"} {
		if !strings.Contains(want, alarm) {
			t.Fatalf("the unbroken run does not warn that %q:\n%s", alarm, want)
		}
	}
	for stop := range rounds {
		if got := feed(stop); got != want {
			t.Errorf("stopped before round %d:\n%swant\n%s", stop+1, got, want)
		}
	}
	if a := NewAlarms(nil); a.Restore(&AlarmState{First: Exact{1}}) == nil {
		t.Error("a damaged state is taken")
	}
}
