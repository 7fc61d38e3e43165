// Package all registers every reward of onering. Import it for effect; one line
// per reward.
package all

import (
	_ "onering/reward/choice"
	_ "onering/reward/command"
	_ "onering/reward/exact"
	_ "onering/reward/http"
	_ "onering/reward/length"
	_ "onering/reward/math"
	_ "onering/reward/regex"
)
