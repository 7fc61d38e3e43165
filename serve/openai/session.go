package openai

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"onering/sampler"
	"onering/tokenize"
)

// A Session is one episode of a program that asks for each turn itself, with the
// session's key. A request whose history continues the last answer continues in its
// cache: sampled tokens are never encoded again. Any other history begins a new segment.
type Session struct {
	// Options say how all turns are sampled, and Request.ID and First which random draws
	// they have; a request decides only the largest number of tokens of its turn.
	Options sampler.Options
	Request sampler.Request
	// MaxTurns is the largest number of turns.
	MaxTurns int

	turnLock  sync.Mutex    // held while a request is answered; guards the next two fields
	turnCount int           // number of turns
	turnEnded chan struct{} // closed at the end of the newest turn

	// Only the engine changes these, between two steps.
	segments     []*segment
	newestEvents *answer       // events of the newest turn
	openTurn     chan struct{} // the newest turn's turnEnded, until the engine closes it
	closed       bool
	failed       error
}

// A segment is a conversation that only grew.
type segment struct {
	prompt         []int32
	messages       []clientMessage // the messages of its newest request, and the answer
	text           string          // text of a completion that the client holds: the prompt and everything after it
	call           *sampler.Call
	model          *Model
	resume         func(sampler.Observation) // continues after the newest turn; nil at the end
	response       sampler.Response          // all turns that have ended
	delivered      bool                      // the client has received the newest turn completely
	hiddenStop     string                    // the stop text of the newest turn, if the client did not receive it
	textIsComplete bool                      // the text that the client received, with hiddenStop, is everything that was sampled
}

// session returns the session of the key of a request, nil if there is none.
func (o *Options) session(r *http.Request) *Session {
	if o.Sessions == nil {
		return nil
	}
	return o.Sessions(KeyOf(r))
}

// converse answers a request of an episode with one turn: it waits until the turn before has ended, continues the
// newest segment if the history that the request states does, or else begins a new one, and writes the answer.
func (x *Session) converse(s *Server, w http.ResponseWriter, r *http.Request, j *job, stated func() history) error {
	x.turnLock.Lock()
	defer x.turnLock.Unlock()
	switch {
	case j.sampleCount() != 1 || len(j.prompts) != 1:
		return invalid("n", "an episode has one response to each of its requests")
	case x.turnCount == x.MaxTurns:
		return &failure{status: http.StatusConflict, message: fmt.Sprintf("the episode has had its %d turns (environment.max_turns)", x.MaxTurns),
			kind: "invalid_request_error", code: "episode_over"}
	}
	if err := s.engine.betweenSteps(r.Context(), x.refusal); err != nil {
		return err
	}
	if err := x.awaitTurn(r.Context()); err != nil { // a turn goes on after its client has gone
		return err
	}
	h := stated()
	seg, ids, err := x.continuedSegment(h)
	if err != nil {
		return err
	}
	if seg != nil {
		j.prompts[0] = slices.Concat(seg.tokens(), ids)
		seg.delivered = false // until noteTurn: a client that misses this turn cannot continue it
		if n := len(seg.messages); n < len(h.messages) {
			h.messages = slices.Concat(seg.messages, h.messages[n:]) // with thoughts that the request may lack
		}
	}
	j.options.Steering = x.Options.Steering // the run's, as the turn is sampled: j's choice reads MinTokens of it
	if err := x.checkConstraint(j); err != nil {
		return err
	}
	c := j.choice()
	j.choices = []*choice{c}
	events, ended := new(answer), make(chan struct{})
	if err := s.engine.betweenSteps(r.Context(), func() error {
		if err := x.refusal(); err != nil { // again: the episode may have ended meanwhile
			return err
		}
		x.newestEvents, x.openTurn = events, ended // the next events are this turn's
		if seg == nil {
			ids = j.prompts[0] // in a new segment the whole prompt is new
			return x.begin(s.engine, j)
		}
		x.applyRequest(&seg.call.Options, j)
		seg.resume(sampler.Observation{IDs: ids, TurnTokens: seg.call.TurnTokens})
		return nil
	}); err != nil {
		return err
	}
	x.turnCount, x.turnEnded = x.turnCount+1, ended
	s.promptTokens.Add(float64(len(ids)))
	seg = x.segments[len(x.segments)-1]
	seg.text = h.text
	if err = j.writeResponses(w, r, events, 1); err == nil && c.finish != "" { // "": the client of a stream has gone
		seg.noteTurn(j, c, h)
	}
	return err
}

