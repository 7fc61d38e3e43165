package learn

import (
	"strings"
	"testing"
)

// The scale halves at each overflow down to 1, and doubles after 2000 updates
// without one, up to 2^24.
func TestLossScale(t *testing.T) {
	s := LossScale{Scale: firstScale}
	halve := func() {
		t.Helper()
		next, err := s.Halved()
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	count := func(n int) {
		for range n {
			s = s.Counted()
		}
	}
	halve()
	if s.Scale != 1<<15 {
		t.Errorf("scale %g", s.Scale)
	}
	count(1999)
	halve() // the count begins again
	count(1999)
	if s.Scale != 1<<14 {
		t.Fatalf("scale %g", s.Scale)
	}
	count(1)
	if s.Scale != 1<<15 {
		t.Errorf("scale %g after 2000 updates", s.Scale)
	}
	count(40 * 2000)
	if s.Scale != 1<<24 {
		t.Errorf("scale %g", s.Scale)
	}
	for s.Scale > 1 {
		halve()
	}
	if _, err := s.Halved(); err == nil || !strings.Contains(err.Error(), "bfloat16") {
		t.Errorf("error %v", err)
	}
}
