package cmd

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

// A status is how far a run is, for whoever asks over HTTP: /healthz as JSON,
// /metrics for Prometheus, /debug/pprof/. It passes on what it observes.
type status struct {
	train.Observer
	server *http.Server
	addr   string // where it listens

	mu      sync.Mutex
	health  health
	figures map[string]float64 // of the newest round and evaluation
	now     func() time.Time
	moved   time.Time // when the run last got on
}

// A health is what /healthz answers.
type health struct {
	Phase  string `json:"phase"`
	Done   int    `json:"done"`
	Total  int    `json:"total"` // of the phase; 0 is unknown
	Round  int    `json:"round"` // finished
	Rounds int    `json:"rounds"`
	Step   int    `json:"step"`
	// Idle is the seconds since the run last got on.
	Idle float64 `json:"idle_seconds"`
}

// startStatus listens on addr. Without a host that is the loopback interface;
// another one must be named.
func startStatus(addr string, rounds int, next train.Observer) (*status, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, usagef("--status-addr %q: write localhost:PORT", addr)
	}
	if host == "" {
		host = "localhost"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--status-addr %s: %w", addr, err)
	}
	s := &status{Observer: next, addr: listener.Addr().String(), now: time.Now, health: health{Rounds: rounds, Phase: "starting"}}
	s.moved = s.now()
	local := isLoopback(listener.Addr().String())
	if !local {
		slog.Warn("the status can be read, and profiles taken, by whoever reaches this address", "address", s.addr)
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

// close stops listening. A profile that is being taken is cut short.
func (s *status) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
}

func (s *status) handler(local bool) http.Handler {
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
	// A page in a browser can make a name of its own resolve to the loopback
	// address; it cannot make the browser send another name.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "this address answers to localhost only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isLoopback says whether HOST:PORT, or a host alone, is this machine's own.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *status) serveHealth(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	h := s.health
	h.Idle = s.now().Sub(s.moved).Seconds()
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(h)
}

// Begin implements train.Observer.
func (s *status) Begin(phase, units string, total int) {
	s.mu.Lock()
	s.health.Phase, s.health.Done, s.health.Total, s.moved = phase, 0, total, s.now()
	s.mu.Unlock()
	s.Observer.Begin(phase, units, total)
}

// Advance implements train.Observer.
func (s *status) Advance(n int) {
	s.mu.Lock()
	s.health.Done += n
	s.moved = s.now()
	s.mu.Unlock()
	s.Observer.Advance(n)
}

// Round implements train.Observer.
func (s *status) Round(r metrics.Record) {
	s.mu.Lock()
	s.health.Round, s.health.Step, s.moved = int(r.Float("round")), int(r.Float("step")), s.now()
	s.take(r)
	s.mu.Unlock()
	s.Observer.Round(r)
}

// Evaluated implements train.Observer.
func (s *status) Evaluated(e train.Evaluation) {
	s.mu.Lock()
	for _, x := range e.Results {
		s.set("eval/"+x.Suite+"/pass_at_1", x.Pass1)
	}
	s.moved = s.now()
	s.mu.Unlock()
	s.Observer.Evaluated(e)
}

// take remembers the numbers of a record.
func (s *status) take(r metrics.Record) {
	for _, m := range r {
		switch m.Value.(type) {
		case int, float64:
			s.set(m.Name, r.Float(m.Name))
		}
	}
}

func (s *status) set(name string, x float64) {
	if s.figures == nil {
		s.figures = make(map[string]float64)
	}
	s.figures[metricName(name)] = x
}

// metricName is a metric's name as Prometheus allows it: response_length/mean
// is onering_response_length_mean.
func metricName(name string) string {
	return "onering_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// Describe implements prometheus.Collector: which metrics there are depends on
// the objective.
func (*status) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *status) Collect(out chan<- prometheus.Metric) {
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
