package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"onering/environment"
	"onering/internal/process"
	"onering/internal/remote"
)

// A session is one with a server, and the process of a server that was started for it.
type session struct {
	*sdk.ClientSession
	tools   []environment.Function
	process *process.Process // nil if the server is reached by HTTP
	gone    chan struct{}    // closed when the session has ended
	once    sync.Once
}

// mostTools bounds the list of a server.
const mostTools = 1000

// connect starts or reaches the server and asks for its tools.
func (s *Server) connect(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fresh := &session{gone: make(chan struct{})}
	transport, err := s.transport(fresh)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "onering", Version: "1"}, &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
	if fresh.ClientSession, err = client.Connect(ctx, transport, nil); err != nil {
		err = fresh.reason(err)
		fresh.end(err)
		return nil, fmt.Errorf("no session can be begun: %w", err)
	}
	go func() {
		fresh.Wait()
		close(fresh.gone)
	}()
	if err := fresh.list(ctx, s.Tools); err != nil {
		err = fresh.reason(err)
		fresh.end(err)
		return nil, err
	}
	return fresh, nil
}

// transport returns the way to the server, which is started if it is a command.
func (s *Server) transport(fresh *session) (sdk.Transport, error) {
	if s.URL != "" {
		token, err := remote.Token("environment", s.TokenEnv)
		return &sdk.StreamableClientTransport{
			Endpoint: s.URL, HTTPClient: remote.Client(token, process.MaxAnswer), MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: process.MaxAnswer,
		}, err
	}
	reader, writer := io.Pipe()
	server, err := process.Start("server", exec.Command(s.Command[0], s.Command[1:]...), func(stdout io.Reader) {
		_, err := io.Copy(writer, stdout)
		writer.CloseWithError(err)
		io.Copy(io.Discard, stdout)
	})
	if err != nil {
		return nil, err
	}
	fresh.process = server
	return &sdk.IOTransport{Reader: reader, Writer: server.Stdin, MaxLineLength: process.MaxAnswer}, nil
}

// list asks for the tools, of which allowed are taken, or all if it is empty.
func (s *session) list(ctx context.Context, allowed []string) error {
	missing := slices.Clone(allowed)
	for tool, err := range s.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("its tools are not known: %w", err)
		}
		if len(allowed) > 0 && !slices.Contains(allowed, tool.Name) {
			continue
		}
		schema, err := json.Marshal(tool.InputSchema)
		if err != nil {
			return err
		}
		s.tools = append(s.tools, environment.Function{Name: tool.Name, Description: tool.Description, Parameters: schema})
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
	return nil
}

// ended says whether the session has ended, or the process of its server.
func (s *session) ended() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// reason returns why a process has ended in place of an error of the session with it.
func (s *session) reason(err error) error {
	if s.process == nil {
		return err
	}
	select {
	case <-s.process.Ended:
		return s.process.Err()
	case <-time.After(100 * time.Millisecond): // the end of its output comes before its own
		return err
	}
}

// end ends the session and the process: by force because of err, if it is not nil.
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
