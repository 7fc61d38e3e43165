// Package openenv is the environment that a server of OpenEnv plays (openenv 0.10: /ws,
// /schema and its Task API). Each episode has its own WebSocket: a reset with the seed of
// the problem, then a step for each turn. The text of the policy fills the field of the
// action that the server's schema asks for; tools of an MCP environment are called by name.
package openenv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"onering/environment"
	"onering/internal/process"
	"onering/internal/remote"
	"onering/internal/strict"
	"onering/tokenize"
)

func init() {
	environment.Register("openenv", func() environment.Environment { return new(Server) })
}

// A Server is an environment that plays episodes on a server of OpenEnv.
type Server struct {
	URL         string `toml:"url" help:"address of the server, such as http://localhost:8000; required"`
	TokenEnv    string `toml:"token_env" help:"name of the environment variable with the bearer token for the server; the token itself is never written anywhere"`
	Action      string `toml:"action" help:"the field of an action that gets what the policy writes; if it is not set, the one that the server's schema has, or else the policy writes the action as a JSON object"`
	Observation string `toml:"observation" help:"the field of an observation that the policy reads; if it is not set, the one that is a text, or else all as JSON"`
	Split       string `toml:"split" help:"the server's tasks that are played: the one at the row's column index, or if it has none, one that the problem's id decides"`

	mu    sync.Mutex
	known *facts
}

// facts are what a server states about its environment. They do not change.
type facts struct {
	textField    string // the field of the action for the policy's text, "" if the policy writes the whole action
	isString     bool   // the field is a string
	isEnumerated bool   // the field is one of some values, which have no blanks around them
	fieldNames   string // the fields of the action, for messages
	tasks        uint64
}

// About is the environment's line in lists.
func (*Server) About() string { return "an environment that a server of OpenEnv plays" }

// Validate asks for an address.
func (s *Server) Validate() error {
	return errors.Join(remote.CheckAddress("url", s.URL, "http://localhost:8000"), remote.CheckTokenEnv(s.TokenEnv))
}

// Holds implements environment.Holder: each episode has a session of the server.
func (*Server) Holds() bool { return true }

// Ready returns an error if the server cannot be reached.
func (s *Server) Ready(ctx context.Context) error {
	_, _, err := s.askFacts(ctx)
	return err
}

// withName prefixes an error with the server, unless that is the context's.
func (s *Server) withName(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("environment %q: %s: %w", "openenv", s.URL, err)
}

// askFacts asks the server for its facts, once, and returns a client for it.
func (s *Server) askFacts(ctx context.Context) (*facts, *http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client, err := remote.Client("environment", s.TokenEnv, process.MaxAnswer)
	if err == nil && s.known == nil && ctx.Err() == nil {
		s.known, err = s.readFacts(ctx, client)
	}
	return s.known, client, s.withName(ctx, err)
}

// readFacts asks which actions the environment takes and, with a split, how many tasks that has. The policy's text goes
// into the field that s.Action names, or else the action's only field, or the only one that is required.
func (s *Server) readFacts(ctx context.Context, client *http.Client) (*facts, error) {
	var schema struct {
		Action struct {
			Properties map[string]struct {
				Type string
				Enum []any
				Ref  string `json:"$ref"`
			}
			Required []string
		}
	}
	if err := s.request(ctx, client, "schema", nil, &schema); err != nil {
		return nil, err
	}
	delete(schema.Action.Properties, "metadata") // it is not for the policy
	names := slices.Sorted(maps.Keys(schema.Action.Properties))
	known := &facts{textField: s.Action, fieldNames: strings.Join(names, ", ")}
	if len(names) != 1 {
		names = schema.Action.Required
	}
	if s.Action == "" && len(names) == 1 {
		known.textField = names[0]
	}
	field := schema.Action.Properties[known.textField]
	known.isString = field.Type == "string" || field.Type == "" // "": one of some values, or not described
	known.isEnumerated = field.Enum != nil || field.Ref != ""
	if s.Split == "" {
		return known, nil
	}
	var environments []string
	if err := s.request(ctx, client, "list_environments", nil, &environments); err != nil {
		return nil, err
	}
	var count struct {
		Tasks uint64 `json:"num_tasks"`
	}
	for _, name := range environments { // each overwrites count, so the last one counts
		if err := s.request(ctx, client, url.PathEscape(name)+"/num_tasks", map[string]string{"split": s.Split}, &count); err != nil {
			return nil, err
		}
	}
	if known.tasks = count.Tasks; known.tasks == 0 {
		return nil, fmt.Errorf("its split %q has no tasks", s.Split)
	}
	return known, nil
}

