package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onering/data"
	"onering/reward"
	"onering/reward/rewardtest"
)

// server returns the reward whose server is f.
func server(t *testing.T, dialect string, f nethttp.HandlerFunc) *Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return at(s.URL, dialect)
}

func at(address, dialect string) *Server {
	r, err := reward.New("http")
	if err != nil {
		panic(err)
	}
	s := r.(*Server)
	s.URL, s.Dialect, s.Retries, s.Timeout = address, dialect, 1, 30
	return s
}

// lengths is a server that answers in the dialect onering with the length of each response.
func lengths(w nethttp.ResponseWriter, r *nethttp.Request) {
	var group struct{ Responses []struct{ Text string } }
	if err := json.NewDecoder(r.Body).Decode(&group); err != nil {
		nethttp.Error(w, err.Error(), nethttp.StatusBadRequest)
		return
	}
	rewards := []int{}
	for _, x := range group.Responses {
		rewards = append(rewards, len(x.Text))
	}
	json.NewEncoder(w).Encode(map[string]any{"rewards": rewards})
}

func queryLengths(w nethttp.ResponseWriter, r *nethttp.Request) {
	var group struct{ Query, Prompts, Labels []string }
	if err := json.NewDecoder(r.Body).Decode(&group); err != nil || len(group.Prompts) != len(group.Query) || len(group.Labels) != len(group.Query) {
		nethttp.Error(w, "what?", nethttp.StatusBadRequest)
		return
	}
	rewards := []int{}
	for i, q := range group.Query {
		rewards = append(rewards, len(q)-len(group.Prompts[i]))
	}
	json.NewEncoder(w).Encode(map[string]any{"rewards": rewards, "scores": rewards, "extra_logs": map[string]any{"n": rewards}})
}

