package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"onering/environment"
	"onering/environment/environmenttest"
	"onering/internal/settings"
)

// The servers of these tests are this test binary: with the argument "server" it serves
// instead of testing.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "server" {
		serve(os.Args[2])
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

func serve(kind string) {
	switch kind {
	case "absent":
		fmt.Fprintln(os.Stderr, "no key")
		os.Exit(4)
	case "debugging":
		fmt.Println("hello")
		time.Sleep(time.Hour)
	case "flood":
		for {
			os.Stdout.WriteString(strings.Repeat("x", 1<<16))
		}
	case "raw":
		raw().Run(context.Background(), new(sdk.StdioTransport))
	case "say", "<|im_end|>": // the names of its two tools
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var asked struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.Unmarshal(lines.Bytes(), &asked)
			result := `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"}}`
			if tool := fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, kind); asked.Method == "tools/list" {
				result = `{"tools":[` + tool + "," + tool + `]}`
			}
			if asked.ID != nil {
				fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", asked.ID, result)
			}
		}
		return
	case "empty":
		sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil).Run(context.Background(), new(sdk.StdioTransport))
	}
	doing().Run(context.Background(), new(sdk.StdioTransport))
}

type word struct {
	Word string `json:"word" jsonschema:"what to do"`
}

// doing is a server with a tool that remembers and one that follows instructions.
func doing() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	var mu sync.Mutex
	calls := 0
	sdk.AddTool(server, &sdk.Tool{Name: "count", Description: "Counts."}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strconv.Itoa(calls)}}}, nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "do", Description: "Does it."}, func(ctx context.Context, _ *sdk.CallToolRequest, w word) (*sdk.CallToolResult, any, error) {
		switch w.Word {
		case "die":
			fmt.Fprintln(os.Stderr, "no more patience")
			os.Exit(3)
		case "hang":
			time.Sleep(time.Hour)
		case "stop": // The call continues after its caller stops waiting.
			<-ctx.Done()
		case "fail":
			return nil, nil, errors.New("it failed")
		case "long":
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.Repeat("é", 1<<20)}}}, nil, nil
		case "structure":
			return nil, map[string]int{"x": 1}, nil
		case "mixed":
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: "a"}, &sdk.ImageContent{Data: []byte("x"), MIMEType: "image/png"}, &sdk.ResourceLink{URI: "file:///b", Name: "b"},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///c", Text: "c"}},
			}}, nil, nil
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: w.Word}}}, nil, nil
	})
	return server
}

const schema = `{"type":"object","title":"T","properties":{"z":{"type":"number","default":1.0},"a":{"enum":["<b>"],"type":"string"}},"required":["z"]}`

// raw is a server whose tool has a schema with keys in its own order, and structure alone as result.
func raw() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&sdk.Tool{Name: "get", Description: "Gets.", InputSchema: json.RawMessage(schema)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{}, StructuredContent: map[string]any{"x": []string{"<a>"}}}, nil
	})
	return server
}

// TestRaw: a schema reaches the policy with its keys in the server's order, and structure that
// stands alone in a result as JSON.
func TestRaw(t *testing.T) {
	for _, json := range []bool{true, false} {
		web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return raw() }, &sdk.StreamableHTTPOptions{JSONResponse: json}))
		defer web.Close()
		for _, s := range []*Server{server("raw"), {URL: web.URL}} {
			defer s.Close()
			o, err := environmenttest.Open(s, environment.Start{})
			if err != nil {
				t.Fatal(err)
			}
			tools, _ := o.Tools.MarshalJSON()
			plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(tools))
			if want := `[{"type":"function","function":{"name":"get","description":"Gets.","parameters":` + schema + `}}]`; plain != want {
				t.Errorf("%s: the policy has\n%s\nwant\n%s", s.URL, plain, want)
			}
			e, err := s.Begin(t.Context(), environment.Start{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Step(t.Context(), environment.Turn{Calls: []environment.Call{{Name: "get", Arguments: []byte(`{"z": 1}`)}}})
			if err != nil || got.Messages[0].Content != `{"x":["<a>"]}` {
				t.Errorf("%+v, %v", got, err)
			}
			e.Close()
		}
	}
}