// sayConstrained says once that answers are held to a form.
var sayConstrained sync.Once

// checkConstraint refuses the form of an answer where the run cannot train on it.
func (x *Session) checkConstraint(j *job) error {
	switch {
	case j.options.Constraint == nil:
		return nil
	case x.Options.Kept || x.Options.MinTokens > 0:
		return invalid("response_format", "this run trains on log-probs over the tokens that its filters keep, or has min_tokens: "+
			"its answers have no form that a request states (response_format, tool_choice, strict tools)")
	}
	sayConstrained.Do(func() {
		slog.Warn("programs hold the answers of episodes to a form (response_format, tool_choice or strict tools): the policy also " +
			"trains on tokens that it had to write, with their log-probs over the whole vocabulary")
	})
	return nil
}

// noteTurn notes the newest turn as its client has received it, for the next request's history: c is the answer to
// the request of j, which stated h.
func (g *segment) noteTurn(j *job, c *choice, h history) {
	g.delivered = true
	g.messages = append(slices.Clone(h.messages), comparableMessage("assistant", c.thought.String(), c.text.String(), c.calls))
	g.text += c.text.String()
	g.hiddenStop = g.response.Stop
	if j.WithStop {
		g.hiddenStop = ""
	}
	g.textIsComplete = h.encodeMore != nil && j.model.Tokenizer.Decode(c.ids, true) == c.text.String()+g.hiddenStop
}

// refusal says why the episode may have no further turn. The engine calls it.
func (x *Session) refusal() error {
	if x.closed {
		return errOver
	}
	return x.failed
}

