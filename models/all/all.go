// Package all registers every family of models and every optimizer of onering.
// Import it for effect; one line for each.
package all

import (
	_ "onering/models/adamw"
	_ "onering/models/qwen2"
)
