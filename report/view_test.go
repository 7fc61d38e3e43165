package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
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
	r, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	samples := []rolloutView{{Round: 20, Verdict: "wrong", Prompt: "問題 1+1=", Tokens: []string{strings.Repeat("数字\n\x1b[2J", 100)}, Answer: "\x1b]0;x\a", Gold: []string{"2"}}}
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

// TestWatchAt80x24 draws a run that has everything in a terminal of the usual size:
// no line is cut and no word of the response is torn.
func TestWatchAt80x24(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	suites := []string{"aime24", "amc", "math500", "minerva", "olympiadbench"}
	for n := 0; n <= 40; n += 20 {
		fmt.Fprintf(&b, `{"kind":"eval","round":%d,"step":%d`, n, n)
		for _, s := range suites {
			fmt.Fprintf(&b, `,"eval/%s/pass@1":0.25`, s)
		}
		b.WriteString("}\n")
	}
	for n := 1; n <= 40; n++ {
		fmt.Fprintf(&b, `{"kind":"round","round":%d,"step":%d,"reward":%g`, n, n, float64(n)/40)
		for _, m := range shownMetrics {
			fmt.Fprintf(&b, `,%q:%g`, m.name, float64(n)/7)
		}
		for _, p := range []string{"rollout", "score", "weights", "backward", "optimizer", "other"} {
			fmt.Fprintf(&b, `,"seconds/%s":1`, p)
		}
		b.WriteString("}\n")
	}
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	response := strings.Repeat("consider every divisor ", 40)
	samples := []rolloutView{{Round: 40, Verdict: "wrong", Prompt: strings.Repeat("How many are there? ", 20) + "END", Tokens: []string{response}, Answer: "2", Gold: []string{"2"}}}
	// The shell's prompt takes one line.
	text := draw(r, samples, 50, 80, 23)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 23 {
		t.Errorf("%d lines", len(lines))
	}
	want := append([]string{"round 40/50", "60 s left", "reward 1.000", "other 17 %", "round 40, wrong, answer 2, expected 2"}, suites...)
	for _, m := range shownMetrics {
		want = append(want, m.label)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
	for i, l := range lines {
		if w := runewidth.StringWidth(l); w > 80 {
			t.Errorf("%q is %d wide", l, w)
		}
		if strings.Contains(l, "…") && i < len(lines)-1 && !strings.HasSuffix(l, "END") {
			t.Errorf("a line is cut: %q", l)
		}
	}
	for _, word := range strings.Fields(strings.TrimSuffix(lines[len(lines)-1], "…")) {
		if !strings.Contains(" consider every divisor ", " "+word+" ") {
			t.Errorf("a word is torn: %q", word)
		}
	}
}
