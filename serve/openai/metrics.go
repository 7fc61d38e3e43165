package openai

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// counts are what /metrics shows.
type counts struct {
	registry       *prometheus.Registry
	requests       *prometheus.CounterVec // by path and status
	responses      *prometheus.CounterVec // by how they ended
	prompt, tokens prometheus.Counter
}

// count begins to count what a server does.
func (s *Server) count() {
	c := &s.counts
	c.registry = prometheus.NewRegistry()
	c.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "onering_serve_requests_total", Help: "requests answered"}, []string{"path", "code"})
	c.responses = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "onering_serve_responses_total", Help: "responses sampled to their end"}, []string{"finish_reason"})
	c.prompt = prometheus.NewCounter(prometheus.CounterOpts{Name: "onering_serve_prompt_tokens_total", Help: "tokens of prompts that were taken"})
	c.tokens = prometheus.NewCounter(prometheus.CounterOpts{Name: "onering_serve_generated_tokens_total", Help: "tokens sampled"})
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	c.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), c.requests, c.responses, c.prompt, c.tokens,
		gauge("onering_serve_requests", "requests that are being answered", func() float64 { return float64(s.open.Load()) }),
		gauge("onering_serve_responses", "responses that are being sampled, or wait for a slot", func() float64 { return float64(s.engine.held.Load()) }),
		gauge("onering_serve_room", "responses that may be sampled or wait at a time", func() float64 { return float64(s.engine.most.Load()) }))
}

// counted counts the requests of a path.
func (c *counts) counted(path string, next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerCounter(c.requests.MustCurryWith(prometheus.Labels{"path": path}), next)
}

// metrics answers GET /metrics.
func (c *counts) metrics() http.HandlerFunc {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{}).ServeHTTP
}

// add counts a token, or the end of a response.
func (c *counts) add(finish string) {
	if finish == "" {
		c.tokens.Inc()
	} else {
		c.responses.WithLabelValues(finish).Inc()
	}
}
