package terminal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"

	"onering/report"
)

// TestWatchFits draws a run for terminals of many sizes. It checks that no line is too
// wide, that there are not too many lines, and that the most important lines are shown
// where they fit.
func TestWatchFits(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for n := 1; n <= 20; n++ {
		fmt.Fprintf(&b, `{"kind":"round","round":%d,"step":%d,"reward":%g,"grad_norm":0.1,"p/mean":0.9,"entropy":0.5,"response_length/mean":30,"seconds/rollout":1,"seconds/score":1,"seconds/backward":2}`+"\n", n, n, float64(n)/20)
	}
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := report.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	samples := []report.Rollout{{Round: 20, Verdict: "wrong", Prompt: "問題 1+1=", Tokens: []string{strings.Repeat("数字\n\x1b[2J", 100)}, Answer: "\x1b]0;x\a", Gold: []string{"2"}}}
	for _, width := range []int{1, 8, 20, 40, 60, 80, 200} {
		for _, height := range []int{1, 5, 12, 20, 24, 40, 60} {
			text := draw(r, samples, 40, width, height)
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if len(lines) > height {
				t.Errorf("%d x %d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if w := runewidth.StringWidth(l); w > width {
					t.Errorf("%d x %d: %q is %d wide", width, height, l, w)
				}
			}
			if strings.ContainsAny(text, "\x1b\a") {
				t.Errorf("%d x %d: control characters in %q", width, height, text)
			}
			want := []string{"round 20/40"}
			if height >= 20 {
				want = append(want, "reward 1.000", "grad norm", "backward", "round 20, wrong")
			}
			for _, w := range want {
				if width >= 60 && height > 1 && !strings.Contains(text, w) {
					t.Errorf("%d x %d: no %q in\n%s", width, height, w, text)
				}
			}
		}
	}
}
