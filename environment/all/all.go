// Package all registers every environment of onering. Import it for effect; one line per environment.
package all

import (
	_ "onering/environment/command"
	_ "onering/environment/mcp"
	_ "onering/environment/openenv"
	_ "onering/environment/tools"
)