// request reads the answer to a request, which is a POST if it has a body.
func (s *Server) request(ctx context.Context, client *http.Client, path string, body map[string]string, into any) error {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		text, _ = json.Marshal(body) // a map of texts can always be encoded
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(s.URL, "/")+"/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := remote.Exchange(client, request, "")
	if err == nil {
		err = strict.JSON(answer, into)
	}
	if err != nil {
		return fmt.Errorf("%s /%s: %w", method, path, err)
	}
	return nil
}

// Begin implements environment.Environment: it opens a session and resets it. The server
// ignores fields of a reset that its environment does not take. The policy reads the
// problem, if it has a text, and the first observation of the server.
func (s *Server) Begin(ctx context.Context, start environment.Start) (environment.Episode, error) {
	known, client, err := s.askFacts(ctx)
	if err != nil {
		return nil, err
	}
	reset := map[string]any{"seed": uint32(start.Seed >> 32)} // every language can hold a number of this size
	if s.Split != "" {
		hash := fnv.New64a()
		hash.Write([]byte(start.Problem.ID))
		reset["split"], reset["index"] = s.Split, hash.Sum64()%known.tasks
		if index, ok := start.Problem.Fields.Lookup("index"); ok {
			reset["index"] = index
		}
	}
	e, err := s.dial(ctx, client, known)
	if err != nil {
		return nil, s.withName(ctx, err)
	}
	a, err := e.exchange(ctx, "reset", reset)
	if err == nil && a.refusal != "" {
		err = errors.New(process.Printable(a.refusal))
	}
	if err != nil {
		e.Close()
		return nil, s.withName(ctx, err)
	}
	if text := e.shown(a); text != "" { // else the problem stays the whole prompt
		e.opening = []tokenize.Message{{Role: "user", Content: strings.TrimLeft(start.Problem.Text+"\n\n"+text, "\n")}}
	}
	return e, nil
}

// Opening implements environment.Opener.
func (e *episode) Opening() (environment.Opening, error) {
	o, err := e.Functions.Opening()
	o.Messages = e.opening
	return o, err
}

// Step implements environment.Episode: it sends the policy's text as an action or, if the server has tools, each of the
// turn's calls as one. The rewards of the calls add up.
func (e *episode) Step(ctx context.Context, t environment.Turn) (o environment.Observation, err error) {
	done := false
	var reward *float64
	step := func(ctx context.Context, action map[string]any) (string, error) {
		if done {
			return "error: the episode has ended", nil
		}
		a, err := e.exchange(ctx, "step", action)
		if err != nil {
			return "", err
		}
		if a.numericReward != nil {
			if reward != nil {
				*a.numericReward += *reward
			}
			reward = a.numericReward
		}
		done = a.Done
		return e.shown(a), nil
	}
	if len(e.Functions) > 0 {
		o, err = e.Answer(ctx, t, func(ctx context.Context, c environment.Call) (string, error) {
			return step(ctx, map[string]any{"type": "call_tool", "tool_name": c.Name, "arguments": c.Arguments})
		})
	} else {
		action, text := e.action(t.Text)
		if action != nil {
			text, err = step(ctx, action)
		}
		o.Messages = []tokenize.Message{{Role: "user", Content: text}}
	}
	if err = e.server.withName(ctx, err); err != nil {
		return environment.Observation{}, err
	}
	o.Reward, o.Done = reward, o.Done || done
	return o, nil
}

// action makes an action of the policy's text, or says to the policy why that is not possible: the text is one field of
// the action, or, if the server's schema names none for it, has the action as a JSON object.
func (e *episode) action(text string) (action map[string]any, wrong string) {
	value := json.RawMessage(strings.TrimSpace(text))
	switch {
	case e.facts.textField == "":
		from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
		if from < 0 || strict.JSON([]byte(text[from:max(from, to+1)]), &action) != nil {
			return nil, "error: write the action as a JSON object with " + e.facts.fieldNames
		}
		return action, ""
	case !e.facts.isString && json.Valid(value): // a number or the like
		return map[string]any{e.facts.textField: value}, ""
	case e.facts.isEnumerated:
		text = string(value) // without blanks around it
	}
	return map[string]any{e.facts.textField: text}, ""
}

// An episode is one session on the server.
type episode struct {
	environment.Functions
	server   *Server
	facts    *facts
	opening  []tokenize.Message // the observation that the policy reads first
	conn     *websocket.Conn
	answers  chan []byte // the answers of the server
	closedBy error       // why no more answers come, set before answers is closed
}

// errFull is the error of a server that has no room for another session.
var errFull = fmt.Errorf("%w: start it with a larger max_concurrent_envs", environment.ErrFull)

