// Package serve answers over HTTP how a training run goes: its health as JSON,
// its metrics for Prometheus, and Go's profiles.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"onering/train"
	"onering/train/metrics"
)

// A Status serves /healthz, /metrics and /debug/pprof/ for one run. It is an
// observer of the run that passes everything on to the next one.
type Status struct {
	train.Observer
	server *http.Server
	addr   string // the address that it listens on

	mu      sync.Mutex
	health  health
	figures map[string]float64 // of the newest round and evaluation, by Prometheus name
	now     func() time.Time
	moved   time.Time // when the run last made progress
}

// A health is the JSON of /healthz.
type health struct {
	Phase  string `json:"phase"`
	Done   int    `json:"done"`
	Total  int    `json:"total"` // of the phase; 0 if it is not known
	Round  int    `json:"round"` // the last one that is finished
	Rounds int    `json:"rounds"`
	Step   int    `json:"step"`
	// Idle is the seconds since the run last made progress.
	Idle float64 `json:"idle_seconds"`
}

// Address completes an address to listen on: ":9090" is localhost:9090. Only an
// address that names another host can be reached from other machines.
func Address(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("serve: %w", err)
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// Start listens on an address as Address returns it and serves the status of a
// run of so many rounds until Close. If the address can be reached from other
// machines it logs a warning.
func Start(addr string, rounds int, next train.Observer) (*Status, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Status{Observer: next, addr: listener.Addr().String(), now: time.Now, health: health{Rounds: rounds, Phase: "starting"}}
	s.moved = s.now()
	local := isLoopback(s.addr)
	if !local {
		slog.Warn("anyone who reaches this address can read the status and take profiles", "address", s.addr)
	}
	s.server = &http.Server{Handler: s.handler(local), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Warn("the status is no longer served", "reason", err)
		}
	}()
	slog.Info("status", "health", "http://"+s.addr+"/healthz", "prometheus", "http://"+s.addr+"/metrics", "profiles", "http://"+s.addr+"/debug/pprof/")
	return s, nil
}

// Close stops listening. A profile that is being taken ends early.
func (s *Status) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
}

func (s *Status) handler(local bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	if !local {
		return mux
	}
	// A web page can make a host name of its own resolve to the loopback address,
	// but the browser then sends that name in the request.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "this address answers to localhost only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
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

func (s *Status) serveHealth(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	h := s.health
	h.Idle = s.now().Sub(s.moved).Seconds()
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(h)
}

// Begin implements train.Observer.
func (s *Status) Begin(phase, units string, total int) {
	s.mu.Lock()
	s.health.Phase, s.health.Done, s.health.Total, s.moved = phase, 0, total, s.now()
	s.mu.Unlock()
	s.Observer.Begin(phase, units, total)
}

// Advance implements train.Observer.
func (s *Status) Advance(n int) {
	s.mu.Lock()
	s.health.Done += n
	s.moved = s.now()
	s.mu.Unlock()
	s.Observer.Advance(n)
}

// Round implements train.Observer.
func (s *Status) Round(r metrics.Record) {
	s.mu.Lock()
	s.health.Round, s.health.Step, s.moved = int(r.Float("round")), int(r.Float("step")), s.now()
	s.take(r)
	s.mu.Unlock()
	s.Observer.Round(r)
}

// Evaluated implements train.Observer.
func (s *Status) Evaluated(e train.Evaluation) {
	s.mu.Lock()
	for _, x := range e.Results {
		s.set("eval/"+x.Suite+"/pass_at_1", x.Pass1.Value)
	}
	s.moved = s.now()
	s.mu.Unlock()
	s.Observer.Evaluated(e)
}

// take keeps the numbers of a record.
func (s *Status) take(r metrics.Record) {
	for _, m := range r {
		switch m.Value.(type) {
		case int, float64:
			s.set(m.Name, r.Float(m.Name))
		}
	}
}

func (s *Status) set(name string, x float64) {
	if s.figures == nil {
		s.figures = make(map[string]float64)
	}
	s.figures[metricName(name)] = x
}

// metricName returns the Prometheus name of a metric: response_length/mean becomes
// onering_response_length_mean.
func metricName(name string) string {
	return "onering_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// Describe implements prometheus.Collector. It describes nothing, since the
// metrics depend on the objective.
func (*Status) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Status) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	figures := maps.Clone(s.figures)
	if figures == nil {
		figures = make(map[string]float64)
	}
	figures["onering_phase_done"], figures["onering_phase_total"] = float64(s.health.Done), float64(s.health.Total)
	figures["onering_rounds"] = float64(s.health.Rounds)
	figures["onering_idle_seconds"] = s.now().Sub(s.moved).Seconds()
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		desc := prometheus.NewDesc(name, "of the newest round; see metrics.jsonl", nil, nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, figures[name])
	}
}