func verifyLength(w nethttp.ResponseWriter, r *nethttp.Request) {
	var x struct {
		Response struct {
			Output []struct{ Content []struct{ Text string } }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&x); err != nil || r.URL.Path != "/verify" {
		nethttp.Error(w, "what?", nethttp.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, `{"reward": %d, "reward_components": {"length": 1}}`, len(x.Response.Output[0].Content[0].Text))
}

// A steady reward is a Server that may not vary its scores: the servers of these tests
// give equal groups equal scores.
type steady struct{ server *Server }

func (s *steady) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	return s.server.Score(ctx, group)
}

func TestConformance(t *testing.T) {
	for dialect, f := range map[string]nethttp.HandlerFunc{"onering": lengths, "openrlhf": queryLengths, "nemo_gym": verifyLength} {
		t.Run(dialect, func(t *testing.T) {
			s := httptest.NewServer(f)
			defer s.Close()
			rewardtest.RunNew(t, func() reward.Reward { return at(s.URL, dialect) })
			rewardtest.RunNew(t, func() reward.Reward { return &steady{at(s.URL, dialect)} })
		})
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		change func(*Server)
		want   string // "" for none
	}{
		{func(*Server) {}, ""},
		{func(s *Server) { s.URL = "http://a:1/x, https://b" }, ""},
		{func(s *Server) { s.URL = "" }, `url = "": must be an address such as http://localhost:5000/get_reward`},
		{func(s *Server) { s.URL = "localhost:5000" }, "must be an address"},
		{func(s *Server) { s.URL = "http://a," }, "must be an address"},
		{func(s *Server) { s.URL = "http://me:hush@a/x" }, "must not hold a user or password"},
		{func(s *Server) { s.TokenEnv = "hf_hush" }, `token_env = "...": must be the name of an environment variable in capitals`},
		{func(s *Server) { s.TokenEnv = "JUDGE_TOKEN" }, ""},
		{func(s *Server) { s.SeedSession = true }, "has a meaning with dialect"},
		{func(s *Server) { s.SeedSession, s.Dialect = true, "nemo_gym" }, ""},
	} {
		s := at("http://localhost:1", "onering")
		tt.change(s)
		err := s.Validate()
		if err == nil && tt.want != "" || err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// row is a sample with every field that servers may ask for.
func row(text string) reward.Sample {
	return reward.Sample{
		Problem: data.Problem{ID: "p1", Text: "1+1", Answers: []string{"2", "two"}, Fields: data.Object{{Name: "problem", Value: "1+1"}, {Name: "level", Value: int64(3)}}},
		Prompt:  "User: 1+1\nAssistant:", PromptIDs: []int32{3, 4}, Response: text, IDs: []int32{5, 6}, LogProb: []float32{-0.5, -0.25},
	}
}

// sameJSON wants a body to equal the JSON value want.
func sameJSON(t *testing.T, body []byte, want string) {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(body, &x), json.Unmarshal([]byte(want), &y)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("posted\n%s\nwant\n%s", body, want)
	}
}

// TestDialects states the requests to servers of existing protocols, and the scores from
// their answers.
func TestDialects(t *testing.T) {
	truncated := row("no")
	truncated.Truncated = true
	const params = `"responses_create_params": {"input": [{"role": "user", "content": "1+1"}]}`
	const message = `{"problem": "1+1", "level": 3, "expected_answer": "2", ` + params + `, "response": {"id": "resp_0", "object": "response", "created_at": 0, "model": "onering",
		"status": STATUS, "incomplete_details": DETAILS, "error": null, "parallel_tool_calls": false, "tool_choice": "auto", "tools": [], "output": [
		{"id": "msg_0", "type": "message", "role": "assistant", "status": STATUS, "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
		"prompt_token_ids": [3, 4], "generation_token_ids": [5, 6], "generation_log_probs": [-0.5, -0.25]}]}}`
	for _, tt := range []struct {
		dialect string
		posted  []string // one answer by response, or one for all responses
		answers []string
		want    []reward.Score
	}{
		{"onering", []string{`{"id": 2, "problem": {"id": "p1", "text": "1+1", "answers": ["2", "two"], "problem": "1+1", "level": 3}, "prompt": "User: 1+1\nAssistant:",
			"responses": [{"text": "2", "ids": [5, 6], "truncated": false}, {"text": "no", "ids": [5, 6], "truncated": true}]}`},
			[]string{`{"rewards": [1, null], "components": {"a": [1, 2]}, "log": {"b": 3}}`},
			[]reward.Score{
				{Value: 1, Components: map[string]float64{"a": 1}, Log: map[string]float64{"b": 3}},
				{Skip: true, Components: map[string]float64{"a": 2}, Log: map[string]float64{"b": 3}},
			}},
		{"openrlhf", []string{`{"query": ["User: 1+1\nAssistant:2", "User: 1+1\nAssistant:no"], "prompts": ["User: 1+1\nAssistant:", "User: 1+1\nAssistant:"], "labels": ["2", "2"]}`},
			[]string{`{"rewards": [1, -0.5], "scores": [1, 0], "extra_logs": {"judge": [0.75, 0.25]}}`},
			[]reward.Score{{Value: 1, Log: map[string]float64{"scores": 1, "judge": 0.75}}, {Value: -0.5, Log: map[string]float64{"scores": 0, "judge": 0.25}}}},
		{"nemo_gym", []string{
			strings.NewReplacer("STATUS", `"completed"`, "DETAILS", "null", "TEXT", `"2"`).Replace(message),
			strings.NewReplacer("STATUS", `"incomplete"`, "DETAILS", `{"reason": "max_output_tokens"}`, "TEXT", `"no"`).Replace(message),
		},
			[]string{`{"response": {}, "reward": 0.5, "reward_components": {"right": 1, "short": 0}}`, `{"reward": 0.0, "mask_sample": true, "failure_reason": "the judge is out"}`},
			[]reward.Score{{Value: 0.5, Components: map[string]float64{"right": 1, "short": 0}}, {Skip: true, Status: reward.Error, Reason: "the judge is out"}}},
	} {
		var mu sync.Mutex
		calls := 0
		s := server(t, tt.dialect, func(w nethttp.ResponseWriter, r *nethttp.Request) {
			mu.Lock()
			defer mu.Unlock()
			calls++
			body, _ := io.ReadAll(r.Body)
			i := 0
			if len(tt.posted) > 1 && bytes.Contains(body, []byte(`"no"`)) {
				i = 1
			}
			if tt.dialect == "nemo_gym" && r.URL.Path != "/verify" || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "" {
				t.Errorf("%s: %s %s %v", tt.dialect, r.Method, r.URL, r.Header)
			}
			sameJSON(t, body, tt.posted[i])
			w.Write([]byte(tt.answers[i]))
		})
		scores, err := s.Score(t.Context(), []reward.Sample{row("2"), truncated})
		if err != nil || calls != len(tt.posted) {
			t.Fatalf("%s: %v after %d calls", tt.dialect, err, calls)
		}
		if got, want := fmt.Sprintf("%+v", scores), fmt.Sprintf("%+v", tt.want); got != want {
			t.Errorf("%s: scores %s\nwant %s", tt.dialect, got, want)
		}
	}
}

// TestGymRow: a row that was made for NeMo Gym is posted unchanged.
func TestGymRow(t *testing.T) {
	x := row("2")
	x.LogProb = nil
	input := data.Object{{Name: "input", Value: "already there"}}
	x.Problem.Fields = data.Object{{Name: "responses_create_params", Value: input}, {Name: "expected_answer", Value: "B"}, {Name: "response", Value: "an older one"}, {Name: "uuid", Value: "u"}}
	sameJSON(t, append(append([]byte("["), must(gymRow(x).MarshalJSON())...), ']'), `[{"responses_create_params": {"input": "already there"}, "expected_answer": "B", "uuid": "u"}]`)
	if text := string(must(gymResponse(x).MarshalJSON())); strings.Contains(text, "token_ids") || strings.Contains(text, "log_probs") {
		t.Errorf("tokens without log-probs: %s", text)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestSession: with seed_session each response is verified in the session that its own
// request opened.
func TestSession(t *testing.T) {
	var mu sync.Mutex
	sessions := map[string]int{} // verified in each
	s := server(t, "nemo_gym", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		mu.Lock()
		defer mu.Unlock()
		cookie, err := r.Cookie("session")
		switch r.URL.Path {
		case "/gym/seed_session":
			if err == nil {
				t.Error("a session before there is one")
			}
			id := fmt.Sprint("s", len(sessions))
			sessions[id] = 0
			nethttp.SetCookie(w, &nethttp.Cookie{Name: "session", Value: id, Path: "/"})
			w.Write([]byte("{}"))
		case "/gym/verify":
			if err != nil {
				t.Error(err)
				return
			}
			sessions[cookie.Value]++
			w.Write([]byte(`{"reward": 1}`))
		default:
			t.Error(r.URL)
		}
	})
	s.URL += "/gym/"
	s.SeedSession = true
	if _, err := s.Score(t.Context(), []reward.Sample{row("1"), row("2"), row("3")}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"s0": 1, "s1": 1, "s2": 1}; !reflect.DeepEqual(sessions, want) {
		t.Errorf("sessions %v", sessions)
	}
}

// TestFails: a temporary failure is tried again, and a lasting failure is an error at
// once. Both errors name the address and quote the server, or the group is skipped.
func TestFails(t *testing.T) {
	for _, tt := range []struct {
		name, dialect string
		answer        func(w nethttp.ResponseWriter, r *nethttp.Request)
		want          string
		calls         int
	}{
		{"down", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) { nethttp.Error(w, "busy\x1b[2J", 503) }, `: 503 Service Unavailable: "busy\x1b[2J\n" (after 2 attempts)`, 2},
		{"too many", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(429) }, ": 429 Too Many Requests", 2},
		{"unknown", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(404) }, ": 404 Not Found", 1},
		{"hangs up", "onering", func(nethttp.ResponseWriter, *nethttp.Request) { panic(nethttp.ErrAbortHandler) }, ": the server closed the connection before its answer was complete: look at what it printed (after 2 attempts)", 2},
		{"hangs up in its answer", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Length", "9")
			w.Write([]byte("{"))
		}, ": the server closed the connection", 2},
		{"no JSON", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.Write([]byte("<html>")) }, `the answer "<html>" cannot be read: not JSON at byte 0`, 1},
		{"too few", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.Write([]byte(`{"rewards": [1]}`)) }, `"rewards" has 1 values for 2 responses`, 1},
		{"too few", "openrlhf", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.Write([]byte(`{"scores": [1, 2]}`)) }, `"rewards" has 0 values for 2 responses`, 1},
		{"text", "openrlhf", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.Write([]byte(`{"rewards": ["1", "2"]}`)) }, "rewards[0] is \"1\", not a number", 1},
		{"no reward", "nemo_gym", func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.Write([]byte(`{"response": {}}`)) }, `it has no number under "reward"`, 2},
		{"huge", "onering", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			for range 17 {
				w.Write(make([]byte, 1<<20))
			}
		}, "is longer than 16 MB", 1},
		{"elsewhere", "onering", func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Redirect(w, r, "http://127.0.0.1:1/x", nethttp.StatusTemporaryRedirect)
		}, "it redirects to another server, http://127.0.0.1:1: set url to that", 1},
		{"as GET", "onering", func(w nethttp.ResponseWriter, r *nethttp.Request) { nethttp.Redirect(w, r, "/x", nethttp.StatusFound) }, "turns POST into GET", 1},
	} {
		t.Run(tt.name+" "+tt.dialect, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := server(t, tt.dialect, func(w nethttp.ResponseWriter, r *nethttp.Request) { calls.Add(1); tt.answer(w, r) })
			group := []reward.Sample{row("1"), row("2")}
			scores, err := s.Score(t.Context(), group)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "POST "+s.URL) || !strings.HasPrefix(err.Error(), `reward "http": `) {
				t.Errorf("%v, %v, want %q", scores, err, tt.want)
			}
			if int(calls.Load()) != tt.calls {
				t.Errorf("%d calls, want %d", calls.Load(), tt.calls)
			}
			s.OnError = "skip"
			scores, err = s.Score(t.Context(), group)
			if err != nil || len(scores) != 2 || !scores[0].Skip || !scores[1].Skip || scores[0].Status != reward.Error || scores[0].Value != 0 {
				t.Errorf("%+v, %v", scores, err)
			}
		})
	}
}

