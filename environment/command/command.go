// Package command is the environment of a program that the user writes in any language. The program reads a
// JSON object a line from its standard input and answers each with one on its standard output:
//
//	{"id": 1, "reset": {"problem": {"id": ..., "text": ..., ...}, "seed": 7, "sample": 0}}
//	{"id": 1, "messages": [{"role": "user", "content": ...}], "tools": [...]}
//	{"id": 2, "step": {"turn": 0, "text": ..., "calls": [{"name": ..., "arguments": {...}}]}}
//	{"id": 2, "messages": [...], "reward": 0.5, "done": false}
//	{"id": 3, "close": {}}
//	{"id": 3}
//
// A field that an answer omits is empty. {"id": 2, "error": "..."} ends an episode without a grade.
//
// A process has one episode at a time, and the next one after that: an interpreter takes tens or hundreds of
// milliseconds to start, and a step through the pipes a tenth of one. There are as many processes as episodes
// that go on at once, and one that dies or is killed has cost one episode.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"onering/data"
	"onering/environment"
	"onering/internal/process"
	"onering/internal/strict"
	"onering/tokenize"
)

func init() {
	environment.Register("command", func() environment.Environment { return new(Program) })
}

// A Program plays episodes by processes that it keeps running.
type Program struct {
	Command []string `toml:"command" help:"the program and its arguments, such as [\"python3\", \"game.py\"]; required"`

	mu   sync.Mutex
	idle []*process.Lines
}

// About is the environment's line in lists.
func (*Program) About() string {
	return "a program of yours, which reads and writes JSON lines"
}

// Validate asks for a program.
func (p *Program) Validate() error { return process.Check("command", p.Command, "game.py") }

// Ready says which part of the program is missing.
func (p *Program) Ready(context.Context) error {
	return process.Find("environment.command", p.Command)
}

type resetting struct {
	Problem data.Object `json:"problem"`
	Seed    uint32      `json:"seed"`
	Sample  int         `json:"sample"`
}

type stepping struct {
	Turn  int                `json:"turn"`
	Text  string             `json:"text"`
	Calls []environment.Call `json:"calls"`
}

// An answer is a line that the program wrote.
type answer struct {
	environment.Observation
	Tools tokenize.Data `json:"tools"`
	Error *string       `json:"error"`
}

// Begin implements environment.Environment: it takes a process and resets it.
func (p *Program) Begin(ctx context.Context, s environment.Start) (environment.Episode, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	worker, err := p.take()
	if err != nil {
		return nil, p.withName(err)
	}
	e := &episode{program: p, worker: worker}
	seed := uint32(s.Seed >> 32) // every language can hold a number of this size
	a, err := e.ask(ctx, "reset", resetting{s.Problem.Object(), seed, s.Sample}, "system", "user", "assistant", "tool")
	if err != nil {
		e.Close()
		return nil, err
	}
	e.opening = environment.Opening{Messages: a.Messages, Tools: a.Tools}
	return e, nil
}

// Holds implements environment.Holder: each episode has a process.
func (*Program) Holds() bool { return true }

// words are the words of messages about programs.
var words = process.Words{Kind: "environment", Unit: "message"}

// take returns a process that has no episode.
func (p *Program) take() (*process.Lines, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		worker := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if worker.Running() { // it may have ended while it had nothing to do
			return worker, nil
		}
	}
	return process.StartLines(p.Command, words)
}

// withName prefixes an error with the program.
func (p *Program) withName(err error) error {
	return fmt.Errorf("environment %q: %q: %w", "command", strings.Join(p.Command, " "), err)
}

// Close ends the processes that have no episode. A later Begin starts new ones.
func (p *Program) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	process.StopAll(idle)
	return nil
}

type episode struct {
	program *Program
	worker  *process.Lines
	failed  bool
	opening environment.Opening
}

// Opening implements environment.Opener: it returns the program's answer to the reset.
func (e *episode) Opening() (environment.Opening, error) { return e.opening, nil }

// ask sends {"id": ..., KIND: WHAT} to the process and reads its answer, whose messages may have the roles. It waits
// until ctx ends. After an error it ends the process, whose next answer could be about anything.
func (e *episode) ask(ctx context.Context, kind string, what any, roles ...string) (*answer, error) {
	a := new(answer)
	line, err := json.Marshal(map[string]any{kind: what})
	if err != nil {
		return nil, err
	}
	const noLimit = 0
	withID := func(id int) []byte { return fmt.Appendf(nil, `{"id":%d,%s`, id, line[1:]) } // line without its {
	_, text, err := e.worker.Ask(ctx, noLimit, withID)
	if err == nil {
		err = read(text, a, roles)
	}
	if err == nil && kind == "step" && len(a.Messages) == 0 && !a.Done {
		err = fmt.Errorf("the answer %s to a step has no messages, and is not done", process.Excerpt(text))
	}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = e.program.withName(err)
	}
	e.failed = true
	e.worker.Fail(err)
	return nil, err
}

// read reads an answer. Its messages must have one of the given roles.
func read(text []byte, a *answer, roles []string) error {
	err := strict.JSON(text, a)
	switch {
	case err != nil:
		return fmt.Errorf("the answer %s cannot be read: %w", process.Excerpt(text), err)
	case a.Error != nil:
		return fmt.Errorf("it reports: %s", process.Printable(*a.Error))
	}
	for _, m := range a.Messages {
		if !slices.Contains(roles, m.Role) {
			return fmt.Errorf("the answer %s has a message of the role %q: it must be one of %s", process.Excerpt(text), m.Role, strings.Join(roles, ", "))
		}
	}
	return nil
}

// Step implements environment.Episode.
func (e *episode) Step(ctx context.Context, t environment.Turn) (environment.Observation, error) {
	calls := t.Calls
	if calls == nil {
		calls = []environment.Call{}
	}
	a, err := e.ask(ctx, "step", stepping{t.Number, t.Text, calls}, "tool", "user")
	if err != nil {
		return environment.Observation{}, err
	}
	return a.Observation, nil
}

// patience is how long a program may take to answer the end of an episode.
var patience = 2 * time.Second

// Close implements environment.Episode: the process serves another episode if it answers.
func (e *episode) Close() error {
	if !e.failed {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := e.ask(ctx, "close", struct{}{})
		if err == nil {
			e.program.mu.Lock()
			defer e.program.mu.Unlock()
			e.program.idle = append(e.program.idle, e.worker)
			return nil
		}
	}
	e.worker.Stop()
	return nil
}
