// Package all registers every objective of onering. Import it for effect; one
// line per objective.
package all

import (
	_ "onering/objectives/cispo"
	_ "onering/objectives/dapo"
	_ "onering/objectives/dispo"
	_ "onering/objectives/dppo"
	_ "onering/objectives/drgrpo"
	_ "onering/objectives/gdpo"
	_ "onering/objectives/gmpo"
	_ "onering/objectives/gpg"
	_ "onering/objectives/grpo"
	_ "onering/objectives/gspo"
	_ "onering/objectives/holder"
	_ "onering/objectives/luspo"
	_ "onering/objectives/m2po"
	_ "onering/objectives/maxrl"
	_ "onering/objectives/opd"
	_ "onering/objectives/opo"
	_ "onering/objectives/p3o"
	_ "onering/objectives/pmpo"
	_ "onering/objectives/reinforcepp"
	_ "onering/objectives/remax"
	_ "onering/objectives/rloo"
	_ "onering/objectives/sapo"
	_ "onering/objectives/vespo"
)