// TestOtherGroup: an answer that names a group counts for that group alone.
func TestOtherGroup(t *testing.T) {
	for _, tt := range []struct {
		id string // ID is the group's
		ok bool
	}{{"ID", true}, {`"ID"`, true}, {"null", true}, {"-1", false}, {"ID0", false}, {`"x\u001b[2J"`, false}, {"[ID]", false}, {"{}", false}} {
		s := server(t, "onering", func(w nethttp.ResponseWriter, r *nethttp.Request) {
			var group struct{ ID int }
			json.NewDecoder(r.Body).Decode(&group)
			fmt.Fprintf(w, `{"id": %s, "rewards": [1]}`, strings.ReplaceAll(tt.id, "ID", fmt.Sprint(group.ID)))
		})
		s.Retries = 0
		scores, err := s.Score(t.Context(), []reward.Sample{row("1")})
		if tt.ok != (err == nil) || !tt.ok && (!strings.Contains(err.Error(), "was asked about") || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: %v, %v", tt.id, scores, err)
		}
	}
}

// TestTimeout: a request is given up if the server does not answer, or if the run ends.
func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	s := server(t, "onering", func(nethttp.ResponseWriter, *nethttp.Request) { <-release })
	defer close(release)
	s.Timeout, s.Retries = 0.05, 0
	if _, err := s.Score(t.Context(), []reward.Sample{row("1")}); err == nil || !strings.HasSuffix(err.Error(), ": no answer within 0.05 s") {
		t.Errorf("error %v", err)
	}
	s.Timeout, s.Concurrency = 30, 1
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := s.Score(ctx, []reward.Sample{row("1")}); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
	cancel()
	all.Wait()
}

