// Package all registers every family of models and every optimizer of onering.
// Import it for effect; one line for each.
package all

import (
	_ "onering/models/gemma"
	_ "onering/models/granite"
	_ "onering/models/lfm2"
	_ "onering/models/llama"
	_ "onering/models/mistral"
	_ "onering/models/olmo"
	_ "onering/models/optim/adamw"
	_ "onering/models/phi3"
	_ "onering/models/qwen2"
	_ "onering/models/qwen3"
	_ "onering/models/qwen35"
	_ "onering/models/smollm3"
	_ "onering/models/wrapped"
)
