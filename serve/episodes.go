package serve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"onering/environment"
	"onering/internal/process"
	"onering/internal/strict"
	"onering/sampler"
	"onering/serve/openai"
)

// Episodes lets programs, such as agents that know nothing of training, play episodes with the policy in training. Each
// episode has an API key, with which a program uses the run as a server of OpenAI's API; package openai answers. POST
// /rl/start begins an episode, /rl/reward states its reward, /rl/end ends it. A reward is told with a second key, since
// what an agent starts may know the first. Episodes is the environment.Driver of programs.
type Episodes struct {
	name      string
	key       string   // the key of programs that begin episodes; "" for none
	command   []string // the command that is run for each episode; nil to wait for programs
	url       string   // the address for programs
	stop      func()
	log       *slog.Logger
	warnOfKey sync.Once // the log says once that a reward was told with a key that only asks

	mu      sync.Mutex
	round   *round        // the round in progress; nil between two rounds
	changed chan struct{} // closed when round changes
	closed  bool
}

// StartEpisodes listens for programs. name is the policy's name in requests; key, if not empty, is
// required of programs that begin episodes; command, if not empty, is run for each episode.
func StartEpisodes(addr, name, key string, command []string, log *slog.Logger) (*Episodes, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	d := &Episodes{name: name, key: key, command: command, log: log, url: "http://" + listener.Addr().String() + "/v1", changed: make(chan struct{})}
	d.stop = serveOn(listener, http.HandlerFunc(d.serve), key != "",
		"anyone who reaches this address can use the policy and play its episodes; --api-key-env asks for a key", log)
	log.Info("programs can ask the policy", "url", d.url)
	return d, nil
}

// Close ends the server. Programs that wait for an episode get an error.
func (d *Episodes) Close() error {
	d.set(nil, true)
	d.stop()
	return nil
}

// set makes a round the current one, nil for none, for those that wait for it. With closed none follows.
func (d *Episodes) set(r *round, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round, d.closed = r, d.closed || closed
	close(d.changed)
	d.changed = make(chan struct{})
}

// waitForRound waits for a round that is not other, which may be nil, and returns it; nil if ctx or the run ends before.
func (d *Episodes) waitForRound(ctx context.Context, other *round) *round {
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
		case <-changed: // there is another round, or none, so look again
		case <-ctx.Done():
			return nil
		}
	}
}

// serve answers a request once a round is in progress: between rounds the weights change.
func (d *Episodes) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		openai.Write(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	now := d.waitForRound(r.Context(), nil)
	if now == nil {
		openai.Refuse(w, http.StatusServiceUnavailable, "the run has ended")
		return
	}
	now.handler.ServeHTTP(w, r)
}

// Drive implements environment.Driver: programs play an episode for each sample of x.Requests, by asking a server of
// OpenAI's API that this round alone has. An error is that of the server, or of ctx.
func (d *Episodes) Drive(ctx context.Context, x environment.Drive, ended func(environment.Driven)) (stats sampler.Stats, err error) {
	r := &round{Episodes: d, drive: x, keys: map[string]*episode{}}
	for i, q := range x.Requests {
		for k := range q.Samples {
			r.unbegun = append(r.unbegun, r.episode(i, k))
		}
	}
	model := &openai.Model{Name: d.name, Tokenizer: x.Prompter.Tokenizer, Template: x.Prompter.Template, Sampling: x.Options.Sampling, EOS: x.EOS,
		Vocab: x.Prompter.Tokenizer.VocabSize(), Decoder: x.Decoder}
	r.server, err = openai.New(openai.Options{Models: []*openai.Model{model}, MaxTokens: x.Options.MaxNewTokens,
		Queue: len(r.unbegun) + moreWaiting, Key: d.key, Sessions: r.session})
	if err != nil {
		return stats, err
	}
	r.handler = r.routes()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serverEnded := make(chan error, 1)
	// Decoding outlives ctx: play ends the episodes' sessions between two steps of the decoder.
	decoding, stopDecoding := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		serverEnded <- r.server.Run(decoding)
		stop() // without the server no request is answered
	}()
	const isLast = false // other rounds may follow
	d.set(r, isLast)
	go r.logUnbegun(ctx, len(r.unbegun), 3*time.Second)
	stats = r.play(ctx, ended)
	d.set(nil, isLast)
	err = ctx.Err()
	stopDecoding()
	if failure := <-serverEnded; failure != nil {
		err = failure // rather than that of ctx, which the server's end has stopped
	}
	return stats, err
}

