package openenv

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"onering/environment"
	"onering/internal/process"
)

// An episode is one session on the server.
type episode struct {
	server  *Server
	told    *facts
	tools   []environment.Function
	conn    *websocket.Conn
	answers chan []byte // what the server has said
	ended   error       // why it says no more, set before answers is closed
}

// errFull is why a server plays no further episode now.
var errFull = errors.New("it has no room for another session: start it with a larger max_concurrent_envs")

// dial opens a session and asks for the tools, which environments of MCP have. It waits while
// the server is full.
func (s *Server) dial(ctx context.Context, client *http.Client, told *facts) (*episode, error) {
	conn, _, err := websocket.Dial(ctx, strings.TrimRight(s.URL, "/")+"/ws", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(process.MaxAnswer)
	e := &episode{server: s, told: told, conn: conn, answers: make(chan []byte, 1)}
	go e.read()
	a, err := e.exchange(ctx, "step", map[string]any{"type": "list_tools"})
	if err == nil {
		var tools []struct {
			environment.Function
			Schema json.RawMessage `json:"input_schema"`
		}
		if list := a.Observation["tools"]; list != nil {
			err = json.Unmarshal(list, &tools)
		}
		for _, tool := range tools {
			tool.Parameters = tool.Schema
			e.tools = append(e.tools, tool.Function)
		}
	}
	if err == nil {
		return e, nil
	}
	e.Close()
	if !errors.Is(err, errFull) {
		return nil, err
	}
	select {
	case <-time.After(500 * time.Millisecond):
		return s.dial(ctx, client, told)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read reads what the server says. Its pings are answered while somebody reads, also between
// two steps.
func (e *episode) read() {
	defer close(e.answers)
	for {
		_, text, err := e.conn.Read(context.Background())
		if err != nil {
			e.ended = err
			return
		}
		e.answers <- text
	}
}

// An answer is what the server says of a reset or a step.
type answer struct {
	Observation map[string]json.RawMessage
	Reward      any
	Done        bool

	reward *float64
	failed string // what the policy reads of an action that the environment did not take
}

// exchange sends a message of a kind and returns the answer.
func (e *episode) exchange(ctx context.Context, kind string, data map[string]any) (*answer, error) {
	text, err := e.send(ctx, map[string]any{"type": kind, "data": data})
	if err != nil {
		return nil, err
	}
	var reply struct {
		Type string
		Data struct {
			answer
			Code, Message string
			Errors        json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, fmt.Errorf("the answer %s cannot be read: %w", process.Excerpt(text), err)
	}
	a := &reply.Data.answer
	switch reward := a.Reward.(type) {
	case float64:
		a.reward = &reward
	case bool:
		a.reward = new(float64)
		if reward {
			*a.reward = 1
		}
	}
	switch {
	case reply.Type == "observation":
	case reply.Data.Code == "VALIDATION_ERROR" || reply.Data.Code == "EXECUTION_ERROR":
		text := "error: " + reply.Data.Message + " " + string(reply.Data.Errors)
		a.failed = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), 2000)], ""))
	default:
		return nil, fmt.Errorf("it answers a %s with %s", kind, process.Excerpt(text))
	}
	return a, nil
}

// send sends a message and waits for what the server says to it.
func (e *episode) send(ctx context.Context, message map[string]any) ([]byte, error) {
	text, err := json.Marshal(message)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	if len(e.answers) > 0 {
		if text := <-e.answers; !full(text) {
			return nil, fmt.Errorf("it says %s, which nobody asked for", process.Excerpt(text))
		}
		return nil, errFull
	}
	if err := e.conn.Write(ctx, websocket.MessageText, text); err != nil {
		if full(<-e.answers) { // it said so and left
			return nil, errFull
		}
		return nil, err
	}
	select {
	case text, ok := <-e.answers:
		switch {
		case !ok:
			return nil, e.ended
		case full(text):
			return nil, errFull
		}
		return text, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// full says whether a server says that it has no room. It says so unasked.
func full(text []byte) bool {
	var reply struct{ Data struct{ Code string } }
	return json.Unmarshal(text, &reply) == nil && reply.Data.Code == "CAPACITY_REACHED"
}

// shown is what the policy reads of an answer.
func (e *episode) shown(a *answer) string {
	var wrong struct{ Message string }
	var rich struct{ Content []struct{ Text string } }
	result, field := a.Observation["result"], a.Observation[e.server.Observation]
	delete(a.Observation, "metadata")
	switch {
	case a.failed != "":
		return a.failed
	case len(e.tools) > 0 && json.Unmarshal(a.Observation["error"], &wrong) == nil && wrong.Message != "":
		return "error: " + wrong.Message
	case len(e.tools) > 0 && json.Unmarshal(result, &rich) == nil && len(rich.Content) > 0:
		var parts []string
		for _, part := range rich.Content {
			parts = append(parts, part.Text)
		}
		return strings.Join(parts, "\n")
	case len(e.tools) > 0 && result != nil:
		field = result
	case field == nil:
		field = onlyText(a.Observation)
	}
	text := ""
	if json.Unmarshal(field, &text) != nil {
		return string(field)
	}
	return text
}

// onlyText is the one text of an observation, or else all of it.
func onlyText(observation map[string]json.RawMessage) (field json.RawMessage) {
	texts := 0
	for _, value := range observation {
		if len(value) > 0 && value[0] == '"' {
			field = value
			texts++
		}
	}
	if texts != 1 && len(observation) > 0 {
		field, _ = json.Marshal(observation) // it was JSON
	}
	return field
}

// Close implements environment.Episode: the server ends a session whose connection ends.
func (e *episode) Close() error {
	e.conn.CloseNow()
	for range e.answers { // until its reader has ended
	}
	return nil
}
