// Package episodes has programs play episodes with the policy that is trained: agents that know
// nothing of training. Each episode has an API key, and with it a program asks the run as any
// server of OpenAI's API; package openai answers. POST /rl/start begins an episode, /rl/reward
// says what it earned, /rl/end ends it.
package episodes

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"onering/environment"
	"onering/sampler"
	"onering/serve"
	"onering/serve/openai"
)

// A Driver serves the policy of a run at an address. It is the environment.Driver of programs.
type Driver struct {
	name    string
	key     string   // of programs that begin episodes; "" is no key
	command []string // that is run for each episode; nil to wait for programs
	url     string   // where programs ask
	stop    func()

	mu      sync.Mutex
	round   *round        // that is being played; nil between two
	changed chan struct{} // closed when round changes
	closed  bool
}

// Start listens for programs. name is what requests may call the policy; key, if not empty, is
// asked of programs that begin episodes; command is run for each episode, unless it is empty.
func Start(addr, name, key string, command []string, log *slog.Logger) (*Driver, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	d := &Driver{name: name, key: key, command: command, url: "http://" + listener.Addr().String() + "/v1", changed: make(chan struct{})}
	d.stop = serve.Serve(listener, http.HandlerFunc(d.serve), key != "", "anyone who reaches this address can use the policy and play its episodes; --api-key-env asks for a key", log)
	log.Info("programs can ask the policy", "url", d.url)
	return d, nil
}

// Close ends the server. Programs that wait for an episode are told that there is none.
func (d *Driver) Close() error {
	d.set(nil, true)
	d.stop()
	return nil
}

// set makes a round the one that is played.
func (d *Driver) set(r *round, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round, d.closed = r, d.closed || closed
	close(d.changed)
	d.changed = make(chan struct{})
}

// current waits for a round other than one, which is nil if ctx or the run ends before.
func (d *Driver) current(ctx context.Context, other *round) *round {
	for {
		d.mu.Lock()
		r, changed, closed := d.round, d.changed, d.closed
		d.mu.Unlock()
		if closed {
			return nil
		}
		if r != nil && r != other {
			return r
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// serve answers a request, once a round is played: between two the weights change.
func (d *Driver) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		openai.Write(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	now := d.current(r.Context(), nil)
	if now == nil {
		openai.Refuse(w, http.StatusServiceUnavailable, "the run has ended")
		return
	}
	now.handler.ServeHTTP(w, r)
}

// Drive implements environment.Driver.
func (d *Driver) Drive(ctx context.Context, x environment.Drive, ended func(environment.Driven)) (stats sampler.Stats, err error) {
	r := &round{Driver: d, drive: x, keys: map[string]*episode{}}
	for i, q := range x.Requests {
		for k := range q.Samples {
			r.left = append(r.left, r.episode(i, k))
		}
	}
	model := &openai.Model{Name: d.name, Tokenizer: x.Prompter.Tokenizer, Template: x.Prompter.Template, Sampling: x.Options.Sampling, EOS: x.EOS,
		Vocab: x.Prompter.Tokenizer.VocabSize(), Decoder: x.Decoder}
	r.server, err = openai.New(openai.Options{Models: []*openai.Model{model}, MaxTokens: x.Options.MaxNewTokens, Queue: len(r.left) + waiting, Key: d.key, Sessions: r.session})
	if err != nil {
		return stats, err
	}
	r.handler = r.paths()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	decoding, stopDecoding := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		failed <- r.server.Run(decoding)
		stop() // without it nothing is answered
	}()
	d.set(r, false)
	stats = r.play(ctx, ended)
	d.set(nil, false)
	err = ctx.Err()
	stopDecoding()
	if other := <-failed; other != nil {
		err = other
	}
	return stats, err
}

// waiting is how many responses may wait for a slot beside the episodes.
const waiting = 64

// newKey returns an API key.
func newKey() string { return "sk-onering-" + rand.Text() }