// logUnbegun logs, after pauses that grow threefold, how many of all episodes have begun, until all have or ctx ends.
func (r *round) logUnbegun(ctx context.Context, all int, pause time.Duration) {
	for ; ; pause *= 3 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		r.mu.Lock()
		left := len(r.unbegun)
		r.mu.Unlock()
		if left == 0 {
			return
		}
		r.log.Info(fmt.Sprintf("waiting for programs: %d of %d episodes begun", all-left, all), "url", r.url)
	}
}

// moreWaiting is how many responses may wait for a slot besides the episodes.
const moreWaiting = 64

// episodeKey begins the API keys of episodes.
const episodeKey = "sk-onering-"

// A round has the episodes that are played until the next training steps.
type round struct {
	*Episodes
	drive   environment.Drive
	server  *openai.Server
	handler http.Handler

	mu      sync.Mutex
	keys    map[string]*episode // episodes that have begun, by each of their keys
	unbegun []*episode          // episodes that have not begun
}

// An episode is one that a program plays with a key.
type episode struct {
	environment.Start
	request       int
	key           string // with which the policy is asked
	rewardKey     string // with which rewards are told
	oneKeyForBoth bool   // rewards may be told with key, too
	session       *openai.Session
	begun         chan struct{} // has an element once a program has taken the episode, and until await has seen that
	ended         context.Context
	end           func() // ends ended: the program says that the episode is over

	mu     sync.Mutex
	reward *float64 // nil until the program states one
}

// episode makes the episode of sample k of a request: its keys, and a session that samples as the round does.
func (r *round) episode(request, k int) *episode {
	g, q := r.drive.Groups[request], r.drive.Requests[request]
	e := &episode{Start: g.Start, request: request, key: episodeKey + rand.Text(), rewardKey: episodeKey + rand.Text(), begun: make(chan struct{}, 1)}
	e.ended, e.end = context.WithCancel(context.Background())
	e.Sample = g.Number(k)
	o := r.drive.Options // the session sets its functions
	if q.LastGreedy && k == q.Samples-1 {
		o.Greedy = true
	}
	e.session = &openai.Session{Options: o, Request: sampler.Request{ID: q.ID, First: e.Sample}, MaxTurns: r.drive.MaxTurns}
	return e
}

// session returns the episode of a key, for the server.
func (r *round) session(key string) *openai.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.keys[key]; e != nil {
		return e.session
	}
	return nil
}

// begin takes the next episode for a program; nil if all have begun. oneKeyForBoth says that rewards may be told with
// the key that asks, too.
func (r *round) begin(oneKeyForBoth bool) *episode {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unbegun) == 0 {
		return nil
	}
	e := r.unbegun[0]
	r.unbegun = r.unbegun[1:]
	r.keys[e.key], r.keys[e.rewardKey], e.oneKeyForBoth = e, e, oneKeyForBoth
	select {
	case e.begun <- struct{}{}:
	default: // it was begun before, and put back
	}
	return e
}

// putBack makes an episode available again, because the program that asked for it has gone.
func (r *round) putBack(e *episode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, e.key)
	delete(r.keys, e.rewardKey)
	r.unbegun = append(r.unbegun, e)
}

// play plays all episodes and reports each that has ended: it waits for programs, or runs the command for each episode,
// AtOnce at a time.
func (r *round) play(ctx context.Context, ended func(environment.Driven)) (stats sampler.Stats) {
	var reporting sync.Mutex
	finish := func(e *episode, err error) {
		x := r.finish(e, err)
		reporting.Lock()
		defer reporting.Unlock()
		for _, s := range x.Segments {
			stats.Tokens += len(s.IDs)
			stats.PrefillTokens += len(s.Prompt)
		}
		stats.Responses++
		ended(x)
	}
	stats.Slots = r.drive.Decoder.Slots()
	var programs sync.WaitGroup
	defer programs.Wait() // the programs add to stats until they end
	if len(r.command) == 0 {
		for _, e := range slices.Clone(r.unbegun) {
			programs.Go(func() { finish(e, r.await(ctx, e)) })
		}
		return stats
	}
	for range min(r.drive.AtOnce, len(r.unbegun)) {
		programs.Go(func() {
			const bothKeys = false // a program that the run starts has another key for rewards
			for e := r.begin(bothKeys); e != nil && ctx.Err() == nil; e = r.begin(bothKeys) {
				finish(e, r.run(ctx, e))
			}
		})
	}
	return stats
}