// awaitTurn waits for the end of the newest turn, which goes on where its client has gone before that.
func (x *Session) awaitTurn(ctx context.Context) error {
	if x.turnEnded == nil {
		return nil
	}
	select {
	case <-x.turnEnded:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// update updates the newest turn from an event. The engine calls it.
func (x *Session) update(e event) {
	if x.newestEvents == nil {
		return
	}
	x.newestEvents.Add(e)
	if (e.finish != "" || e.err != nil) && x.openTurn != nil {
		close(x.openTurn)
		x.openTurn = nil
	}
}

// errOver is the error of a request after the end of its episode.
var errOver = &failure{http.StatusConflict, "the episode of this key has ended", "invalid_request_error", "", "episode_over"}

// A history is the conversation so far, as a request states it.
type history struct {
	messages    []clientMessage                  // messages of a chat
	text        string                           // text of a completion
	ids         []int32                          // ids of a completion in ids
	tokensAfter func(after int) ([]int32, error) // for a chat: the template's text after message number after-1
	encodeMore  func(text string) ([]int32, error)
}

// continuedSegment returns the newest segment if a history continues it, and the tokens that follow; nil if none is
// continued. The history repeats, beyond doubt, the segment's messages (of a chat), or the ids or the text of a completion.
func (x *Session) continuedSegment(h history) (*segment, []int32, error) {
	if len(x.segments) == 0 {
		return nil, nil, nil
	}
	seg := x.segments[len(x.segments)-1]
	if seg.resume == nil || !seg.delivered {
		return nil, nil, nil // the segment is full, or its client has not read the last turn
	}
	var ids []int32
	var err error
	switch n := len(seg.messages); {
	case h.tokensAfter != nil && n > 0 && len(h.messages) > n && slices.EqualFunc(h.messages[:n], seg.messages, clientMessage.matches):
		ids, err = h.tokensAfter(n)
		// The template's text may begin with the end token that the policy has sampled.
		ids = tokenize.After(seg.response.IDs[len(seg.response.IDs)-1], x.Options.EOS, ids)
	case h.ids != nil:
		all := seg.tokens()
		if len(h.ids) <= len(all) || !slices.Equal(h.ids[:len(all)], all) {
			return nil, nil, nil
		}
		ids = h.ids[len(all):]
	case h.encodeMore != nil && seg.text != "" && len(h.text) > len(seg.text) && strings.HasPrefix(h.text, seg.text):
		// The policy sampled the stop text, which its client did not receive.
		rest, is := strings.CutPrefix(h.text[len(seg.text):], seg.hiddenStop)
		if !is || !seg.textIsComplete {
			return nil, nil, nil // more was sampled than the client's text has
		}
		ids, err = h.encodeMore(rest)
	default:
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return seg, ids, nil
}

// tokens returns the segment's tokens until the end of its newest turn.
func (g *segment) tokens() []int32 {
	all, _ := g.response.Tokens()
	return slices.Concat(g.prompt, all)
}

// applyRequest sets what a request may decide: the end of its turn, and the reported figures.
func (x *Session) applyRequest(o *sampler.Options, j *job) {
	o.Constraint = j.options.Constraint
	o.TurnTokens, o.Top, o.EOS = 0, j.options.Top, slices.Concat(x.Options.EOS, j.StopIDs)
	if j.MaxTokens != nil {
		o.TurnTokens = *j.MaxTokens
	}
	if o.Stops = slices.Concat(j.options.Stops, x.Options.Stops); len(o.Stops) > 0 {
		o.Text = func() sampler.TextDecoder { return j.model.Tokenizer.NewDecoder() }
	}
}

// begin begins a segment with the prompt of a job; its tokens and turns become events of the newest turn. The engine
// calls it.
func (x *Session) begin(e *engine, j *job) error {
	before := x.segments
	if n := len(before); n > 0 {
		slog.Info("an episode's history was rewritten: a new segment of it begins", "id", x.Request.ID, "sample", x.Request.First, "segment", n+1)
	}
	g := &segment{prompt: j.prompts[0], model: j.model}
	q := x.Request
	q.Prompt, q.Samples = g.prompt, 1
	q.ID += uint64(len(before)) << 48 // its own random draws
	o := x.Options
	x.applyRequest(&o, j)
	o.Token = func(t sampler.Token) { x.update(event{id: t.ID, logp: t.LogProb, top: t.Likeliest}) }
	o.Turn = func(r sampler.Response, resume func(sampler.Observation)) {
		g.response, g.resume = r, resume
		x.update(event{finish: r.Finish, stop: r.Stop})
	}
	done := func(r sampler.Response) { o.Turn(r, nil) } // nil: no turn can follow in this segment
	g.call = &sampler.Call{Options: o, Request: q, Done: done, Failed: func(err error) {
		x.failed = cmp.Or(x.failed, err)
		x.update(event{err: err})
	}}
	if err := j.model.scheduler.Add(e.stopOnFatal(g.call)); err != nil {
		return err
	}
	freeSlots(before) // not earlier: a prompt that Add refuses changes nothing
	x.segments = append(before, g)
	return nil
}

// freeSlots frees the slots of waiting segments.
func freeSlots(list []*segment) {
	for _, g := range list {
		if g.call != nil {
			g.model.scheduler.Cancel(g.call)
			g.call = nil
		}
	}
}

// End ends the episode and refuses further requests. It returns the segments: the turns that have ended, in order.
func (x *Session) End(s *Server) (segments []sampler.Segment, err error) {
	stopped := s.engine.betweenSteps(context.Background(), func() error {
		x.closed, err = true, x.failed
		freeSlots(x.segments)
		for _, g := range x.segments {
			if len(g.response.IDs) > 0 {
				segments = append(segments, sampler.Segment{Prompt: g.prompt, Response: g.response})
			}
		}
		x.update(event{err: errOver}) // for a request that is being answered
		return nil
	})
	return segments, cmp.Or(err, stopped)
}