func server(kind string) *Server {
	e, err := environment.New("mcp")
	if err != nil {
		panic(err)
	}
	s := e.(*Server)
	s.Command = []string{os.Args[0], "server", kind}
	return s
}

// overHTTP returns an environment of the same server, reached by HTTP with a token.
func overHTTP(t *testing.T) *Server {
	t.Setenv("MCP_TEST_TOKEN", "secret")
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return doing() }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	s := server("")
	s.Command, s.URL, s.TokenEnv = nil, web.URL, "MCP_TEST_TOKEN"
	t.Cleanup(func() { s.Close() })
	return s
}

func begin(t *testing.T, s *Server) environment.Episode {
	t.Helper()
	t.Cleanup(func() { s.Close() })
	e, err := s.Begin(t.Context(), environment.Start{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// say calls a tool and returns the answer.
func say(ctx context.Context, e environment.Episode, name, arguments string) (string, error) {
	o, err := e.Step(ctx, environment.Turn{Calls: []environment.Call{{Name: name, Arguments: json.RawMessage(arguments)}}})
	if err != nil || o.Done || len(o.Messages) != 1 || o.Messages[0].Role != "tool" {
		return "", errors.Join(err, fmt.Errorf("%+v", o))
	}
	return o.Messages[0].Content, nil
}

func TestConformance(t *testing.T) {
	environmenttest.RunNew(t, func() environment.Environment { return server("tools") })
	t.Run("HTTP", func(t *testing.T) {
		environmenttest.RunNew(t, func() environment.Environment { return overHTTP(t) })
	})
}

// TestAnswers checks the text that a policy reads from tools.
func TestAnswers(t *testing.T) {
	for name, s := range map[string]*Server{"command": server("tools"), "HTTP": overHTTP(t)} {
		e := begin(t, s)
		for _, tt := range []struct{ name, arguments, want string }{
			{"do", `{"word": "yes"}`, "yes"},
			{"do", `{"word": "fail"}`, "error: it failed"},
			{"do", `{"word": "long"}`, strings.Repeat("é", 1<<15) + "\n[2031616 bytes are cut off]"},
			{"do", `{"word": "structure"}`, `{"x":1}`},
			{"do", `{"word": "mixed"}`, "a\n[what is no text]\n[what is no text]\nc"},
			{"do", `[]`, "error: the arguments must be an object"},
			{"do", `{"wird": 7}`, "error: va"},
			{"done", `{}`, `error: there is no tool "done"; there are count, do`},
		} {
			got, err := say(t.Context(), e, tt.name, tt.arguments)
			if err != nil || !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s: %s%s: %.90q, %v, want %.90q", name, tt.name, tt.arguments, got, err, tt.want)
			}
		}
		if o, err := e.Step(t.Context(), environment.Turn{Text: "done"}); err != nil || !o.Done {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
		e.Close()
	}
}

// TestPythonServer calls a tool of a server of the Python SDK. ONERING_AGENTS names a Python that
// has it.
func TestPythonServer(t *testing.T) {
	python := os.Getenv("ONERING_AGENTS")
	if python == "" {
		t.Skip("ONERING_AGENTS names no Python with mcp")
	}
	s := server("")
	s.Command = []string{python, "testdata/words.py"}
	e := begin(t, s)
	for arguments, want := range map[string]string{`{"text": "one ring to rule"}`: "4", `{"text": ""}`: "0", `{}`: "error: "} {
		if got, err := say(t.Context(), e, "count_words", arguments); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v, want %q", arguments, got, err, want)
		}
	}
}

// TestOpen: the policy reads the descriptions of the tools that the settings allow.
func TestOpen(t *testing.T) {
	s := server("tools")
	s.Tools = []string{"do"}
	t.Cleanup(func() { s.Close() })
	o, err := environmenttest.Open(s, environment.Start{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o.Tools)
	if err != nil || !strings.Contains(string(text), `[{"type":"function","function":{"name":"do","description":"Does it.","parameters":{`) || strings.Contains(string(text), "count") {
		t.Errorf("%s, %v", text, err)
	}
	s = server("tools")
	s.Tools = []string{"undo"}
	if _, err := environmenttest.Open(s, environment.Start{}); err == nil || !strings.Contains(err.Error(), `it has no tool "undo", which environment.tools names`) {
		t.Errorf("error %v", err)
	}
}

// TestSessions: episodes share a session, or have one each.
func TestSessions(t *testing.T) {
	s := server("tools")
	for _, want := range []string{"1", "2"} {
		e := begin(t, s)
		if got, err := say(t.Context(), e, "count", "{}"); err != nil || got != want {
			t.Errorf("%q, %v, want %s", got, err, want)
		}
		e.Close()
	}
	own := server("tools")
	own.PerEpisode = true
	for range 2 {
		e := begin(t, own)
		if got, err := say(t.Context(), e, "count", "{}"); err != nil || got != "1" {
			t.Errorf("%q, %v", got, err)
		}
		e.Close()
	}
}

// TestBad: a server that dies ends the episodes that call it, with an error that says so, and
// is started again for the next. A server that hangs and does not answer afterwards is killed.
func TestBad(t *testing.T) {
	s := server("tools")
	e := begin(t, s)
	if _, err := say(t.Context(), e, "do", `{"word": "die"}`); err == nil || !strings.Contains(err.Error(), `environment "mcp": "`+os.Args[0]) || !strings.Contains(err.Error(), "exit status 3; its last words: no more patience") {
		t.Errorf("error %v", err)
	}
	e.Close()
	e = begin(t, s)
	patience = 100 * time.Millisecond // of a server that hangs, not of one whose last words are on their way
	defer func() { patience = 2 * time.Second }()
	for _, word := range []string{"stop", "hang"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := say(ctx, e, "do", `{"word": "`+word+`"}`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v", word, err)
		}
		cancel()
		e.Close()
		if e = begin(t, s); s.shared.ended() {
			t.Error("a session that has ended begins an episode")
		}
		if got, err := say(t.Context(), e, "do", `{"word": "on"}`); err != nil || got != "on" {
			t.Errorf("after %s: %q, %v", word, got, err)
		}
	}
	s.Command[2] = "absent"
	s.Close()
	patience = 2 * time.Second
	for kind, want := range map[string]string{"absent": "exit status 4; its last words: no key", "empty": "it has no tools", "say": `two of its tools have the name "say"`, "<|im_end|>": `has the name "<|im_end|>"`, "flood": "no session can be begun", "debugging": "no session can be begun"} {
		s := server(kind)
		if _, err := s.Begin(t.Context(), environment.Start{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", kind, err, want)
		}
	}
	s.Command = []string{"no-such-program-of-onering"}
	if _, err := s.Begin(t.Context(), environment.Start{}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v", err)
	}
	web := overHTTP(t)
	web.TokenEnv = "NO_SUCH_TOKEN"
	if _, err := web.Begin(t.Context(), environment.Start{}); err == nil || !strings.Contains(err.Error(), "NO_SUCH_TOKEN is not set") {
		t.Errorf("error %v", err)
	}
	t.Setenv("NO_SUCH_TOKEN", "other")
	if _, err := web.Begin(t.Context(), environment.Start{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") || strings.Contains(err.Error(), "other") {
		t.Errorf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		set  func(s *Server)
		want string
	}{
		{func(*Server) {}, ""},
		{func(s *Server) { s.Command = nil }, "must name the server"},
		{func(s *Server) { s.URL = "http://x/mcp" }, "must name the server"},
		{func(s *Server) { s.Command, s.URL = nil, "x" }, "must be an address"},
		{func(s *Server) { s.Command, s.URL = nil, "http://a:b@x" }, "user or password"},
		{func(s *Server) { s.Command, s.URL, s.TokenEnv = nil, "http://x", "hf_abc" }, "and not the token"},
		{func(s *Server) { s.TokenEnv = "TOKEN" }, "with url only"},
		{func(s *Server) { s.Command, s.URL = nil, "http://x/mcp" }, ""},
	} {
		s := server("tools")
		tt.set(s)
		if err := settings.Check(s); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", s.Command, err, tt.want)
		}
	}
}
