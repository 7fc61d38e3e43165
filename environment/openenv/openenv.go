// Package openenv is the environment that a server of OpenEnv plays (openenv 0.10: /ws,
// /schema and its Task API). Each episode is a WebSocket of its own: a reset with the seed of
// the problem, then a step for each turn. What the policy writes is the field of the action
// that the server's schema asks for; the tools of an environment of MCP are called by name.
package openenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"onering/environment"
	"onering/internal/process"
	"onering/internal/remote"
	"onering/tokenize"
)

func init() {
	environment.Register("openenv", func() environment.Environment { return new(Server) })
}

// A Server plays episodes on a server.
type Server struct {
	URL         string `toml:"url" help:"address of the server, such as http://localhost:8000; required"`
	TokenEnv    string `toml:"token_env" help:"name of the environment variable with the bearer token for the server; the token itself is never written anywhere"`
	Action      string `toml:"action" help:"the field of an action that gets what the policy writes; if it is not set, the one that the server's schema has, or else the policy writes the action as a JSON object"`
	Observation string `toml:"observation" help:"the field of an observation that the policy reads; if it is not set, the one that is a text, or else all as JSON"`
	Split       string `toml:"split" help:"the server's tasks that are played: the one at the row's column index, or if it has none, one that the problem's id decides"`

	mu   sync.Mutex
	told *facts
}

// facts are what a server says of its environment. They do not change.
type facts struct {
	field  string // of the action, "" if the policy writes it all
	text   bool   // the field is a text
	fields string // of the action, for messages
	tasks  uint64
}

// About is the environment's line in lists.
func (*Server) About() string { return "an environment that a server of OpenEnv plays" }

// Validate asks for an address.
func (s *Server) Validate() error {
	return errors.Join(remote.CheckAddress("url", s.URL, "http://localhost:8000"), remote.CheckTokenEnv(s.TokenEnv))
}

// Ready says that the server is not there.
func (s *Server) Ready(ctx context.Context) error {
	_, _, err := s.ask(ctx)
	return err
}

// named puts the server in front of an error, unless that is the context's.
func (s *Server) named(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("environment %q: %s: %w", "openenv", s.URL, err)
}

// ask asks the server for its facts, once, and returns a client for it.
func (s *Server) ask(ctx context.Context) (*facts, *http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, err := remote.Token("environment", s.TokenEnv)
	client := remote.Client(token, process.MaxAnswer)
	if err == nil && s.told == nil && ctx.Err() == nil {
		s.told, err = s.facts(ctx, client)
	}
	return s.told, client, s.named(ctx, err)
}

func (s *Server) facts(ctx context.Context, client *http.Client) (*facts, error) {
	var schema struct {
		Action struct {
			Properties map[string]struct{ Type string }
			Required   []string
		}
	}
	if err := s.get(ctx, client, "schema", nil, &schema); err != nil {
		return nil, err
	}
	delete(schema.Action.Properties, "metadata")
	names := slices.Sorted(maps.Keys(schema.Action.Properties))
	told := &facts{field: s.Action, fields: strings.Join(names, ", ")}
	if len(names) != 1 {
		names = schema.Action.Required
	}
	if s.Action == "" && len(names) == 1 {
		told.field = names[0]
	}
	kind := schema.Action.Properties[told.field].Type
	told.text = kind == "string" || kind == ""
	if s.Split == "" {
		return told, nil
	}
	var environments []string
	if err := s.get(ctx, client, "list_environments", nil, &environments); err != nil {
		return nil, err
	}
	var count struct {
		Tasks uint64 `json:"num_tasks"`
	}
	for _, name := range environments {
		if err := s.get(ctx, client, url.PathEscape(name)+"/num_tasks", map[string]string{"split": s.Split}, &count); err != nil {
			return nil, err
		}
	}
	if told.tasks = count.Tasks; told.tasks == 0 {
		return nil, fmt.Errorf("its split %q has no tasks", s.Split)
	}
	return told, nil
}

