package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
)

// server answers with REINFORCE, or with what before answers instead.
func server(t *testing.T, before func(w http.ResponseWriter, call int64) bool) string {
	t.Helper()
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || before != nil && before(w, calls.Add(1)) {
			return
		}
		var q struct {
			ID           int
			Trajectories []struct {
				LogP      []float64
				Advantage float64
			}
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &q); err != nil || q.ID != 1 {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		tokens, loss, weights := 0, 0.0, [][]float64{}
		for _, x := range q.Trajectories {
			tokens += len(x.LogP)
		}
		for _, x := range q.Trajectories {
			row := make([]float64, len(x.LogP))
			for i, logp := range x.LogP {
				row[i] = -x.Advantage / float64(tokens)
				loss += row[i] * logp
			}
			weights = append(weights, row)
		}
		json.NewEncoder(w).Encode(map[string]any{"id": q.ID, "loss": loss, "weights": weights})
	}))
	t.Cleanup(s.Close)
	return s.URL + "/loss"
}

func served(url string) func() objectives.Objective {
	return func() objectives.Objective {
		o, _ := objectives.New("http")
		o.(*Server).URL = url
		return o
	}
}

// TestServer: a server passes the suite; one that is busy for a while is asked again.
func TestServer(t *testing.T) {
	objectivetest.RunNew(t, served(server(t, nil)))
	busy := func(w http.ResponseWriter, call int64) bool {
		if call == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}
		return call == 1
	}
	o := served(server(t, busy))()
	if err := o.(*Server).Validate(); err != nil {
		t.Fatal(err)
	}
	if err := o.(*Server).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := objectives.Batch{Trajectories: []objectives.Trajectory{{LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -2}, Advantage: 2}}}
	if loss := o.Loss(b, b); loss != 3 {
		t.Errorf("loss %v, want 3", loss)
	}
}

// TestServerFails: the error of a step names the server and what it said, and nothing is asked in
// vain.
func TestServerFails(t *testing.T) {
	asked := 0
	refuses := func(w http.ResponseWriter, _ int64) bool {
		asked++
		http.Error(w, "no such loss", http.StatusNotFound)
		return true
	}
	url := server(t, refuses)
	defer func() {
		failed, _ := recover().(objectives.Failed)
		if failed.Err == nil || asked != 1 {
			t.Fatalf("%v after %d requests", failed.Err, asked)
		}
		for _, part := range []string{`objective "http": POST ` + url, "step 4", "404", "no such loss"} {
			if !strings.Contains(failed.Err.Error(), part) {
				t.Errorf("%v lacks %q", failed.Err, part)
			}
		}
	}()
	b := objectives.Batch{Step: 4, Trajectories: []objectives.Trajectory{{LogProb: []float64{-1}, OldLogProb: []float64{-1}}}}
	served(url)().Loss(b, b)
}

// TestServerAway: a run does not begin without its server, or with an address that is none.
func TestServerAway(t *testing.T) {
	o := served("http://127.0.0.1:9/loss")().(*Server)
	if err := o.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "objective.url: no server is at http://127.0.0.1:9/loss") {
		t.Error(err)
	}
	o.URL = "localhost"
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "http://localhost:5000/loss") {
		t.Error(err)
	}
}
