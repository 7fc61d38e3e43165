package serve

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"onering/train/metrics"
)

func TestStatus(t *testing.T) {
	addr, err := Address(":0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(addr, 24)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !isLoopback(s.addr) {
		t.Fatalf("it listens on %s", s.addr)
	}
	s.Begin("round 4/24: rollout", "trajectories", 512)
	s.Advance(7)
	s.Record(metrics.Record{}.With("kind", "round").With("round", 3).With("step", 24).With("reward", 0.5).With("response_length/mean", 12.25))
	s.Record(metrics.Record{}.With("kind", "eval").With("round", 3).With("step", 24).With("eval/math-500/pass@1", 0.25))
	get := func(path, host string) (int, string) {
		r, err := http.NewRequest("GET", "http://"+s.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	_, text := get("/healthz", "")
	var h health
	if err := json.Unmarshal([]byte(text), &h); err != nil || h.Round != 3 || h.Step != 24 || h.Done != 7 || h.Total != 512 || h.Rounds != 24 {
		t.Errorf("health %s, error %v", text, err)
	}
	_, text = get("/metrics", "localhost:1")
	for _, want := range []string{"onering_reward 0.5\n", "onering_response_length_mean 12.25\n", "onering_step 24\n", "onering_eval_math_500_pass_at_1 0.25\n", "go_goroutines "} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	if code, text := get("/debug/pprof/goroutine?debug=1", ""); code != 200 || !strings.Contains(text, "goroutine profile") {
		t.Errorf("profile: %d %s", code, text)
	}
	for _, host := range []string{"evil.example", "evil.example:80", "10.0.0.1"} {
		if code, _ := get("/metrics", host); code != http.StatusForbidden {
			t.Errorf("host %s: code %d", host, code)
		}
	}
	if code, _ := get("/", ""); code != http.StatusNotFound {
		t.Errorf("/: code %d", code)
	}
	if _, err := Start(s.addr, 1); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
	for addr, want := range map[string]string{"9090": "localhost:9090", ":9090": "localhost:9090", "0.0.0.0:9090": "0.0.0.0:9090", "[::1]:80": "[::1]:80", "localhost": "", "99999": "", "": ""} {
		if got, err := Address(addr); got != want || (err == nil) != (want != "") {
			t.Errorf("Address(%q) = %q, %v", addr, got, err)
		}
	}
}

// A request for another host is refused though its body never ends.
func TestLocalOnly(t *testing.T) {
	server := httptest.NewServer(localOnly(http.NotFoundHandler()))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: example.org\r\nContent-Length: 100\r\n\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn) // reads to the end of the connection
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "HTTP/1.1 403 ") {
		t.Errorf("the answer is %q", text)
	}
}
