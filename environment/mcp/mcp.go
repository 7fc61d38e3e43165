// Package mcp is the environment of a policy that calls the tools of a server of the Model
// Context Protocol: a program of the user, over its standard input and output, or a server at
// an address, over streamable HTTP. An episode ends with the first turn that calls no tool.
package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
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

// A Server answers calls of tools through a session with an MCP server. The session
// begins when it is first needed, and again after the server has died.
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
	default:
		errs = append(errs, process.Check("command", s.Command, "server.py"))
	}
	return errors.Join(append(errs, remote.CheckTokenEnv(s.TokenEnv))...)
}

// Ready begins the session, and returns an error if it cannot.
func (s *Server) Ready(ctx context.Context) error {
	if len(s.Command) > 0 {
		if err := process.Find("environment.command", s.Command); err != nil {
			return err
		}
	}
	_, err := s.session(ctx)
	return err
}

// withName prefixes an error with the server.
func (s *Server) withName(err error) error {
	return fmt.Errorf("environment %q: %s: %w", "mcp", cmp.Or(s.URL, fmt.Sprintf("%q", strings.Join(s.Command, " "))), err)
}

// session returns the session that episodes share, after beginning it if there is none.
func (s *Server) session(ctx context.Context) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared != nil && !s.shared.ended() {
		return s.shared, ctx.Err()
	}
	fresh, err := s.connect(ctx)
	if err == nil {
		s.shared = fresh
	}
	return fresh, err
}

// Holds implements environment.Holder.
func (s *Server) Holds() bool { return s.PerEpisode }

// Begin implements environment.Environment. A session of the episode's own begins with its first turn.
func (s *Server) Begin(ctx context.Context, _ environment.Start) (environment.Episode, error) {
	shared, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	return &episode{server: s, session: shared, Functions: shared.tools}, nil
}

// Close ends the session that episodes share. A later Begin starts another one.
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
	environment.Functions
	server  *Server
	session *session
	isOwn   bool  // the session belongs to this episode alone
	cutOff  error // why the episode did not wait for a call's answer
}

// Step implements environment.Episode. With PerEpisode the episode's session begins at its first turn. A server that
// fails loses its session, and the next episode begins another.
func (e *episode) Step(ctx context.Context, t environment.Turn) (environment.Observation, error) {
	if e.server.PerEpisode && !e.isOwn { // until now the session is the one that gave the episode its tools
		own, err := e.server.connect(ctx)
		if err != nil {
			return environment.Observation{}, err
		}
		e.session, e.isOwn = own, true
	}
	o, err := e.Answer(ctx, t, e.answer)
	switch {
	case err != nil && ctx.Err() != nil:
		e.cutOff = err // Close looks whether the server still answers
	case err != nil:
		e.session.end(err)
		err = e.server.withName(err)
	}
	return o, err
}

// answer answers a call. An error is the server's and ends the episode; the policy reads what is wrong with its call.
func (e *episode) answer(ctx context.Context, call environment.Call) (string, error) {
	var arguments map[string]any
	if json.Unmarshal(call.Arguments, &arguments) != nil || arguments == nil {
		return "error: the arguments must be an object", nil
	}
	result, err := e.session.CallTool(ctx, &sdk.CallToolParams{Name: call.Name, Arguments: arguments})
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && !e.session.ended() { // the server refuses the call
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

// textOf returns the text in a result, and marks where something other than text was.
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
	if len(parts) == 0 && result.StructuredContent != nil {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.Encode(result.StructuredContent) // it was read from JSON
		parts = []string{strings.TrimSpace(text.String())}
	}
	return strings.Join(parts, "\n")
}

// patience is how long a server may take to answer after a call was cut off.
var patience = 2 * time.Second

// Close implements environment.Episode. It ends a server that does not answer after a
// call was cut off, so that no later episode waits for that server.
func (e *episode) Close() error {
	if e.isOwn {
		e.session.end(e.cutOff)
	} else if e.cutOff != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.session.Ping(ctx, nil); err != nil {
			e.session.end(fmt.Errorf("it does not answer after a call was cut off: %w", err))
		}
	}
	return nil
}

// A session is a connection to a server, with the process of a server that was started for it.
type session struct {
	*sdk.ClientSession
	tools      environment.Functions
	transcript transcript
	process    *process.Process // nil if the server is reached by HTTP
	gone       context.Context  // ended by leave, at the end of the session
	leave      func()
	once       sync.Once
}

// mostTools bounds how many tools a server may list.
const mostTools = 1000

// connect starts or reaches the server, asks for its tools and returns the session. After an error it ends what it began.
func (s *Server) connect(ctx context.Context) (fresh *session, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fresh = new(session)
	fresh.gone, fresh.leave = context.WithCancel(context.Background()) // it outlives ctx, which is that of one call
	transport, err := s.transport(fresh)
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	noCapabilities := &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}} // nil would promise the server a list of roots
	client := sdk.NewClient(&sdk.Implementation{Name: "onering", Version: "1"}, noCapabilities)
	if err == nil {
		if fresh.ClientSession, err = client.Connect(limited, transport, nil); err != nil {
			err = fmt.Errorf("no session can be begun: %w", fresh.reason(err))
		}
	}
	if err == nil {
		go func() { // so that session.ended is true once the server has ended the session
			fresh.Wait()
			fresh.leave()
		}()
		if err = fresh.listTools(limited, s.Tools); err == nil {
			return fresh, nil
		}
		err = fresh.reason(err)
	}
	fresh.end(err)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, s.withName(err)
}

