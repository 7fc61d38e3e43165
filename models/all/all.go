// Package all registers every family of models of onering. Import it for effect;
// one line per family.
package all

import _ "onering/models/qwen2"
