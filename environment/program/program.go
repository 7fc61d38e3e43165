// Package program is the environment of programs that drive themselves: agents that talk to the
// policy as to any server of OpenAI's API. A run starts one for each episode, or waits for
// programs to come. The program is the environment, so it answers nothing here; package
// serve/episodes plays it.
package program

import (
	"context"
	"errors"
	"strings"

	"onering/environment"
	"onering/internal/settings"
)

func init() { environment.Register("program", func() environment.Environment { return &Program{} }) }

// A Program is a program of the user's that asks for each turn itself.
type Program struct {
	Command []string `toml:"command" help:"the program that is run for each episode, and its arguments, such as [\"python3\", \"agent.py\"]. OPENAI_BASE_URL and OPENAI_API_KEY tell it where to ask, ONERING_PROBLEM has the problem as JSON. Without one the run waits for programs, which begin an episode by POST /rl/start"`

	driver environment.Driver
}

// About is the environment's line in lists.
func (*Program) About() string {
	return "programs that talk to the policy as to a server of OpenAI's API"
}

// Validate refuses a command without a name.
func (p *Program) Validate() error {
	if len(p.Command) > 0 && strings.TrimSpace(p.Command[0]) == "" {
		return &settings.Error{Key: "command", Value: p.Command, Remedy: `must name a program and its arguments, such as ["python3", "agent.py"]`}
	}
	return nil
}

// SetDriver says what plays the episodes.
func (p *Program) SetDriver(d environment.Driver) { p.driver = d }

// Driver implements environment.Programmed.
func (p *Program) Driver() environment.Driver { return p.driver }

// Begin implements environment.Environment: there is nothing to begin.
func (*Program) Begin(context.Context, environment.Start) (environment.Episode, error) {
	return nil, errors.New("environment: program: its episodes are played by onering train alone")
}
