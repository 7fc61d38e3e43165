// Package openai answers requests in the form of OpenAI's API over HTTP: completions, chats and responses,
// streamed or whole, with the log-probs and ids of their tokens; and those of Anthropic's messages. What an API
// asks for becomes a chat, and its form writes the answer. Concurrent requests are decoded together.
//
// An unsupported field that would change the samples is refused by its name; docs/serving.md lists the supported ones.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options say what a Server serves.
type Options struct {
	// Models are chosen by their names; the first one answers requests without a name.
	Models []*Model
	// MaxTokens is the largest number of tokens of a response.
	MaxTokens int
	// Queue is how many responses may wait for a slot.
	Queue int
	// Key is the key that clients must send; "" for none.
	Key string
	// SharePrefixes lets requests continue the prompts of other keys, too.
	SharePrefixes bool
	// Origins are the origins of web pages whose scripts may send requests, such as https://example.org; "*" means all.
	Origins []string
	// Fatal reports whether an error of a request ends the Server; nil means none does.
	Fatal func(error) bool
	// Load returns the adapter at a path as a model with a name. Load and the model's
	// Close are called between two steps of the Decoders. nil refuses adapters.
	Load func(name, path string) (*Model, error)

	// Sessions returns the episode of a key, nil if there is none. nil means a server without episodes.
	Sessions func(key string) *Session

	patience time.Duration // 0 means the default
}

// A Server answers requests.
type Server struct {
	Options
	engine *engine
	counts
	served       atomic.Pointer[[]*Model] // models that requests may name
	started      time.Time
	requests     atomic.Int64 // number of requests, for ids
	openRequests atomic.Int64 // number of requests that are being answered
	bodyBytes    atomic.Int64 // number of bytes of bodies being read, beyond the free ones
}

// patience is how long a client may take to read a piece, or to send a request.
const patience = 30 * time.Second

// New makes a Server. It answers while Run runs.
func New(o Options) (*Server, error) {
	capacity := o.Queue
	names := map[string]bool{}
	for _, m := range o.Models {
		if names[m.Name] {
			return nil, fmt.Errorf("openai: there are two models with the name %q", m.Name)
		}
		names[m.Name] = true
		if err := m.prepare(); err != nil {
			return nil, err
		}
		capacity += m.Decoder.Slots()
	}
	if len(names) == 0 {
		return nil, errors.New("openai: there is no model")
	}
	s := &Server{Options: o, started: time.Now()}
	s.engine = &engine{models: slices.Clone(o.Models), commands: make(chan func()), ended: make(chan struct{}), fatal: o.Fatal}
	s.engine.capacity.Store(int64(capacity))
	s.setModels(o.Models)
	s.registerCounts()
	return s, nil
}

// Run decodes until ctx ends, or an error that is Fatal, which it returns; unfinished requests then fail.
func (s *Server) Run(ctx context.Context) error { return s.engine.run(ctx) }

// maxBody is the most bytes of a request.
const maxBody = 4 << 20

//go:embed page.html
var page []byte

// showPage answers GET /: a page for chats with the model, which is an ordinary client
// and loads nothing from elsewhere.
func showPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src "+
		"'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	w.Write(page)
}