// await waits until a program begins an episode and ends it. An error says why it has not.
func (r *round) await(ctx context.Context, e *episode) error {
	select {
	case <-e.begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-e.ended.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(r.drive.EpisodeSeconds * float64(time.Second))):
		return fmt.Errorf("its program has not ended it within %g s (environment.episode_seconds)", r.drive.EpisodeSeconds)
	}
}

// run runs the command for an episode.
func (r *round) run(ctx context.Context, e *episode) error {
	problem, err := json.Marshal(problemOf(e))
	if err != nil {
		return err
	}
	_, err = process.Run(ctx, r.command, nil, process.Limits{Seconds: r.drive.EpisodeSeconds, Output: mostOutput, Environment: []string{
		"OPENAI_BASE_URL=" + r.url, "OPENAI_API_KEY=" + e.key, "OPENAI_MODEL=" + r.name,
		"ANTHROPIC_BASE_URL=" + strings.TrimSuffix(r.url, "/v1"), "ANTHROPIC_API_KEY=" + e.key, "ANTHROPIC_MODEL=" + r.name, "ONERING_PROBLEM=" + string(problem),
	}, Secret: e.rewardKey, SecretName: "ONERING_REWARD_FD"})
	if e.ended.Err() != nil && ctx.Err() == nil {
		return nil // the program may do as it likes after the end of its episode
	}
	return err
}

// mostOutput is how many bytes a program may print in an episode.
const mostOutput = 1 << 20

// finish ends an episode, which failed if err is not nil, and returns its result: what was sampled and its reward. The
// last turn has the reward, as nobody knows which one earned it; NaN says that the others have none.
func (r *round) finish(e *episode, err error) environment.Driven {
	r.mu.Lock()
	r.unbegun = slices.DeleteFunc(r.unbegun, func(x *episode) bool { return x == e }) // no program may take it any more
	r.mu.Unlock()
	segments, failed := e.session.End(r.server)
	x := environment.Driven{Request: e.request, Sample: e.Sample, Segments: segments}
	if g := r.drive.Groups[e.request]; g.Samples != nil { // the request has only these samples of its problem
		x.Sample = slices.Index(g.Samples, e.Sample) // back to the number in the request
	}
	if err = errors.Join(err, failed); err == nil && len(segments) == 0 {
		err = errors.New("the program has asked for nothing")
	}
	if err != nil {
		x.Failed = fmt.Errorf("environment: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(segments); e.reward != nil && n > 0 {
		x.Rewards = slices.Repeat([]float64{math.NaN()}, len(segments[n-1].Observed)+1)
		x.Rewards[len(x.Rewards)-1] = *e.reward
	}
	return x
}

// A problem is the description of an episode for a program.
type problem struct {
	ID      string          `json:"id"`
	Text    string          `json:"text"`
	Columns json.RawMessage `json:"columns,omitempty"` // columns of its row
	Seed    uint64          `json:"seed"`
	Sample  int             `json:"sample"`
}

func problemOf(e *episode) problem {
	p := problem{ID: e.Problem.ID, Text: e.Problem.Text, Seed: e.Seed, Sample: e.Sample}
	if e.Problem.Fields != nil {
		p.Columns, _ = e.Problem.Fields.MarshalJSON() // these values can always be encoded
	}
	return p
}

// routes routes the paths of episodes; the server of OpenAI's API answers all others.
func (r *round) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rl/start", r.start)
	mayReward := func(e *episode, key string) bool { return key == e.rewardKey || e.oneKeyForBoth }
	mux.HandleFunc("POST /rl/reward", r.handleEpisode(mayReward, func(e *episode, body []byte) error {
		var said struct {
			Reward *float64 `json:"reward"`
		}
		if err := strict.JSON(body, &said); err != nil || said.Reward == nil {
			return fmt.Errorf(`the body must be {"reward": NUMBER}`)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.reward != nil {
			*said.Reward += *e.reward
		}
		err := environment.CheckReward(*said.Reward)
		if err == nil {
			e.reward = said.Reward
		}
		return err
	}))
	mux.HandleFunc("POST /rl/end", r.handleEpisode(func(*episode, string) bool { return true }, func(e *episode, _ []byte) error {
		e.end()
		return nil
	}))
	mux.HandleFunc("/rl/", func(w http.ResponseWriter, q *http.Request) {
		openai.Refuse(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s: there are POST /rl/start, /rl/reward and /rl/end", q.Method, q.URL.Path))
	})
	policy := r.server.Handler()
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		// The key of an ended episode does not give access to the plain server.
		if !strings.HasPrefix(openai.KeyOf(q), episodeKey) || r.episodeOf(w, q, func(e *episode, key string) bool { return key == e.key }) != nil {
			policy.ServeHTTP(w, q)
		}
	})
	return mux
}

