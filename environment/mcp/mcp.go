// Package mcp is the environment of a policy that calls the tools of a server of the Model
// Context Protocol, which a program of the user's is, over its standard input and output, or
// which is reached by streamable HTTP. An episode ends with the first turn that calls none.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"onering/environment"
	"onering/internal/process"
	"onering/internal/remote"
	"onering/internal/settings"
)

func init() {
	environment.Register("mcp", func() environment.Environment { return new(Server) })
}

// A Server answers calls of tools by a session with an MCP server. The session is begun when
// it is first needed, and again after the server has died.
type Server struct {
	Command    []string `toml:"command" help:"the server and its arguments, such as [\"python3\", \"server.py\"], if onering is to start it"`
	URL        string   `toml:"url" help:"address of a server that is running, such as http://localhost:8000/mcp, in place of command"`
	TokenEnv   string   `toml:"token_env" help:"name of the environment variable with the bearer token for the server at url; the token itself is never written anywhere"`
	Tools      []string `toml:"tools" help:"those of the server's tools that the policy has; without any it has all"`
	PerEpisode bool     `toml:"per_episode" help:"begin a session, and start the command, for each episode, for servers that remember; else all episodes share one"`

	mu     sync.Mutex
	shared *session
}

// About is the environment's line in lists.
func (*Server) About() string {
	return "the tools of an MCP server, which is started or reached by HTTP"
}

// Validate asks for a command or an address.
func (s *Server) Validate() error {
	var errs []error
	switch {
	case (len(s.Command) == 0) == (s.URL == ""):
		errs = append(errs, &settings.Error{Key: "command", Value: s.Command, Remedy: `must name the server, such as ["python3", "server.py"], or url its address`})
	case s.URL != "":
		errs = append(errs, remote.CheckAddress("url", s.URL, "http://localhost:8000/mcp"))
	case s.TokenEnv != "":
		errs = append(errs, &settings.Error{Key: "token_env", Value: s.TokenEnv, Remedy: "has a meaning with url only"})
	case strings.TrimSpace(s.Command[0]) == "":
		errs = append(errs, &settings.Error{Key: "command", Value: s.Command, Remedy: "must name a program"})
	}
	return errors.Join(append(errs, remote.CheckTokenEnv(s.TokenEnv))...)
}

// Ready begins the session, and says what keeps it from that.
func (s *Server) Ready(ctx context.Context) error {
	if len(s.Command) > 0 {
		if err := process.Find("environment.command", s.Command); err != nil {
			return err
		}
	}
	_, err := s.session(ctx, false)
	return err
}

// named puts the server in front of an error.
func (s *Server) named(err error) error {
	return fmt.Errorf("environment %q: %s: %w", "mcp", cmp.Or(s.URL, fmt.Sprintf("%q", strings.Join(s.Command, " "))), err)
}

// session returns the session that episodes share, after beginning it if there is none, or
// else one of an episode's own.
func (s *Server) session(ctx context.Context, own bool) (*session, error) {
	if !own {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.shared != nil && !s.shared.ended() {
			return s.shared, ctx.Err()
		}
	}
	fresh, err := s.connect(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, s.named(err)
	case !own:
		s.shared = fresh
	}
	return fresh, nil
}

// Open implements environment.Opener: it describes the tools.
func (s *Server) Open(ctx context.Context, _ environment.Start) (o environment.Opening, err error) {
	shared, err := s.session(ctx, false)
	if err != nil {
		return o, err
	}
	o.Tools, err = environment.Functions(shared.tools)
	return o, err
}

// Begin implements environment.Environment.
func (s *Server) Begin(ctx context.Context, _ environment.Start) (environment.Episode, error) {
	with, err := s.session(ctx, s.PerEpisode)
	if err != nil {
		return nil, err
	}
	return &episode{server: s, session: with}, nil
}

// Close ends the session that episodes share. Begin begins another one.
func (s *Server) Close() error {
	s.mu.Lock()
	shared := s.shared
	s.shared = nil
	s.mu.Unlock()
	if shared != nil {
		shared.end(nil)
	}
	return nil
}

type episode struct {
	server  *Server
	session *session
	cut     error // why a call was not waited for
}

// Step implements environment.Episode.
func (e *episode) Step(ctx context.Context, t environment.Turn) (environment.Observation, error) {
	o, err := environment.Answer(ctx, t, e.session.tools, e.answer)
	switch {
	case err != nil && ctx.Err() != nil:
		e.cut = err
	case err != nil:
		e.session.end(err)
		err = e.server.named(err)
	}
	return o, err
}

// answer answers a call. An error is one of the server's that ends the episode; what is wrong
// with the call is read by the policy.
func (e *episode) answer(ctx context.Context, call environment.Call) (string, error) {
	var arguments map[string]any
	if json.Unmarshal(call.Arguments, &arguments) != nil || arguments == nil {
		return "error: the arguments must be an object", nil
	}
	result, err := e.session.CallTool(ctx, &sdk.CallToolParams{Name: call.Name, Arguments: arguments})
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && !e.session.ended() {
		return "error: " + refused.Message, nil
	}
	if err != nil {
		return "", e.session.reason(err)
	}
	text := textOf(result)
	if result.IsError {
		text = "error: " + text
	}
	return text, nil
}

// textOf returns what of a result is text, and says where something else was.
func textOf(result *sdk.CallToolResult) string {
	var parts []string
	for _, content := range result.Content {
		part := "[what is no text]"
		if c, ok := content.(*sdk.TextContent); ok {
			part = c.Text
		} else if c, ok := content.(*sdk.EmbeddedResource); ok && c.Resource != nil && c.Resource.Text != "" {
			part = c.Resource.Text
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\n")
}

// patience is the time that a server has to answer after a call was cut off.
var patience = 2 * time.Second

// Close implements environment.Episode. A server that does not answer after a call was cut
// off is ended, so that no later episode waits for it.
func (e *episode) Close() error {
	if e.server.PerEpisode {
		e.session.end(e.cut)
	} else if e.cut != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.session.Ping(ctx, nil); err != nil {
			e.session.end(fmt.Errorf("it does not answer after a call was cut off: %w", err))
		}
	}
	return nil
}
