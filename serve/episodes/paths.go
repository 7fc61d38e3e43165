package episodes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"onering/serve/openai"
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
		openai.Refuse(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s: there are POST /rl/start, /rl/reward and /rl/end", q.Method, q.URL.Path))
	})
	mux.Handle("/", r.server.Handler())
	return mux
}

// start begins an episode for a program that has come, in this round or in one that follows.
func (r *round) start(w http.ResponseWriter, q *http.Request) {
	if !openai.HasKey(q, r.key) {
		openai.Refuse(w, http.StatusUnauthorized, "an episode begins with the key of --api-key-env, as Authorization: Bearer KEY")
		return
	}
	if len(r.command) > 0 {
		openai.Refuse(w, http.StatusConflict, "this run starts its programs itself (environment.command)")
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, q.Body, 64<<10)) // the server learns when the program goes only behind its body
	now := r
	e := now.begin()
	for e == nil {
		if now = r.current(q.Context(), now); now == nil {
			openai.Refuse(w, http.StatusGone, "the run has ended: there are no more episodes")
			return
		}
		e = now.begin()
	}
	if q.Context().Err() != nil {
		now.putBack(e)
		return
	}
	openai.Write(w, http.StatusOK, map[string]any{"api_key": e.key, "base_url": r.url, "model": r.name, "problem": problemOf(e)})
}

// told is a request about the episode of its key.
func (r *round) told(do func(e *episode, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		e := r.keys[openai.KeyOf(q)]
		r.mu.Unlock()
		if e == nil {
			openai.Refuse(w, http.StatusUnauthorized, "the key is that of no episode of this round: send what /rl/start gave as Authorization: Bearer KEY")
			return
		}
		select {
		case <-e.ended:
			openai.Refuse(w, http.StatusConflict, "the episode of this key has ended")
			return
		default:
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 64<<10))
		if err == nil {
			err = do(e, body)
		}
		if err != nil {
			openai.Refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		openai.Write(w, http.StatusOK, map[string]bool{"ok": true})
	}
}
