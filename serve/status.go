// Package serve shows the state of a training run over HTTP (its health as JSON, its
// metrics for Prometheus, and Go's profiles), and lets programs play its episodes.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"onering/train/doctor"
	"onering/train/metrics"
)

// A Status serves /healthz, /metrics and /debug/pprof/ about the run that it observes.
type Status struct {
	metrics.Unobserved
	stop func()
	addr string // the address that it listens on

	mu           sync.Mutex
	health       health
	gauges       map[string]float64 // values of the newest round and evaluation, by Prometheus name
	now          func() time.Time
	lastProgress time.Time // when the run last made progress
}

// A health is the JSON of /healthz.
type health struct {
	Phase  string `json:"phase"`
	Done   int    `json:"done"`  // units of the phase that are finished
	Total  int    `json:"total"` // units of the phase; 0 if the number is unknown
	Round  int    `json:"round"` // the last finished round
	Rounds int    `json:"rounds"`
	Step   int    `json:"step"`
	// Idle is the seconds since the run last made progress.
	Idle float64 `json:"idle_seconds"`
	// Diagnoses say what is wrong with the run.
	Diagnoses []doctor.Finding `json:"diagnoses,omitempty"`
}

// Address completes an address to listen on: "9090" and ":9090" are localhost:9090. Only an
// address that names another host can be reached from other machines.
func Address(addr string) (string, error) {
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("serve: %w", err)
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// NewServer returns a server of a handler for an address. If the handler asks for no key (keyed is false), a server on
// a local address answers only local requests, and about one on another address the log has the warning danger.
func NewServer(handler http.Handler, at net.Addr, keyed bool, danger string, log *slog.Logger) *http.Server {
	switch local := isLoopback(at.String()); {
	case keyed:
	case local:
		handler = localOnly(handler)
	default:
		log.Warn(danger, "address", at.String())
	}
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// serveOn answers requests on a listener with a NewServer until stop is called, which waits
// at most one second for open requests.
func serveOn(listener net.Listener, handler http.Handler, keyed bool, danger string, log *slog.Logger) (stop func()) {
	server := NewServer(handler, listener.Addr(), keyed, danger, log)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("requests are no longer answered", "address", listener.Addr(), "reason", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}
}

// Start listens on addr, which has the form that Address returns, and serves the status of a run until Close. rounds is
// the number of rounds of the run. Start logs a warning if other machines can reach the address.
func Start(addr string, rounds int) (*Status, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Status{addr: listener.Addr().String(), now: time.Now, health: health{Rounds: rounds, Phase: "starting"}, gauges: map[string]float64{}}
	s.lastProgress = s.now()
	s.stop = serveOn(listener, s.handler(), false, "anyone who reaches this address can read the status and take profiles", slog.Default())
	slog.Info("status", "health", "http://"+s.addr+"/healthz", "prometheus", "http://"+s.addr+"/metrics", "profiles", "http://"+s.addr+"/debug/pprof/")
	return s, nil
}

// Close stops listening. It waits at most one second for open requests, so that a profile may end early.
func (s *Status) Close() { s.stop() }

// handler returns the handler of all pages.
func (s *Status) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return mux
}

// localOnly refuses requests for any host but the loopback address.
func localOnly(next http.Handler) http.Handler {
	// A web page in the user's browser could read what is served if the page's host name
	// resolves to the loopback address (DNS rebinding). The browser then sends that
	// host name, so only requests for a loopback host are answered.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // otherwise the server would wait for the body's end
			http.Error(w, "this address answers to localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether HOST:PORT, or a host alone, is the loopback address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serveHealth answers /healthz.
func (s *Status) serveHealth(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	h := s.health
	h.Idle = s.now().Sub(s.lastProgress).Seconds()
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(h)
}

// progress makes a change and records the time.
func (s *Status) progress(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.lastProgress = s.now()
}

// Begin implements metrics.Observer.
func (s *Status) Begin(phase, _ string, total int) {
	s.progress(func() { s.health.Phase, s.health.Done, s.health.Total = phase, 0, total })
}

// Advance implements metrics.Observer.
func (s *Status) Advance(n int) {
	s.progress(func() { s.health.Done += n })
}

// Record implements metrics.Observer. It sets a gauge for each number.
func (s *Status) Record(r metrics.Record) {
	s.progress(func() { // under s.mu; it also notes the time of the progress
		if step := r.Float("step"); !math.IsNaN(step) {
			s.health.Step = int(step)
		}
		if r.Get("kind") == "round" {
			s.health.Round = int(r.Float("round"))
		}
		if f, ok := doctor.FindingOf(r); ok {
			s.health.Diagnoses = append(s.health.Diagnoses, f)
			return
		}
		for _, m := range r {
			switch m.Value.(type) {
			case int, float64:
				s.gauges[metricName(m.Name)] = r.Float(m.Name)
			}
		}
	})
}

// metricName converts the name of a metric for Prometheus: response_length/mean becomes onering_response_length_mean.
func metricName(name string) string {
	return "onering_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.ReplaceAll(name, "@", "_at_"))
}

// Describe implements prometheus.Collector. It describes no metrics in advance, because
// their names depend on the objective.
func (*Status) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Status) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	gauges := maps.Clone(s.gauges)
	gauges["onering_phase_done"], gauges["onering_phase_total"] = float64(s.health.Done), float64(s.health.Total)
	gauges["onering_rounds"] = float64(s.health.Rounds)
	gauges["onering_idle_seconds"] = s.now().Sub(s.lastProgress).Seconds()
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(gauges)) {
		desc := prometheus.NewDesc(name, "value of the newest round or evaluation; see metrics.jsonl", nil, nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, gauges[name])
	}
}
