package episodes

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// paths are those of episodes and, for all others, of the server that answers.
func (r *round) paths() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rl/start", r.start)
	mux.HandleFunc("POST /rl/reward", r.told(func(e *episode, body []byte) error {
		var said struct {
			Reward *float64 `json:"reward"`
		}
		if err := json.Unmarshal(body, &said); err != nil || said.Reward == nil {
			return fmt.Errorf(`the body must be {"reward": NUMBER}`)
		}
		return e.addReward(*said.Reward)
	}))
	mux.HandleFunc("POST /rl/end", r.told(func(e *episode, _ []byte) error {
		e.end.Do(func() { close(e.ended) })
		return nil
	}))
	mux.HandleFunc("/rl/", func(w http.ResponseWriter, q *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s: there are POST /rl/start, /rl/reward and /rl/end", q.Method, q.URL.Path))
	})
	mux.Handle("/", r.server.Handler())
	return mux
}

// bearer returns the key that a request came with.
func bearer(q *http.Request) string {
	return strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
}

// start begins an episode for a program that has come, in this round or in one that follows.
func (r *round) start(w http.ResponseWriter, q *http.Request) {
	want, got := sha256.Sum256([]byte(r.key)), sha256.Sum256([]byte(bearer(q)))
	if r.key != "" && subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		refuse(w, http.StatusUnauthorized, "an episode begins with the key of --api-key-env, as Authorization: Bearer KEY")
		return
	}
	if len(r.command) > 0 {
		refuse(w, http.StatusConflict, "this run starts its programs itself (environment.command)")
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, q.Body, 64<<10)) // the server learns when the program goes only behind its body
	now := r
	e := now.begin()
	for e == nil {
		if now = r.current(q.Context(), now); now == nil {
			refuse(w, http.StatusGone, "the run has ended: there are no more episodes")
			return
		}
		e = now.begin()
	}
	if q.Context().Err() != nil {
		now.putBack(e)
		return
	}
	answer(w, map[string]any{"api_key": e.key, "base_url": r.url, "model": r.name, "problem": problemOf(e)})
}

// told is a request about the episode of its key.
func (r *round) told(do func(e *episode, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		e := r.keys[bearer(q)]
		r.mu.Unlock()
		if e == nil {
			refuse(w, http.StatusUnauthorized, "the key is that of no episode of this round: send what /rl/start gave as Authorization: Bearer KEY")
			return
		}
		select {
		case <-e.ended:
			refuse(w, http.StatusConflict, "the episode of this key has ended")
			return
		default:
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 64<<10))
		if err == nil {
			err = do(e, body)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		answer(w, map[string]any{"ok": true})
	}
}

// answer writes a body as JSON.
func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // a client that is gone misses nothing
}

// refuse writes an error in the form of OpenAI's API.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": nil}})
}
