package sampler

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestStopsFindWhatIndexFinds: a stop string is found at the piece that completes it, whatever
// tokens a text is cut into, even if the decoder holds back this piece.
func TestStopsFindWhatIndexFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.StringMatching(`[ab]{1,4}`), 1, 3).Draw(t, "stops")
		pieces := rapid.SliceOf(rapid.StringMatching(`[abc]{0,5}`)).Draw(t, "pieces")
		s := newStops(list)
		var tail []byte
		text, pending := "", ""
		for i, piece := range pieces {
			text += piece
			whole := ""
			if pending += piece; !rapid.Bool().Draw(t, "held back") {
				whole, pending = pending, ""
			}
			want, at := -1, len(text)
			for j, stop := range list {
				if k := strings.Index(text, stop); k >= 0 && k < at {
					want, at = j, k
				}
			}
			var got int
			if got, tail = s.find(tail, whole, pending); got != want {
				t.Fatalf("piece %d of %q: found %d, want %d of %q", i, pieces, got, want, list)
			}
			if want >= 0 {
				return
			}
			if len(tail) >= s.longest {
				t.Fatalf("the tail %q is kept for stops of %d bytes", tail, s.longest)
			}
		}
	})
}
