package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	p := StartProgress(&out, false, "rollout", "trajectories", 100)
	p.now = func() time.Time { return clock }
	p.started, p.printed = clock, clock

	clock = clock.Add(9 * time.Second)
	p.Add(10)
	if out.Len() > 0 {
		t.Errorf("a line after 9 s: %q", out.String())
	}
	clock = clock.Add(time.Second)
	p.Add(10)
	clock = clock.Add(10 * time.Second)
	p.Set(100, 100)
	p.Finish()
	p.Finish()
	want := "rollout: 20 of 100 trajectories, 2.0/s, 40s left\n" +
		"rollout: 100 of 100 trajectories, 5.0/s\n" +
		"rollout: 100 of 100 trajectories, 5.0/s\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestProgressQuiet(t *testing.T) {
	var out bytes.Buffer
	p := StartProgress(&out, true, "download", "B", 1e6)
	p.printed = p.printed.Add(-time.Hour)
	p.Set(1e6, 1e6)
	p.Finish()
	if out.Len() > 0 {
		t.Errorf("--quiet printed %q", out.String())
	}
}

func TestProgressBytes(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	p := StartProgress(&out, false, "download", "B", 0)
	p.now = func() time.Time { return clock }
	p.started, p.printed = clock, clock
	clock = clock.Add(20 * time.Second)
	p.Set(10e6, 30e6)
	if got, want := out.String(), "download: 10.0 of 30.0 MB, 0.5 MB/s, 40s left\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTimeLeft: the display shows no time before it can estimate one.
func TestTimeLeft(t *testing.T) {
	for _, tt := range []struct {
		done, total int64
		want        string
	}{
		{0, 100, ""}, {1, 100, ""}, {4, 100, ""}, {5, 100, "3m10s left"}, {1, 2, "10s left"}, {50, 100, "10s left"}, {100, 100, ""}, {3, 0, ""},
	} {
		if got := timeLeft(tt.done, tt.total, 10*time.Second); got != tt.want {
			t.Errorf("%d of %d after 10 s: %q, want %q", tt.done, tt.total, got, tt.want)
		}
	}
}