// pathHints lists paths of other servers, with the alternative in onering.
var pathHints = map[string]string{
	"/responses": ": ask /v1/responses", "/messages": ": ask /v1/messages", "/chat/completions": ": ask /v1/chat/completions",
	"/completions": ": ask /v1/completions", "/generate": ": ask /inference/v1/generate", "/v1/tokenize": ": ask /tokenize", "/v1/detokenize": ": ask /detokenize",
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	methods := map[string]string{}
	handle := func(method, path string, handler http.HandlerFunc) {
		methods[path] = method
		mux.Handle(method+" "+path, promhttp.InstrumentHandlerCounter(s.counts.requests.MustCurryWith(prometheus.Labels{"path": path}), handler))
	}
	handle("GET", "/{$}", showPage)
	handle("GET", "/metrics", s.authorized(promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP))
	handle("GET", "/health", func(w http.ResponseWriter, _ *http.Request) {
		Write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	handle("GET", "/v1/models", s.authorized(s.listModels))
	handle("GET", "/v1/models/{name...}", s.authorized(s.showModel))
	for path, answer := range map[string]func(http.ResponseWriter, *http.Request, []byte) error{
		"/v1/completions": s.complete, "/v1/chat/completions": s.chat, "/inference/v1/generate": s.generate,
		"/v1/responses": (&conversations{Server: s}).respond, "/v1/messages": anthropic{s}.messages, "/v1/messages/count_tokens": anthropic{s}.countTokens,
		"/tokenize": s.tokenize, "/detokenize": s.detokenize,
		"/v1/load_lora_adapter": s.handleAdapters("added", s.addAdapter), "/v1/unload_lora_adapter": s.handleAdapters("removed", s.removeAdapter),
	} {
		handle("POST", path, s.authorized(s.withBody(answer)))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if method := methods[r.URL.Path]; method != "" {
			w.Header().Set("Allow", method)
			refuse(w, r, &failure{status: http.StatusMethodNotAllowed, message: r.URL.Path + " takes " + method, kind: "invalid_request_error"})
			return
		}
		message := fmt.Sprintf("there is no path %q%s", r.URL.Path, pathHints[r.URL.Path])
		refuse(w, r, &failure{status: http.StatusNotFound, message: message, kind: "invalid_request_error"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Also where no handler reads the body: net/http then reads it before it answers.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(cmp.Or(s.patience, patience)))
		if s.allowOrigin(w.Header(), r) { // the request asked for nothing else
			w.WriteHeader(http.StatusNoContent)
			return
		}
		// A slash at the end of a path changes nothing.
		if path := strings.TrimRight(r.URL.Path, "/"); path != "" && path != r.URL.Path {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = path, ""
		}
		mux.ServeHTTP(w, r)
	})
}

// allowOrigin tells the browser of an allowed page that its script may read the answer (CORS).
// It reports whether the request asked for nothing else.
func (s *Server) allowOrigin(h http.Header, r *http.Request) (asked bool) {
	origin := r.Header.Get("Origin")
	if len(s.Origins) == 0 {
		return false
	}
	h.Add("Vary", "Origin")
	if origin == "" || !slices.Contains(s.Origins, origin) && !slices.Contains(s.Origins, "*") {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", cmp.Or(r.Header.Get("Access-Control-Request-Headers"), "Authorization, Content-Type"))
	h.Set("Access-Control-Max-Age", "600")
	if r.Header.Get("Access-Control-Request-Private-Network") != "" {
		h.Set("Access-Control-Allow-Private-Network", "true") // the page is on the Internet, and this server on a private network
	}
	return true
}

// KeyOf returns the key that a request came with, "" without one.
func KeyOf(r *http.Request) string {
	if key, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return key
	}
	return r.Header.Get("X-Api-Key") // of Anthropic's API
}

// HasKey reports whether a request came with the server's key, if it has one.
func (o *Options) HasKey(r *http.Request) bool {
	got, want := sha256.Sum256([]byte(KeyOf(r))), sha256.Sum256([]byte(o.Key))
	return o.Key == "" || subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// authorized refuses requests without the key.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.session(r) == nil && !s.HasKey(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, r, errKey)
			return
		}
		next(w, r)
	}
}

// The first freeBody bytes of each body are free, and the other bytes of all bodies together are bounded. So
// clients that send slowly, or never finish, take no room from clients with small requests.
const (
	freeBody   = 64 << 10
	maxReading = 64 << 20
)

// readBody reads the body of a request by pieces of freeBody bytes. s.bodyBytes counts the complete pieces of all
// bodies that are being read: small bodies have none, and large ones are refused where they would be too many.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body bytes.Buffer
	var reserved int64
	defer func() { s.bodyBytes.Add(-reserved) }()
	for in := http.MaxBytesReader(w, r.Body, maxBody); ; {
		_, err := io.CopyN(&body, in, freeBody)
		var large *http.MaxBytesError
		switch {
		case err == io.EOF:
			// Without a deadline: net/http reads on, to notice when the client goes away.
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			return body.Bytes(), nil
		case errors.As(err, &large):
			return nil, errTooLarge
		case err != nil:
			return nil, errSlow
		}
		reserved += freeBody
		if s.bodyBytes.Add(freeBody) > maxReading {
			return nil, errFull
		}
	}
}

// withBody returns a handler that reads the body of a request and gives it to next, if there is room for another
// request, and writes the error of either.
func (s *Server) withBody(next func(w http.ResponseWriter, r *http.Request, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A page in a browser can send other types to any address, but not this one.
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
			refuse(w, r, errNoJSON)
			return
		}
		body, err := s.readBody(w, r)
		if err == nil {
			defer s.openRequests.Add(-1)
			err = errFull
			if s.openRequests.Add(1) <= s.engine.capacity.Load() {
				err = next(w, r, body)
			}
		}
		if err != nil { // also if the context has ended: the client may listen all the same
			refuse(w, r, failureOf(err))
		}
	}
}

