// Package all registers every objective of onering. Import it for effect; one
// line per objective.
package all

import (
	_ "onering/objectives/command"
	_ "onering/objectives/dapo"
	_ "onering/objectives/drgrpo"
	_ "onering/objectives/gmpo"
	_ "onering/objectives/gpg"
	_ "onering/objectives/grpo"
	_ "onering/objectives/gspo"
	_ "onering/objectives/holder"
	_ "onering/objectives/pmpo"
	_ "onering/objectives/policy"
)
