package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"onering/data"
	"onering/environment"
	"onering/environment/environmenttest"
	"onering/internal/settings"
)

// A fake speaks as openenv 0.10.0 does. A game answers a step with the action's text, or
// with reply's result for this text.
type fake struct {
	schema   string // of the action
	tools    string // the tools of an environment of MCP, "" if the environment is another
	reply    func(action map[string]any) string
	room     int64 // the most sessions at once, 0 for any number
	sessions atomic.Int64
	resets   atomic.Pointer[string] // the newest
}

const refusal = `{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_ERROR","errors":[{"type":"missing"}]}}`

func observation(fields, rest string) string {
	return `{"type":"observation","data":{"observation":{"metadata":{"x":1},` + fields + `},` + rest + `,"metadata":{"x":1}}}`
}

func (f *fake) serve(t *testing.T) *Server {
	if f.schema == "" {
		f.schema = `{"properties":{"metadata":{"type":"object"},"message":{"type":"string"}},"required":["message"]}`
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /schema", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"action":%s}`, f.schema) })
	mux.HandleFunc("GET /list_environments", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `["a game"]`) })
	mux.HandleFunc("POST /a game/num_tasks", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Split string }
		if json.NewDecoder(r.Body).Decode(&asked); asked.Split != "train" {
			http.Error(w, `{"detail":"unknown split"}`, http.StatusBadRequest)
			return
		}
		io.WriteString(w, `{"num_tasks": 10}`)
	})
	mux.HandleFunc("GET /ws", f.session)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return &Server{URL: web.URL + "/"}
}

func (f *fake) session(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 24)
	say := func(text string) error { return conn.Write(r.Context(), websocket.MessageText, []byte(text)) }
	defer f.sessions.Add(-1)
	if n := f.sessions.Add(1); f.room > 0 && n > f.room {
		say(`{"type":"error","data":{"message":"at capacity","code":"CAPACITY_REACHED","active_sessions":1}}`)
		return
	}
	for {
		_, text, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		var m struct {
			Type string
			Data map[string]any
		}
		if json.Unmarshal(text, &m) != nil {
			return
		}
		answer := refusal
		switch action, _ := m.Data["message"].(string); {
		case m.Type == "reset":
			text := string(text)
			f.resets.Store(&text)
			answer = observation(`"text":"begin","length":0`, `"reward":0.0,"done":false`)
		case m.Data["type"] == "list_tools" && f.tools != "":
			answer = observation(`"tools":`+f.tools, `"reward":null,"done":false`)
		case m.Data["type"] == "list_tools":
		case f.reply != nil:
			answer = f.reply(m.Data)
		default:
			quoted, _ := json.Marshal(action)
			answer = observation(`"text":`+string(quoted)+`,"length":1`, `"reward":0.5,"done":false`)
		}
		if answer == "hang" {
			<-r.Context().Done()
		}
		if answer == "die" || say(answer) != nil {
			return
		}
	}
}