// TestRetry: a retry goes to the next server, waits as long as requested, and does not
// send graded responses again.
func TestRetry(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	alive := server(t, "onering", lengths)
	alive.URL = dead.URL + ", " + alive.URL
	for range 4 {
		if scores, err := alive.Score(t.Context(), []reward.Sample{row("four")}); err != nil || scores[0].Value != 4 {
			t.Errorf("%v, %v", scores, err)
		}
	}

	var mu sync.Mutex
	seen := map[string]int{}
	s := server(t, "nemo_gym", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		text := "1"
		if bytes.Contains(body, []byte(`"text": "fails once"`)) {
			text = "fails once"
		}
		seen[text]++
		first := seen[text] == 1
		mu.Unlock()
		if text != "1" && first {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return
		}
		verifyLength(w, r)
	})
	began := time.Now()
	scores, err := s.Score(t.Context(), []reward.Sample{row("1"), row("fails once")})
	if err != nil || scores[0].Value != 1 || scores[1].Value != 10 || !reflect.DeepEqual(seen, map[string]int{"1": 1, "fails once": 2}) {
		t.Errorf("%v, %v, calls %v", scores, err, seen)
	}
	if time.Since(began) < time.Second {
		t.Error("it did not wait as the server asked")
	}
}

// TestConcurrency: at no time are there more requests than the settings allow.
func TestConcurrency(t *testing.T) {
	var now, most atomic.Int64
	s := server(t, "nemo_gym", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		verifyLength(w, r)
	})
	s.Concurrency = 3
	if s.Groups() != 3 {
		t.Errorf("%d groups at once", s.Groups())
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := s.Score(t.Context(), slices.Repeat([]reward.Sample{row("1")}, 5)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() != 3 {
		t.Errorf("%d requests at once", most.Load())
	}
}

// TestToken: only the reward's server receives the token: no other server, error or score
// has it, even if the server sends it back.
func TestToken(t *testing.T) {
	const token = "sk-MarkerThatMustNotAppear"
	t.Setenv("JUDGE_TOKEN", token+"\n")
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	other := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		t.Errorf("another server is asked, with %q", r.Header.Get("Authorization"))
	}))
	defer other.Close()
	answers := map[string]func(w nethttp.ResponseWriter, r *nethttp.Request){
		"/good": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			w.Write([]byte(`{"rewards": [1], "reasons": ["` + r.Header.Get("Authorization") + `"], "log": {"` + token + `": 1}}`))
		},
		"/down": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Error(w, "no "+r.Header.Get("Authorization"), 503)
		},
		"/bad":  func(w nethttp.ResponseWriter, r *nethttp.Request) { w.Write([]byte(r.Header.Get("Authorization"))) },
		"/away": func(w nethttp.ResponseWriter, r *nethttp.Request) { nethttp.Redirect(w, r, other.URL, 307) },
		"/here": func(w nethttp.ResponseWriter, r *nethttp.Request) { nethttp.Redirect(w, r, "/good", 308) },
	}
	asked := 0
	s := server(t, "onering", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if asked++; r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		answers[r.URL.Path](w, r)
	})
	address := s.URL
	s.TokenEnv = "JUDGE_TOKEN"
	for path := range answers {
		for _, onError := range []string{"stop", "skip"} {
			s.URL, s.OnError = address+path, onError
			scores, err := s.Score(t.Context(), []reward.Sample{row("1")})
			if text := fmt.Sprintf("%+v %v %+v", scores, err, s); strings.Contains(text, token) {
				t.Errorf("%s: %s", path, text)
			}
			if good := path == "/good" || path == "/here"; good && (err != nil || scores[0].Value != 1) || !good && err == nil && !scores[0].Skip {
				t.Errorf("%s: %v, %v", path, scores, err)
			}
		}
	}
	if strings.Contains(log.String(), token) || log.Len() == 0 || asked == 0 {
		t.Errorf("%d requests, log:\n%s", asked, &log)
	}
	t.Setenv("JUDGE_TOKEN", "")
	asked = 0
	if _, err := s.Score(t.Context(), []reward.Sample{row("1")}); err != nil || asked > 0 { // on_error is skip
		t.Errorf("%v after %d requests", err, asked)
	}
	s.OnError = "stop"
	if _, err := s.Score(t.Context(), []reward.Sample{row("1")}); err == nil || !strings.Contains(err.Error(), "the environment variable JUDGE_TOKEN is not set") {
		t.Errorf("error %v", err)
	}
}