// model returns the model of a name.
func (s *Server) model(name string) (*Model, error) {
	names := []string{}
	for _, m := range s.list() {
		if name == m.Name || name == "" {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return nil, &failure{http.StatusNotFound, fmt.Sprintf("there is no model %.100q; this server has %q", name, names),
		"invalid_request_error", "model", "model_not_found"}
}

// modelFinder returns the function that finds the model of a request. In an episode every name is
// the policy's: the key says who is asked.
func (s *Server) modelFinder(r *http.Request) func(name string) (*Model, error) {
	if s.session(r) == nil {
		return s.model
	}
	return func(string) (*Model, error) { return s.model("") }
}

// card is a model in /v1/models.
func (m *Model) card(made time.Time) map[string]any {
	c := map[string]any{"id": m.Name, "object": "model", "created": made.Unix(), "owned_by": "onering", "parent": nil, "max_model_len": m.Decoder.MaxTokens(),
		"type": "model", "display_name": m.Name, "created_at": made.UTC().Format(time.RFC3339)} // of Anthropic's API
	if m.Parent != "" {
		c["parent"] = m.Parent
	}
	return c
}

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) {
	cards := []any{}
	for _, m := range s.list() {
		cards = append(cards, m.card(s.started))
	}
	Write(w, http.StatusOK, map[string]any{"object": "list", "data": cards, "has_more": false})
}

func (s *Server) showModel(w http.ResponseWriter, r *http.Request) {
	m, err := s.modelFinder(r)(r.PathValue("name"))
	if err != nil {
		refuse(w, r, failureOf(err))
		return
	}
	Write(w, http.StatusOK, m.card(s.started))
}

// keepAlive returns a function that sends a blank, a text without meaning in answers of the Content-Type kind. It fails
// if the client has gone.
func keepAlive(w http.ResponseWriter, kind, blank string) func() error {
	return func() error {
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		w.Header().Set("Content-Type", kind)
		_, err := io.WriteString(w, blank)
		return errors.Join(err, control.Flush())
	}
}

// Write writes a body as JSON.
func Write(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		slog.Error("an answer is not JSON", "reason", err)
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer is not JSON","type":"server_error","param":null,"code":null}}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

// Refuse writes an error of the request in the form of the API.
func Refuse(w http.ResponseWriter, status int, message string) {
	Write(w, status, &failure{status: status, message: message, kind: "invalid_request_error"})
}

// refuse writes an error in the form of the API that was asked.
func refuse(w http.ResponseWriter, r *http.Request, f *failure) {
	if f.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		Write(w, f.status, messageError(f))
		return
	}
	Write(w, f.status, f)
}

// counts are the figures of /metrics.
type counts struct {
	registry                    *prometheus.Registry
	requests                    *prometheus.CounterVec // requests by path and status
	responses                   *prometheus.CounterVec // responses by their finish reason
	promptTokens, sampledTokens prometheus.Counter
}

// registerCounts makes the counters and gauges of /metrics, and their registry.
func (s *Server) registerCounts() {
	c := &s.counts
	c.registry = prometheus.NewRegistry()
	c.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	factory := promauto.With(c.registry)
	c.requests = factory.NewCounterVec(prometheus.CounterOpts{Name: "onering_serve_requests_total", Help: "requests answered"}, []string{"path", "code"})
	c.responses = factory.NewCounterVec(prometheus.CounterOpts{Name: "onering_serve_responses_total", Help: "responses sampled to their end"},
		[]string{"finish_reason"})
	c.promptTokens = factory.NewCounter(prometheus.CounterOpts{Name: "onering_serve_prompt_tokens_total", Help: "tokens of prompts that were taken"})
	c.sampledTokens = factory.NewCounter(prometheus.CounterOpts{Name: "onering_serve_generated_tokens_total", Help: "tokens sampled"})
	gauge := func(name, help string, value *atomic.Int64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
	}
	gauge("onering_serve_requests", "requests that are being answered", &s.openRequests)
	gauge("onering_serve_responses", "responses that are being sampled, or wait for a slot", &s.engine.reserved)
	gauge("onering_serve_room", "responses that may be sampled or wait at a time", &s.engine.capacity)
}

// add counts a token, or the end of a response.
func (c *counts) add(finish string) {
	if finish == "" {
		c.sampledTokens.Inc()
	} else {
		c.responses.WithLabelValues(finish).Inc()
	}
}