// get reads the answer to a request, which is a POST if it has a body.
func (s *Server) get(ctx context.Context, client *http.Client, path string, body map[string]string, into any) error {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		text, _ = json.Marshal(body) // texts can be written
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(s.URL, "/")+"/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err = json.NewDecoder(response.Body).Decode(into); response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return fmt.Errorf("%s /%s: %w", method, path, err)
	}
	return nil
}

// begin opens a session and resets it. The server leaves out of a reset what its environment
// does not take.
func (s *Server) begin(ctx context.Context, start environment.Start) (*episode, *answer, error) {
	told, client, err := s.ask(ctx)
	if err != nil {
		return nil, nil, err
	}
	reset := map[string]any{"seed": uint32(start.Seed >> 32)}
	if s.Split != "" {
		hash := fnv.New64a()
		hash.Write([]byte(start.Problem.ID))
		reset["split"], reset["index"] = s.Split, hash.Sum64()%told.tasks
		if index, ok := start.Problem.Fields.Lookup("index"); ok {
			reset["index"] = index
		}
	}
	e, err := s.dial(ctx, client, told)
	if err != nil {
		return nil, nil, s.named(ctx, err)
	}
	a, err := e.exchange(ctx, "reset", reset)
	if err == nil && a.failed != "" {
		err = errors.New(process.Printable(a.failed))
	}
	if err != nil {
		e.Close()
		return nil, nil, s.named(ctx, err)
	}
	return e, a, nil
}

// Open implements environment.Opener: the policy reads the problem, if it has a text, and
// what the server shows first.
func (s *Server) Open(ctx context.Context, start environment.Start) (o environment.Opening, err error) {
	e, a, err := s.begin(ctx, start)
	if err != nil {
		return o, err
	}
	defer e.Close()
	if text := e.shown(a); text != "" {
		o.Messages = []tokenize.Message{{Role: "user", Content: strings.TrimLeft(start.Problem.Text+"\n\n"+text, "\n")}}
	}
	if len(e.tools) > 0 {
		o.Tools, err = environment.Functions(e.tools)
	}
	return o, err
}

// Begin implements environment.Environment.
func (s *Server) Begin(ctx context.Context, start environment.Start) (environment.Episode, error) {
	e, _, err := s.begin(ctx, start)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Step implements environment.Episode.
func (e *episode) Step(ctx context.Context, t environment.Turn) (o environment.Observation, err error) {
	done := false
	var total *float64
	step := func(ctx context.Context, action map[string]any) (string, error) {
		if done {
			return "error: the episode has ended", nil
		}
		a, err := e.exchange(ctx, "step", action)
		if err != nil {
			return "", err
		}
		if a.reward != nil {
			if total == nil {
				total = new(float64)
			}
			if *total += *a.reward; math.IsInf(*total, 0) {
				return "", errors.New("its rewards add up to infinity")
			}
		}
		done = a.Done
		return e.shown(a), nil
	}
	if len(e.tools) > 0 {
		o, err = environment.Answer(ctx, t, e.tools, func(ctx context.Context, c environment.Call) (string, error) {
			return step(ctx, map[string]any{"type": "call_tool", "tool_name": c.Name, "arguments": c.Arguments})
		})
	} else {
		action, text := e.action(t.Text)
		if action != nil {
			text, err = step(ctx, action)
		}
		o.Messages = []tokenize.Message{{Role: "user", Content: text}}
	}
	if err = e.server.named(ctx, err); err != nil {
		return environment.Observation{}, err
	}
	o.Reward, o.Done = total, o.Done || done
	return o, nil
}

// action makes an action of what the policy wrote, or says what is wrong with it.
func (e *episode) action(text string) (action map[string]any, wrong string) {
	value := json.RawMessage(strings.TrimSpace(text))
	switch {
	case e.told.field == "":
		from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
		if from < 0 || json.Unmarshal([]byte(text[from:max(from, to+1)]), &action) != nil {
			return nil, "error: write the action as a JSON object with " + e.told.fields
		}
		return action, ""
	case !e.told.text && json.Valid(value):
		return map[string]any{e.told.field: value}, ""
	}
	return map[string]any{e.told.field: text}, ""
}
