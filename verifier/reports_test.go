package verifier_test

import (
	"testing"

	"onering/verifier"
)

// A report is an answer of a kind that other graders were reported to judge wrongly.
type report struct {
	ID, Kind, Gold, Response string
	Label                    bool
}

func TestReports(t *testing.T) {
	var all tally
	kinds := map[string]*tally{}
	known := argued(t, "reports")
	for _, r := range sharedSet[report](t, "reports.jsonl") {
		if kinds[r.Kind] == nil {
			kinds[r.Kind] = &tally{}
		}
		got := verifier.Verify(r.Gold, r.Response)
		kinds[r.Kind].add(r.ID, got, r.Label, r.Gold)
		if miss := all.add(r.ID, got, r.Label, r.Gold); miss != "" {
			if known[r.ID] == "" {
				t.Errorf("not argued: %s: %s in %s", r.Kind, miss, quoted(r.Response))
			} else {
				t.Log(miss)
			}
		}
	}
	for kind, c := range kinds {
		if c.right < c.total {
			t.Logf("%s: %d of %d", kind, c.right, c.total)
		}
	}
	t.Logf("%d of %d, %.1f %%, false accepts %v", all.right, all.total, all.percent(), all.falseAccepts)
	if all.percent() < 98.5 || len(all.falseAccepts) > 0 {
		t.Errorf("%.1f %% and false accepts %v, want 98.5 and none", all.percent(), all.falseAccepts)
	}
}
