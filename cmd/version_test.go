package cmd

import "testing"

func TestCommit(t *testing.T) {
	for want, v := range map[string]buildVersion{
		"commit abc of 2026-01-02T03:04:05Z":           {Revision: "abc", Time: "2026-01-02T03:04:05Z"},
		"commit abc of 2026-01-02T03:04:05Z, modified": {Revision: "abc", Time: "2026-01-02T03:04:05Z", Modified: true},
		"commit not recorded (go run and -buildvcs=false record none; go install ./cmd/onering in a git checkout does)": {},
	} {
		if got := v.commit(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}