// transport returns the connection to the server, which is started if it is a command. What the server says is also
// recorded in fresh.transcript, where listTools finds the schemas as the server wrote them.
func (s *Server) transport(fresh *session) (sdk.Transport, error) {
	if s.URL != "" {
		client, err := remote.Client("environment", s.TokenEnv, process.MaxAnswer)
		if err == nil {
			client.Transport = &recorder{client.Transport, &fresh.transcript}
		}
		return &sdk.StreamableClientTransport{ // without reconnecting, and without a stream of messages that nobody asked for
			Endpoint: s.URL, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: process.MaxAnswer,
		}, err
	}
	reader, writer := io.Pipe()
	server, err := process.Start("server", exec.Command(s.Command[0], s.Command[1:]...), func(_ *process.Process, stdout io.Reader) {
		_, err := io.Copy(writer, io.TeeReader(stdout, &fresh.transcript))
		writer.CloseWithError(err)
		io.Copy(io.Discard, stdout) // a server that writes on after the session's end must not block
	})
	if err != nil {
		return nil, err
	}
	fresh.process = server
	return &sdk.IOTransport{Reader: reader, Writer: server.Stdin, MaxLineLength: process.MaxAnswer}, nil
}

// listTools asks for the tools and sets s.tools to those in allowed, or to all if allowed is empty. Their schemas are
// those of the transcript, as the server wrote them: the package of the protocol sorts their keys.
func (s *session) listTools(ctx context.Context, allowed []string) error {
	missing := slices.Clone(allowed)
	for tool, err := range s.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("its tools are not known: %w", err)
		}
		if len(allowed) > 0 && !slices.Contains(allowed, tool.Name) {
			continue
		}
		s.tools = append(s.tools, environment.Function{Name: tool.Name, Description: tool.Description})
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == tool.Name })
		if len(s.tools) > mostTools {
			return fmt.Errorf("it has more than %d tools", mostTools)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("it has no tool %q, which environment.tools names", missing[0])
	case len(s.tools) == 0:
		return errors.New("it has no tools")
	}
	schemas := s.transcript.schemas()
	for i, tool := range s.tools {
		if s.tools[i].Parameters = schemas[tool.Name]; s.tools[i].Parameters == nil {
			return fmt.Errorf("the schema of its tool %q is not in its list of tools", tool.Name)
		}
	}
	return s.tools.Check()
}

// A transcript is what a server says until its tools are known. The package of the protocol sorts the
// keys of schemas, and the policy should read what any other client of the server sends.
type transcript struct {
	mu       sync.Mutex
	text     []byte
	complete bool
}

// Write implements io.Writer.
func (h *transcript) Write(said []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.complete {
		h.text = append(h.text, said...)
	}
	return len(said), nil
}

// eventFields match all but the data of server-sent events: "data:" itself, and lines such as "event: message".
var eventFields = regexp.MustCompile(`(?m)^(data:|(event|id|retry)?:.*$)`)

// schemas returns the schemas of tools by name, as they stand in the recorded messages, which are JSON one after the
// other, over HTTP as the data of server-sent events. It ends the record.
func (h *transcript) schemas() map[string]json.RawMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]json.RawMessage{}
	messages := json.NewDecoder(bytes.NewReader(eventFields.ReplaceAll(h.text, nil)))
	h.complete, h.text = true, nil // Write records no more
	for {
		var m struct {
			Result struct {
				Tools []struct {
					Name   string          `json:"name"`
					Schema json.RawMessage `json:"inputSchema"`
				} `json:"tools"`
			} `json:"result"`
		}
		err := messages.Decode(&m)
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !other { // other: a message whose result is no list of tools
			return all
		}
		for _, tool := range m.Result.Tools {
			all[tool.Name] = tool.Schema
		}
	}
}

// A recorder records the bodies of a server's answers.
type recorder struct {
	http.RoundTripper
	transcript *transcript
}

// RoundTrip implements http.RoundTripper.
func (h *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(response.Body, h.transcript), response.Body}
	}
	return response, err
}

// ended says whether the session or the process of its server has ended.
func (s *session) ended() bool { return s.gone.Err() != nil }

// reason returns why the server's process has ended, if it has, in place of an error of the session.
func (s *session) reason(err error) error {
	if s.process == nil {
		return err
	}
	select {
	case <-s.process.Ended:
		return s.process.Err
	case <-time.After(100 * time.Millisecond): // the end of its output arrives before the end of the process
		return err
	}
}

// end ends the session and the process, by force if err is not nil.
func (s *session) end(err error) {
	s.once.Do(func() {
		switch {
		case s.process == nil:
		case err == nil:
			s.process.Stop()
		default:
			s.process.Fail(err)
			<-s.process.Ended
		}
		if s.ClientSession != nil {
			s.ClientSession.Close()
		}
	})
}