// start answers POST /rl/start: it begins an episode for a program, in this round or, if all of its episodes have
// begun, in one that follows, and gives the program the episode's keys and problem.
func (r *round) start(w http.ResponseWriter, q *http.Request) {
	if !r.server.HasKey(q) {
		openai.Refuse(w, http.StatusUnauthorized, "an episode begins with the key of --api-key-env, as Authorization: Bearer KEY")
		return
	}
	if len(r.command) > 0 {
		openai.Refuse(w, http.StatusConflict, "this run starts its programs itself (environment.command)")
		return
	}
	var asked struct {
		RewardKey bool `json:"reward_key"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 64<<10)) // the server notices that the program has gone only after reading the body
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &asked)
	}
	if err != nil {
		openai.Refuse(w, http.StatusBadRequest, `the body must be {}, or {"reward_key": true} for a key of its own to tell rewards with`)
		return
	}
	now, e := r, r.begin(!asked.RewardKey) // nil if all episodes of the round have begun
	for ; e == nil; e = now.begin(!asked.RewardKey) {
		if now = r.waitForRound(q.Context(), now); now == nil {
			openai.Refuse(w, http.StatusGone, "the run has ended: there are no more episodes")
			return
		}
	}
	if q.Context().Err() != nil { // the program has gone
		now.putBack(e)
		return
	}
	answer := map[string]any{"api_key": e.key, "base_url": r.url, "model": r.name, "problem": problemOf(e)}
	if asked.RewardKey {
		answer["reward_key"] = e.rewardKey
	}
	openai.Write(w, http.StatusOK, answer)
}

// episodeOf returns the episode of the key that a request came with, or refuses the request and returns nil: also if
// the key is the wrong one of the episode's two, as right tells, or the episode has ended.
func (r *round) episodeOf(w http.ResponseWriter, q *http.Request, right func(e *episode, key string) bool) *episode {
	r.mu.Lock()
	key := openai.KeyOf(q)
	e := r.keys[key]
	r.mu.Unlock()
	switch {
	case e == nil:
		openai.Refuse(w, http.StatusUnauthorized, "the key is that of no episode of this round: send what /rl/start gave as Authorization: Bearer KEY")
	case !right(e, key) && key == e.rewardKey:
		openai.Refuse(w, http.StatusForbidden, "this key tells the reward of its episode: ask with the episode's other one")
	case !right(e, key):
		r.warnOfKey.Do(func() { // the log says it once
			slog.Warn("a reward was told with the key that asks, which others may know, and does not count: the key for " +
				"rewards is read from the descriptor that ONERING_REWARD_FD names")
		})
		openai.Refuse(w, http.StatusForbidden, "the key that asks tells no rewards: read the key for it from the "+
			"descriptor that ONERING_REWARD_FD names, before anything else is started")
	case e.ended.Err() != nil:
		openai.Refuse(w, http.StatusConflict, "the episode of this key has ended")
	default:
		return e
	}
	return nil
}

// handleEpisode returns the handler of requests about the episode of their key: do gets the body. right says whether
// the key may do it; see episodeOf.
func (r *round) handleEpisode(right func(e *episode, key string) bool, do func(e *episode, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		e := r.episodeOf(w, q, right)
		if e == nil {
			return
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
