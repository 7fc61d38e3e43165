package metrics

import (
	"fmt"
	"strings"
)

// About names a time in the largest unit of which it has two, such as "12 min".
func About(seconds float64) string {
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{86400, "days"}, {3600, "h"}, {60, "min"}} {
		if seconds >= 2*unit.seconds {
			return fmt.Sprintf("%.0f %s", seconds/unit.seconds, unit.name)
		}
	}
	return fmt.Sprintf("%.0f s", max(1, seconds))
}

// Left says how long the other rounds of a run will take, such as "12 min left", from the seconds
// of those that are done; "" if none is done or left.
func Left(seconds float64, done, rounds int) string {
	if done < 1 || done >= rounds {
		return ""
	}
	return About(seconds/float64(done)*float64(rounds-done)) + " left"
}

// Seconds sums the seconds of all phases of a record.
func (r Record) Seconds() (sum float64) {
	for _, m := range r {
		if strings.HasPrefix(m.Name, "seconds/") {
			sum += r.Float(m.Name)
		}
	}
	return sum
}
