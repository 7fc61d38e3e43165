package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestComponentPlots: each part of a reward has a curve, after the reward's curve. A
// single part that equals the reward has no curve. Values above 1 widen the axis.
func TestComponentPlots(t *testing.T) {
	for _, tt := range []struct {
		name, round string // the title with the number of the round
		want        []string
		widened     bool
	}{
		{"one", `"reward":0.%[1]d,"reward/math/mean":0.%[1]d`, []string{"reward"}, false},
		{"one of its own value", `"reward":0.%[1]d,"reward/style/mean":0.5%[1]d`, []string{"reward", "reward-style"}, false},
		{"several", `"reward":1.%[1]d,"reward/math/mean":0.%[1]d,"reward/short/mean":0.%[1]d2,"reward/skipped":0,"reward_log/short/tokens/mean":3`, []string{"reward", "reward-math", "reward-short"}, true},
	} {
		dir := t.TempDir()
		var b strings.Builder
		for round := 1; round <= 4; round++ {
			fmt.Fprintf(&b, `{"kind":"round","step":%[1]d,"round":%[1]d,`+tt.round+"}\n", round)
		}
		if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, f := range figures([]*Run{mustRead(t, dir)}) {
			if !strings.HasPrefix(f.ID, "reward") {
				continue
			}
			ids = append(ids, f.ID)
			chart, err := json.Marshal(f.Chart)
			if err != nil {
				t.Fatal(err)
			}
			if f.ID == "reward" && strings.Contains(string(chart), `"max":1`) == tt.widened {
				t.Errorf("%s: chart %s", tt.name, chart)
			}
		}
		if !slices.Equal(ids, tt.want) {
			t.Errorf("%s: figures %q, want %q", tt.name, ids, tt.want)
		}
	}
}