// TestFinite: numbers that are not finite are not rewards.
func TestFinite(t *testing.T) {
	for _, text := range []string{"NaN", "1e999", `"1"`, "true"} {
		for _, dialect := range []string{"onering", "openrlhf", "nemo_gym"} {
			s := server(t, dialect, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
				fmt.Fprintf(w, `{"rewards": [%s], "reward": %s}`, text, text)
			})
			if scores, err := s.Score(t.Context(), []reward.Sample{row("1")}); err == nil {
				t.Errorf("%s, %s: %v", dialect, text, scores)
			}
		}
	}
}

// TestReady: a server that does not run is found before there is a group to grade. Any
// answer shows that a server runs, and one running server of several is enough.
func TestReady(t *testing.T) {
	there := httptest.NewServer(nethttp.NotFoundHandler())
	defer there.Close()
	gone := httptest.NewServer(nethttp.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct {
		urls  []string
		ready bool
	}{{[]string{there.URL}, true}, {[]string{gone.URL + "/grade"}, false}, {[]string{gone.URL, there.URL}, true}, {[]string{gone.URL, gone.URL}, false}} {
		s := &Server{URL: strings.Join(tt.urls, ","), Concurrency: 1}
		if err := reward.Ready(context.Background(), s); (err == nil) != tt.ready {
			t.Errorf("%v: %v", tt.urls, err)
		}
		s.Close()
	}
}