// dial opens a session and asks for the tools, which MCP environments have.
func (s *Server) dial(ctx context.Context, client *http.Client, known *facts) (*episode, error) {
	conn, _, err := websocket.Dial(ctx, strings.TrimRight(s.URL, "/")+"/ws", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(process.MaxAnswer)
	e := &episode{server: s, facts: known, conn: conn, answers: make(chan []byte, 1)}
	go e.read()
	a, err := e.exchange(ctx, "step", map[string]any{"type": "list_tools"}) // others refuse the action, which is no error here
	if err == nil {
		var tools []struct {
			environment.Function
			Schema json.RawMessage `json:"input_schema"`
		}
		if list := a.Observation["tools"]; list != nil {
			err = strict.JSON(list, &tools)
		}
		for _, tool := range tools {
			tool.Parameters = tool.Schema
			e.Functions = append(e.Functions, tool.Function)
		}
	}
	if err == nil {
		return e, nil
	}
	e.Close()
	return nil, err
}

// read reads the server's answers. Pings of the server are answered only while a read waits, also between two steps.
func (e *episode) read() {
	defer close(e.answers)
	for {
		_, text, err := e.conn.Read(context.Background())
		if err != nil {
			e.closedBy = err
			return
		}
		e.answers <- text
	}
}

// An answer is the server's reply to a reset or a step.
type answer struct {
	Observation map[string]json.RawMessage
	Reward      any
	Done        bool

	numericReward *float64
	refusal       string // what the policy reads about an action that the environment refused
}

// exchange sends a message of a kind and returns the answer, also one that refuses the action (refusal). A full server
// may say so before it is asked, and close the connection.
func (e *episode) exchange(ctx context.Context, kind string, data map[string]any) (*answer, error) {
	unasked := len(e.answers) > 0 // the server has spoken first
	failed := ctx.Err()
	if failed == nil && !unasked {
		failed = wsjson.Write(ctx, e.conn, map[string]any{"type": kind, "data": data})
	}
	var text []byte
	select {
	case text = <-e.answers:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var reply struct {
		Type string
		Data struct {
			answer
			Code, Message string
			Errors        json.RawMessage
		}
	}
	a, err := &reply.Data.answer, strict.JSON(text, &reply)
	switch {
	case reply.Data.Code == "CAPACITY_REACHED":
		return nil, errFull
	case unasked:
		return nil, fmt.Errorf("the server sent %s while no answer was due", process.Excerpt(text))
	case text == nil: // answers was closed
		return nil, cmp.Or(failed, e.closedBy)
	case err != nil:
		return nil, fmt.Errorf("the answer %s cannot be read: %w", process.Excerpt(text), err)
	case reply.Data.Code == "VALIDATION_ERROR" || reply.Data.Code == "EXECUTION_ERROR":
		text := "error: " + reply.Data.Message + " " + string(reply.Data.Errors)
		a.refusal = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), 2000)], ""))
	case reply.Type != "observation":
		return nil, fmt.Errorf("it answers a %s with %s", kind, process.Excerpt(text))
	}
	switch reward := a.Reward.(type) {
	case float64:
		a.numericReward = &reward
	case bool:
		a.numericReward = new(map[bool]float64{true: 1}[reward])
	}
	return a, nil
}

// shown returns what the policy reads of an answer: why an action was refused, the error or the result of a tool, the
// field that s.Observation names, the only text, or all as JSON.
func (e *episode) shown(a *answer) string {
	var wrong struct{ Message string }
	var rich struct{ Content []struct{ Text string } }
	result := a.Observation["result"]            // of a tool
	field := a.Observation[e.server.Observation] // nil if the settings name none
	delete(a.Observation, "metadata")
	switch {
	case a.refusal != "":
		return a.refusal
	case len(e.Functions) > 0 && strict.JSON(a.Observation["error"], &wrong) == nil && wrong.Message != "":
		return "error: " + wrong.Message
	case len(e.Functions) > 0 && strict.JSON(result, &rich) == nil && len(rich.Content) > 0:
		var parts []string
		for _, part := range rich.Content {
			parts = append(parts, part.Text)
		}
		return strings.Join(parts, "\n")
	case len(e.Functions) > 0 && result != nil:
		field = result
	case field == nil:
		field = onlyText(a.Observation)
	}
	text := ""
	if strict.JSON(field, &text) != nil {
		return string(field)
	}
	return text
}

// onlyText returns the text of an observation that has just one, or else the observation as JSON.
func onlyText(observation map[string]json.RawMessage) (field json.RawMessage) {
	texts := 0
	for _, value := range observation {
		if len(value) > 0 && value[0] == '"' {
			field = value
			texts++
		}
	}
	if texts != 1 && len(observation) > 0 {
		field, _ = json.Marshal(observation) // it was read from JSON
	}
	return field
}

// Close implements environment.Episode: the server ends a session whose connection ends.
func (e *episode) Close() error {
	e.conn.CloseNow()
	for range e.answers { // wait until the goroutine that reads has ended
	}
	return nil
}