func begin(t *testing.T, s *Server) environment.Episode {
	t.Helper()
	start := environment.Start{Problem: data.Problem{ID: "p"}}
	e, err := s.Begin(t.Context(), start)
	for errors.Is(err, environment.ErrFull) { // the server closes the last session
		e, err = s.Begin(t.Context(), start)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

const oneTool = `[{"name":"calculator","description":"Computes.","input_schema":{"type":"object"}}]`

// result answers a call as an environment of MCP does.
func result(action map[string]any) string {
	if action["tool_name"] != "calculator" {
		return observation(`"result":null,"error":{"error_type":"tool_not_found","message":"no such tool"}`, `"reward":null,"done":false`)
	}
	return observation(`"tool_name":"calculator","result":{"content":[{"type":"text","text":"4"},{"type":"text","text":"so"}],"data":4},"error":null`, `"reward":true,"done":false`)
}

func TestConformance(t *testing.T) {
	environmenttest.RunNew(t, func() environment.Environment { return new(fake).serve(t) })
	t.Run("tools", func(t *testing.T) {
		environmenttest.RunNew(t, func() environment.Environment { return (&fake{tools: oneTool, reply: result}).serve(t) })
	})
}

// TestText: the turn is the field of the action that the schema asks for.
func TestText(t *testing.T) {
	echo := func(action map[string]any) string {
		text, _ := json.Marshal(action)
		return observation(`"all":`+string(text)+`,"n":1`, `"reward":null,"done":true`)
	}
	for _, tt := range []struct{ schema, action, text, want string }{
		{"", "", "hi", `{"message":"hi"}`},
		{`{"properties":{"move":{"type":"integer"}}}`, "", " 3 ", `{"move":3}`},
		{`{"properties":{"move":{"type":"integer"}}}`, "", "north", `{"move":"north"}`},
		{`{"properties":{"move":{"enum":["LEFT","RIGHT"],"type":"string"}}}`, "", " RIGHT\n", `{"move":"RIGHT"}`},
		{`{"$defs":{"M":{"enum":["LEFT"]}},"properties":{"move":{"$ref":"#/$defs/M"}}}`, "", "LEFT\n", `{"move":"LEFT"}`},
		{"", "", " RIGHT\n", `{"message":" RIGHT\n"}`},
		{`{"properties":{"code":{"type":"string"},"limit":{"type":"integer"}},"required":["code"]}`, "", "3", `{"code":"3"}`},
		{`{"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`, "", `I move {"a": "x", "b": 1}.`, `{"a":"x","b":1}`},
		{`{"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`, "", "} {", "error: write the action as a JSON object with a, b"},
		{`{"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`, "a", "x", `{"a":"x"}`},
	} {
		f := &fake{schema: tt.schema, reply: echo}
		s := f.serve(t)
		s.Action, s.Observation = tt.action, "all"
		o, err := begin(t, s).Step(t.Context(), environment.Turn{Text: tt.text})
		if err != nil || len(o.Messages) != 1 || o.Messages[0].Content != tt.want || o.Messages[0].Role != "user" || o.Done == strings.HasPrefix(tt.want, "error") || o.Reward != nil {
			t.Errorf("%s %q: %+v, %v, want %s", tt.schema, tt.text, o, err, tt.want)
		}
	}
}

// TestTools: tools are described and called, and their rewards add up.
func TestTools(t *testing.T) {
	s := (&fake{tools: oneTool, reply: result}).serve(t)
	o, err := environmenttest.Open(s, environment.Start{Problem: data.Problem{Text: "Add."}})
	text, _ := json.Marshal(o.Tools)
	if err != nil || string(text) != `[{"type":"function","function":{"name":"calculator","description":"Computes.","parameters":{"type":"object"}}}]` || o.Messages[0].Content != "Add.\n\nbegin" {
		t.Errorf("%s, %+v, %v", text, o.Messages, err)
	}
	call := environment.Call{Name: "calculator", Arguments: json.RawMessage(`{}`)}
	got, err := begin(t, s).Step(t.Context(), environment.Turn{Calls: []environment.Call{call, {Name: "none"}, call}})
	if err != nil || got.Done || *got.Reward != 2 || got.Messages[0].Content != "4\nso" || !strings.HasPrefix(got.Messages[1].Content, "error: there is no tool") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := begin(t, s).Step(t.Context(), environment.Turn{Text: "4"}); err != nil || !got.Done || got.Reward != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTasks: an episode's task is stated by its row, or chosen by the problem.
func TestTasks(t *testing.T) {
	f := new(fake)
	s := f.serve(t)
	s.Split = "train"
	start := environment.Start{Seed: 5 << 32, Problem: data.Problem{ID: "p", Fields: data.Object{{Name: "index", Value: int64(7)}}}}
	for _, want := range []string{`"index":7`, `"index":`} {
		if _, err := environmenttest.Open(s, start); err != nil {
			t.Fatal(err)
		}
		if got := *f.resets.Load(); !strings.Contains(got, want) || !strings.Contains(got, `"seed":5`) || !strings.Contains(got, `"split":"train"`) {
			t.Errorf("reset %s, want %s", got, want)
		}
		start.Problem.Fields = nil
	}
	s = f.serve(t)
	s.Split = "test"
	if _, err := environmenttest.Open(s, start); err == nil || !strings.Contains(err.Error(), "/a%20game/num_tasks: 400 Bad Request") {
		t.Errorf("error %v", err)
	}
}

// TestPythonServer plays a game on openenv's own server: by bisection seven turns are enough.
// ONERING_OPENENV names a Python that has openenv.
func TestPythonServer(t *testing.T) {
	python := os.Getenv("ONERING_OPENENV")
	if python == "" {
		t.Skip("ONERING_OPENENV names no Python with openenv")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	command := exec.Command(python, "testdata/guess.py", port)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Wait()
	defer command.Process.Kill()
	s := &Server{URL: "http://127.0.0.1:" + port, Observation: "text"}
	for tries := 0; s.Ready(t.Context()) != nil; tries++ {
		if tries > 600 {
			t.Fatalf("the server does not answer: %v", s.Ready(t.Context()))
		}
		time.Sleep(100 * time.Millisecond)
	}
	o, err := environmenttest.Open(s, environment.Start{Problem: data.Problem{Text: "Play."}})
	if err != nil || o.Messages[0].Content != "Play.\n\nGuess a number up to 100." {
		t.Fatalf("%+v, %v", o, err)
	}
	for _, seed := range []uint64{1, 2 << 32} {
		e, err := s.Begin(t.Context(), environment.Start{Problem: data.Problem{ID: "p"}, Seed: seed})
		for errors.Is(err, environment.ErrFull) { // the server closes the last session
			e, err = s.Begin(t.Context(), environment.Start{Problem: data.Problem{ID: "p"}, Seed: seed})
		}
		if err != nil {
			t.Fatal(err)
		}
		low, high := 1, 100
		for turn := 1; ; turn++ {
			n := (low + high) / 2
			got, err := e.Step(t.Context(), environment.Turn{Text: strconv.Itoa(n)})
			if err != nil || turn > 7 {
				t.Fatalf("turn %d: %+v, %v", turn, got, err)
			}
			if got.Done {
				if got.Reward == nil || *got.Reward != 1 {
					t.Errorf("%+v", got)
				}
				break
			}
			if got.Messages[0].Content == "Higher." {
				low = n + 1
			} else {
				high = n - 1
			}
		}
		e.Close()
	}
}

// TestBad: the policy reads why the environment refuses its action; a server that dies,
// hangs, lies or cannot be reached ends the episode.
func TestBad(t *testing.T) {
	for _, tt := range []struct{ answer, want string }{
		{refusal, `error: Invalid message [{"type":"missing"}]`},
		{`{"type":"error","data":{"message":"bad move","code":"EXECUTION_ERROR"}}`, "error: bad move"},
	} {
		s := (&fake{reply: func(map[string]any) string { return tt.answer }}).serve(t)
		if o, err := begin(t, s).Step(t.Context(), environment.Turn{}); err != nil || o.Messages[0].Content != tt.want {
			t.Errorf("%s: %+v, %v", tt.answer, o, err)
		}
	}
	for _, tt := range []struct{ answer, want string }{
		{"die", "EOF"},
		{"debugging", `the answer "debugging" cannot be read`},
		{`{"type":"error","data":{"message":"gone","code":"SESSION_ERROR"}}`, "it answers a step with"},
		{observation(`"text":"x"`, `"reward":1e999,"done":false`), "cannot be read"},
		{observation(`"text":"x"`, `"reward":NaN,"done":false`), "cannot be read"},
		{observation(`"text":"x"`, `"reward":1,"done":"yes"`), "cannot be read"},
		{`{"type":"observation","data":{"observation":[],"reward":1,"done":false}}`, "cannot be read"},
		{strings.Repeat("x", 17<<20), "read limited"},
	} {
		s := (&fake{reply: func(map[string]any) string { return tt.answer }}).serve(t)
		_, err := begin(t, s).Step(t.Context(), environment.Turn{})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), `environment "openenv": `+s.URL+": ") {
			t.Errorf("%.100s: %v, want %q", tt.answer, err, tt.want)
		}
	}
	s := (&fake{reply: func(map[string]any) string { return "hang" }}).serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := begin(t, s).Step(ctx, environment.Turn{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if _, err := (&Server{URL: "http://127.0.0.1:1"}).Begin(t.Context(), environment.Start{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}

// TestFull: a server without a free session is full until an episode is closed.
func TestFull(t *testing.T) {
	s := (&fake{room: 1}).serve(t)
	first := begin(t, s)
	if _, err := s.Begin(t.Context(), environment.Start{}); !errors.Is(err, environment.ErrFull) || !strings.Contains(err.Error(), "max_concurrent_envs") {
		t.Errorf("error %v", err)
	}
	first.Close()
	begin(t, s)
}

func TestValidate(t *testing.T) {
	for url, want := range map[string]string{"": "must be an address", "http://localhost:8000": ""} {
		if err := settings.Check(&Server{URL: url}); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", url, err)
		}
	}
}
