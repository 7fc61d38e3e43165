package episodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"onering/environment"
	"onering/internal/process"
	"onering/sampler"
	"onering/serve/openai"
)

// A round is the episodes that are played until the next steps of training.
type round struct {
	*Driver
	drive   environment.Drive
	server  *openai.Server
	handler http.Handler

	mu   sync.Mutex
	keys map[string]*episode // of those that have begun
	left []*episode          // that have not
}

// An episode is what a program plays with a key.
type episode struct {
	environment.Start
	request int
	key     string
	session *openai.Session
	begun   chan struct{} // has an element when a program has taken it
	ended   chan struct{} // closed when the program says so
	end     sync.Once

	mu       sync.Mutex
	reward   float64
	rewarded bool
}

// episode makes the episode of a sample of a request.
func (r *round) episode(request, k int) *episode {
	g, q := r.drive.Groups[request], r.drive.Requests[request]
	e := &episode{Start: g.Start, request: request, key: newKey(), begun: make(chan struct{}, 1), ended: make(chan struct{})}
	e.Sample = g.Number(k)
	o := r.drive.Options
	o.Token, o.Turn, o.DropLong = nil, nil, false
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

// begin takes the next episode; nil if all have begun.
func (r *round) begin() *episode {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.left) == 0 {
		return nil
	}
	e := r.left[0]
	r.left = r.left[1:]
	r.keys[e.key] = e
	select {
	case e.begun <- struct{}{}:
	default:
	}
	return e
}

// putBack gives an episode to another program: the one that asked for it is gone.
func (r *round) putBack(e *episode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, e.key)
	r.left = append(r.left, e)
}

// play plays all episodes and tells of each that has ended.
func (r *round) play(ctx context.Context, ended func(environment.Driven)) (stats sampler.Stats) {
	var told sync.Mutex
	finish := func(e *episode, err error) {
		x := r.finish(e, err)
		told.Lock()
		defer told.Unlock()
		for _, s := range x.Segments {
			stats.Tokens += len(s.IDs)
			stats.PrefillTokens += len(s.Prompt)
		}
		stats.Responses++
		ended(x)
	}
	stats.Slots = r.drive.Decoder.Slots()
	var programs sync.WaitGroup
	defer programs.Wait()
	if len(r.command) == 0 {
		for _, e := range slices.Clone(r.left) {
			programs.Go(func() { finish(e, r.await(ctx, e)) })
		}
		return stats
	}
	for range min(r.drive.AtOnce, len(r.left)) {
		programs.Go(func() {
			for e := r.begin(); e != nil && ctx.Err() == nil; e = r.begin() {
				finish(e, r.run(ctx, e))
			}
		})
	}
	programs.Wait()
	return stats
}

// await waits for the end of an episode that a program begins.
func (r *round) await(ctx context.Context, e *episode) error {
	select {
	case <-e.begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-e.ended:
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
		"OPENAI_BASE_URL=" + r.url, "OPENAI_API_KEY=" + e.key, "ONERING_PROBLEM=" + string(problem),
	}})
	return err
}

// mostOutput is how many bytes a program may print in an episode.
const mostOutput = 1 << 20

// finish ends an episode and says what came of it.
func (r *round) finish(e *episode, err error) environment.Driven {
	r.mu.Lock()
	r.left = slices.DeleteFunc(r.left, func(x *episode) bool { return x == e })
	r.mu.Unlock()
	segments, failed := e.session.End(r.server)
	x := environment.Driven{Request: e.request, Sample: e.Sample, Segments: segments}
	if g := r.drive.Groups[e.request]; g.Samples != nil {
		x.Sample = slices.Index(g.Samples, e.Sample)
	}
	if err = errors.Join(err, failed); err == nil && len(segments) == 0 {
		err = errors.New("the program has asked for nothing")
	}
	if err != nil {
		x.Failed = fmt.Errorf("environment: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(segments); e.rewarded && n > 0 {
		x.Rewards = slices.Repeat([]float64{math.NaN()}, len(segments[n-1].Observed)+1)
		x.Rewards[len(x.Rewards)-1] = e.reward // where it fell between the turns is not known
	}
	return x
}

// A problem is what a program is told of an episode.
type problem struct {
	ID      string          `json:"id"`
	Text    string          `json:"text"`
	Columns json.RawMessage `json:"columns,omitempty"` // of its row
	Seed    uint64          `json:"seed"`
	Sample  int             `json:"sample"`
}

func problemOf(e *episode) problem {
	p := problem{ID: e.Problem.ID, Text: e.Problem.Text, Seed: e.Seed, Sample: e.Sample}
	if e.Problem.Fields != nil {
		p.Columns, _ = e.Problem.Fields.MarshalJSON() // it cannot fail
	}
	return p
}

// addReward adds to what an episode has earned.
func (e *episode) addReward(x float64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if sum := e.reward + x; math.IsNaN(sum) || math.IsInf(sum, 0) {
		return fmt.Errorf("the reward would be %v, which is not a finite number", sum)
	}
	e.reward, e.rewarded = e.reward+x, true
	return nil
}
