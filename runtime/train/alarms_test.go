package train

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Each alarm speaks when its figure goes wrong, with the figure, not before, and
// not again while it stays so.
func TestAlarms(t *testing.T) {
	var log bytes.Buffer
	a := newAlarms(slog.New(slog.NewTextHandler(&log, nil)))
	round := 0
	rounds := func(n int, entropy, length, cut, flat float64) {
		for range n {
			round++
			a.round(Record{
				{"round", round}, {"reward", 0.5}, {"entropy", entropy}, {"response_length/mean", length},
				{"truncated_share", cut}, {"frac_reward_zero_std", flat},
			})
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
	rounds(4, 0.05, 100, 0.1, 0)
	said("round=14 entropy=0.05 first_rounds=1")
	rounds(4, 1, 250, 0.1, 0)
	said("round=18 tokens=250 first_rounds=100")
	rounds(4, 1, 100, 0.5, 0)
	said("round=22 truncated_share=0.5 first_rounds=0.1")

	for i := range 40 {
		a.step(Record{{"step", i}, {"loss", 0.01 * float64(i%5)}, {"grad_norm", 1.0}})
	}
	said()
	a.step(Record{{"step", 40}, {"loss", 3.0}, {"grad_norm", 50.0}})
	said("step=40 loss=3")
}
