package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"onering/sampler"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// A job is a request that is being answered.
type job struct {
	*common
	model         *Model
	counts        *counts   // may be nil
	owner         string    // whose prompts it may continue
	prompt                  // of a chat
	onlyFirstCall bool      // only one call is reported
	prompts       [][]int32 // of a chat there is one
	options       sampler.Options
	chat          bool
	idsOnly       bool // the answer has ids and no text
	logprobs      bool
	top           int // how many likeliest tokens to report for each token

	id      string
	created int64
	choices []*choice // samples of the first prompt, of the second, and so on
	form    form      // of the answer
}

// A form is that of answers in one API: of whole ones, and of the events of streams. pieces adds an event to its
// choice, and returns what is new.
type form interface {
	whole(j *job) any
	opening(j *job) []streamEvent
	pieces(j *job, e event) []streamEvent
	closing(j *job) []streamEvent
	failed(f *failure) streamEvent
}

// A streamEvent is an event that a stream sends.
type streamEvent struct {
	name string // "" for none
	body any    // a text goes as it is, all else as JSON
}

// complete answers POST /v1/completions: prompts that are texts or ids. It uses no chat template, and so none of the
// template's stop texts, and no tools.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, body []byte) error {
	var c completion
	j, err := s.job(r, body, &c, "cmpl")
	if err != nil {
		return err
	}
	if j.logprobs = c.Logprobs != nil; j.logprobs {
		j.top = *c.Logprobs
	}
	for _, p := range c.Prompt {
		ids, err := j.model.encode(p)
		if err != nil {
			return err
		}
		j.prompts = append(j.prompts, ids)
	}
	const usual = 16 // OpenAI's default
	if err := j.setSampling(min(usual, s.MaxTokens), s.MaxTokens, nil, toolChoice{}); err != nil {
		return err
	}
	return s.answer(w, r, j, func() history { // for an episode, whose requests have one prompt
		h := history{ids: c.Prompt[0].ids}
		if text := c.Prompt[0].text; text != nil {
			h = history{text: *text, encodeMore: func(text string) ([]int32, error) { // what follows the text of earlier turns
				ids, _ := j.model.Tokenizer.EncodeSpans(text, nil)
				return ids, j.model.Tokenizer.Check(text)
			}}
		}
		return h
	})
}

// chat answers POST /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, body []byte) error {
	j, stated, err := new(chat).job(s, r, body, "chatcmpl")
	if err != nil {
		return err
	}
	return s.answer(w, r, j, stated)
}

// job reads the body of a chat, to which the requests of other APIs are rewritten, and begins its job. kind
// begins the job's id; stated returns the history that the chat states, for an episode.
func (c *chat) job(s *Server, r *http.Request, body []byte, kind string) (j *job, stated func() history, err error) {
	if j, err = s.job(r, body, c, kind); err != nil {
		return nil, nil, err
	}
	j.chat, j.logprobs = true, c.Logprobs
	if c.TopLogprobs != nil {
		j.top = *c.TopLogprobs
	}
	d, err := c.dialogue(j.model)
	if err == nil {
		j.prompt, err = j.model.prompt(d)
	}
	if err != nil {
		return nil, nil, err
	}
	j.prompts, j.onlyFirstCall = [][]int32{j.prompt.ids}, c.Parallel != nil && !*c.Parallel
	usual := min(cmp.Or(j.model.Sampling.MaxNewTokens, s.MaxTokens), s.MaxTokens)
	err = j.setSampling(usual, s.MaxTokens, j.model.Template.Stops, c.ToolChoice)
	return j, func() history { return j.model.history(d) }, err
}

// A request is the body of a request that is answered by responses.
type request interface {
	check() error
	shared() *common
}

// job reads a body into q, checks it, and begins its job with the model that it names. kind begins the job's id.
func (s *Server) job(r *http.Request, body []byte, q request, kind string) (*job, error) {
	c := q.shared()
	m, err := parse(body, q, c, s.modelFinder(r))
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return nil, err
	}
	if len(c.Stop) > 0 && m.Tokenizer == nil {
		return nil, invalid("stop", "the model has no tokenizer, and stop needs one")
	}
	owner := "\n" + string(c.Salt) // "\n": no key has it, so an owner with a key is never one without
	if !s.SharePrefixes {          // a job continues only prompts of its owner in the cache
		owner = KeyOf(r) + owner
	}
	now := time.Now()
	return &job{common: c, model: m, counts: &s.counts, owner: owner, form: completions{},
		id: fmt.Sprintf("%s-%x-%d", kind, s.started.UnixNano(), s.requests.Add(1)), created: now.Unix()}, nil
}

// setSampling sets how the responses are sampled: at most most tokens each, usual ones if the request does not
// say; stops are the template's stop texts, and choice holds the answer to calls of tools.
func (j *job) setSampling(usual, most int, stops []string, choice toolChoice) error {
	sampling, err := j.sampling(usual, most)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(j.Bias)) {
		if x := j.Bias[id]; id < 0 || int(id) >= j.model.Vocab || !(math.Abs(x) <= 100) {
			return invalid("logit_bias", "logit_bias has %v for the id %d: the model has ids 0 to %d, and a bias is from -100 to 100", x, id, j.model.Vocab-1)
		}
	}
	j.options = j.common.options(j.model, sampling, stops)
	j.options.Top = j.top
	return j.constrain(choice)
}

// answer samples the responses and writes them, whole or as they come. If the request's API key is that of an
// episode, they are its next turn; stated returns the conversation so far, as the request states it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, j *job, stated func() history) error {
	if x := s.session(r); x != nil {
		return x.converse(s, w, r, j, stated)
	}
	n := len(j.prompts) * j.sampleCount()
	if err := s.engine.reserve(n); err != nil {
		return err
	}
	defer s.engine.reserved.Add(-int64(n))
	a := new(answer)
	var calls []*sampler.Call
	for i, p := range j.prompts {
		calls = append(calls, a.newCall(j.options, p, i, j.sampleCount()))
		calls[i].Owner = j.owner
	}
	for range n {
		j.choices = append(j.choices, j.choice())
	}
	// r's context ends, too, when a client closes its side of the connection and still reads the answer. Whether it has
	// gone is found out by writing: if a write fails, writeResponses returns, and cancel ends the sampling.
	cancel, err := s.engine.submit(context.WithoutCancel(r.Context()), j.model, calls)
	if err != nil {
		return err
	}
	defer cancel()
	s.promptTokens.Add(float64(j.usage().Prompt))
	return j.writeResponses(w, r, a, n)
}

// writeResponses writes n responses: as their events arrive if a stream is asked for, else as one body when all ended.
func (j *job) writeResponses(w http.ResponseWriter, r *http.Request, a *answer, n int) error {
	if j.Stream {
		return j.stream(w, r, a)
	}
	for unfinished := n; unfinished > 0; {
		events, err := a.next(r.Context(), keepAlive(w, "application/json", " ")) // a space before JSON means nothing
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.err != nil {
				return e.err
			}
			j.choices[e.choice].add(e)
			if e.finish != "" {
				unfinished--
			}
		}
	}
	Write(w, http.StatusOK, j.form.whole(j))
	return nil
}

// completions is the form of OpenAI's completions and chats.
type completions struct{}

// wholeObject and pieceObject end the name of the kind of object that a body is, of a whole answer or a piece of one.
const wholeObject, pieceObject = "", ".chunk"

// whole returns the body of an answer that is not streamed: the choices and the usage, and where requests and answers
// are in ids (idsOnly) nothing else but the id.
func (completions) whole(j *job) any {
	body := j.withChoices(wholeObject, func(i int) part {
		c := j.choices[i]
		p := j.part(i, c.ids, c.logp, c.top)
		p.Finish = &c.finish
		if j.chat {
			p.Message = j.message(i)
		} else if !j.idsOnly {
			p.Text = new(c.text.String())
		}
		return p
	})
	body.Usage = j.usage()
	if j.idsOnly {
		return map[string]any{"request_id": body.ID, "choices": body.Choices, "usage": body.Usage}
	}
	return body
}

// withChoices returns a body with what partOf makes of each choice, and the prompts' ids if they are asked for.
func (j *job) withChoices(suffix string, partOf func(i int) part) reply {
	body := j.reply(suffix)
	for i := range j.choices {
		p := partOf(i)
		if j.ReturnTokenIDs && !j.chat {
			p.PromptIDs = j.prompts[i/j.sampleCount()]
		}
		body.Choices = append(body.Choices, p)
	}
	if j.ReturnTokenIDs && j.chat {
		body.PromptIDs = j.prompts[0]
	}
	return body
}

// reply returns a body without choices; suffix determines its kind of object.
func (j *job) reply(suffix string) reply {
	object := "text_completion"
	if j.chat {
		object = "chat.completion" + suffix
	}
	return reply{ID: j.id, Object: object, Created: j.created, Model: j.model.Name, Choices: []part{}}
}

// part returns the fields of choice number i besides its text, for some of its tokens: log-probs, with the likeliest
// tokens, and ids, each if the request asks for them.
func (j *job) part(i int, ids []int32, logp []float32, top [][]sampler.Candidate) part {
	p := part{Index: i}
	m := j.model
	if j.idsOnly || j.NamedByID {
		m = new(Model) // without a tokenizer, tokens are named by their ids
	}
	switch {
	case !j.logprobs:
	case j.idsOnly || j.chat: // vLLM gives both the same form
		p.Logprobs = m.chatLogprobs(ids, logp, top)
	default:
		p.Logprobs = m.completionLogprobs(ids, logp, top, j.choices[i])
	}
	if j.ReturnTokenIDs {
		p.IDs = new(append([]int32{}, ids...))
	}
	return p
}

// usage counts the tokens of the prompts and responses so far. A prompt counts once for all its samples.
func (j *job) usage() *usage {
	u := usage{}
	for _, p := range j.prompts {
		u.Prompt += len(p)
	}
	for i, c := range j.choices {
		u.Completion += len(c.ids)
		u.Details.Thoughts += c.thoughtTokens
		if i%j.sampleCount() == 0 {
			u.PromptDetails.Cached += c.cached
		}
	}
	u.Total = u.Prompt + u.Completion
	return &u
}

// stream writes pieces as they arrive. An error is sent as a piece, too, since the status has gone out before.
func (j *job) stream(w http.ResponseWriter, r *http.Request, a *answer) error {
	control := http.NewResponseController(w)
	send := func(list []streamEvent) (err error) {
		for _, x := range list {
			text, isText := x.body.(string) // such as [DONE], which goes as it is
			if !isText {
				var encoded []byte
				encoded, err = json.Marshal(x.body)
				text = string(encoded)
			}
			head := ""
			if x.name != "" { // OpenAI's events have none
				head = "event: " + x.name + "\n"
			}
			_ = control.SetWriteDeadline(time.Now().Add(patience)) // a writer without deadlines gives an error
			if err == nil {
				_, err = fmt.Fprintf(w, "%sdata: %s\n\n", head, text)
			}
		}
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	unfinished := len(j.choices)
	if err := send(j.form.opening(j)); err != nil {
		return nil
	}
	for unfinished > 0 {
		if control.Flush() != nil {
			return nil
		}
		events, err := a.next(r.Context(), keepAlive(w, "text/event-stream", ":\n\n")) // an event that is a comment
		if err != nil {
			return nil // the client has gone
		}
		for _, e := range events {
			if e.err != nil {
				_ = send([]streamEvent{j.form.failed(failureOf(e.err))})
				return nil
			}
			if e.finish != "" {
				unfinished--
			}
			if send(j.form.pieces(j, e)) != nil {
				return nil
			}
		}
	}
	_ = send(j.form.closing(j)) // a client that has gone misses nothing
	return nil
}

func (completions) failed(f *failure) streamEvent { return streamEvent{body: f} }

// closing returns the usage, if asked for, and the mark of the end.
func (completions) closing(j *job) (list []streamEvent) {
	if j.StreamOptions != nil && j.StreamOptions.IncludeUsage {
		body := j.reply(pieceObject)
		body.Usage = j.usage()
		list = append(list, streamEvent{body: body})
	}
	return append(list, streamEvent{body: "[DONE]"})
}

// opening returns the first piece: for a chat the role, and the prompts' ids if asked for.
func (completions) opening(j *job) []streamEvent {
	return []streamEvent{{body: j.withChoices(pieceObject, func(i int) part {
		if j.chat {
			return part{Index: i, Delta: &chatMessage{Role: "assistant", Content: ""}}
		}
		return part{Index: i, Text: new("")}
	})}}
}

// pieces adds an event to its choice, and returns what is new: a part with the token's text, or with the reason of the
// end, and two parts for each call that the event completes.
func (completions) pieces(j *job, e event) (list []streamEvent) {
	c := j.choices[e.choice]
	added := c.add(e)
	p := part{Index: e.choice, Finish: &c.finish}
	if e.finish == "" {
		p = j.part(e.choice, []int32{e.id}, []float32{e.logp}, [][]sampler.Candidate{e.top})
	}
	if j.chat {
		p.Delta = &chatMessage{Thought: added.thought}
		if added.text != "" || added.thought == "" { // a piece has a content, be it empty, unless it is a thought
			p.Delta.Content = added.text
		}
	} else {
		p.Text = &added.text
	}
	parts := j.deltas(e.choice, added.calls)
	if e.finish == "" {
		parts = slices.Insert(parts, 0, p) // a token's text stands before the calls
	} else {
		parts = append(parts, p) // the end comes last
	}
	for _, p := range parts {
		body := j.reply(pieceObject)
		body.Choices = append(body.Choices, p)
		list = append(list, streamEvent{body: body})
	}
	return list
}

// A choice is one response as a client sees it: its text without end-of-sequence tokens, ending before the stop text.
type choice struct {
	job         *job
	textDecoder *tokenize.StreamDecoder // nil without a tokenizer
	withheld    string                  // text that may be the beginning of a stop text
	stopFound   bool                    // a stop text was found

	offsetDecoder *tokenize.StreamDecoder // decodes the tokens whose offset in the text was asked for
	offset        int                     // number of their complete characters

	thoughts *tokenize.Thoughts // cuts thoughts out, nil for a completion
	reader   *tools.Stream      // reads calls, nil if there are no tools
	calls    []tools.Call

	cached        int // number of tokens of its prompt that were not computed
	thoughtTokens int // number of tokens inside its thought
	ids           []int32
	logp          []float32
	top           [][]sampler.Candidate // likeliest tokens of each token, if asked for
	thought, text strings.Builder
	finish        string // "" until the end
	stop          string // the stop text that ended it
}

// choice begins a response: a decoder for its text and another for the offsets of its tokens (a log-prob's
// text_offset), and what cuts thoughts and calls of tools out of the text.
func (j *job) choice() *choice {
	c := &choice{job: j}
	if j.model.Tokenizer == nil {
		return c
	}
	var keep []string // special tokens that the text needs until thoughts and calls are cut out
	if j.chat {
		c.thoughts, keep = j.model.Tokenizer.NewDecoder().Thoughts(j.prompts[0]), tokenize.ThoughtMarks
		if strings.TrimSpace(j.continued) != "" {
			c.thoughts.Add(j.continued) // what the prompt has of this message
		}
	}
	if j.format != nil {
		c.reader, keep = j.format.Stream(), slices.Concat(keep, j.format.Marks)
	}
	c.textDecoder, c.offsetDecoder = j.model.Tokenizer.NewDecoder(), j.model.Tokenizer.NewDecoder()
	for _, d := range []*tokenize.StreamDecoder{c.textDecoder, c.offsetDecoder} {
		d.SkipSpecial, d.Keep = j.SkipSpecial == nil || *j.SkipSpecial, keep
	}
	return c
}

// textOffset returns the character offset at which the next token begins: inside a character, if the token
// completes one. name is the token's name without a tokenizer.
func (c *choice) textOffset(id int32, name string) int {
	if c.offsetDecoder == nil {
		at := c.offset
		c.offset += utf8.RuneCountInString(name)
		return at
	}
	at := c.offset + utf8.RuneCountInString(c.offsetDecoder.Pending())
	c.offset += utf8.RuneCountInString(c.offsetDecoder.Add(id))
	return at
}

// A piece is what an event adds to a response.
type piece struct {
	thought, text string
	calls         []tools.Call
}

// add takes an event of this response, a token or its end, and returns what a client sees more of it. The steps follow
// each other: text up to a possible stop text, then thoughts cut out of it, then calls out of the rest.
func (c *choice) add(e event) (p piece) {
	if e.finish != "" {
		c.finish, c.stop = string(e.finish), e.stop
		if c.textDecoder != nil {
			p.text = c.withholdStop(c.textDecoder.Flush())
		}
		if !c.stopFound {
			p.text, c.withheld = p.text+c.withheld, "" // what might have become a stop text did not
		}
	} else {
		c.ids, c.logp, c.cached = append(c.ids, e.id), append(c.logp, e.logp), e.cached
		if e.top != nil {
			c.top = append(c.top, e.top)
		}
		if c.textDecoder != nil && (c.job.WithStop || !slices.Contains(c.job.options.EOS, e.id)) {
			p.text = c.withholdStop(c.textDecoder.Add(e.id))
		}
	}
	if c.thoughts != nil {
		p.thought, p.text = c.thoughts.Add(p.text)
		if e.finish != "" {
			more, rest := c.thoughts.End()
			p.thought, p.text = p.thought+more, p.text+rest
		} else if c.thoughts.Inside() {
			c.thoughtTokens++
		}
	}
	if c.reader != nil {
		c.readCalls(&p, e.finish != "")
	}
	if c.job.counts != nil {
		c.job.counts.add(c.finish) // counts a token if finish is still ""
	}
	c.thought.WriteString(p.thought)
	c.text.WriteString(p.text)
	return p
}

// readCalls moves calls of tools from a piece's text to its calls; ends says that the piece is the response's last.
// A response with calls then finishes with "tool_calls", unless the limit of tokens cut one off.
func (c *choice) readCalls(p *piece, ends bool) {
	p.text, p.calls = c.reader.Add(p.text)
	cutByLimit := false
	if ends {
		rest, last, err := c.reader.End() // text that is not a call stays text
		p.text, p.calls = p.text+rest, append(p.calls, last...)
		cutByLimit = err != nil && c.finish == string(sampler.Length)
	}
	if c.job.onlyFirstCall {
		p.calls = p.calls[:min(len(p.calls), 1-len(c.calls))] // none if there was one
	}
	c.calls = append(c.calls, p.calls...)
	if ends && len(c.calls) > 0 && !cutByLimit {
		c.finish = "tool_calls"
	}
}

// withholdStop adds text to what is withheld, and releases the part that can no longer belong to a stop text. Once a
// stop text is found, it releases the text before it, or with WithStop the stop text too, and then nothing.
func (c *choice) withholdStop(text string) string {
	if c.stopFound {
		return ""
	}
	c.withheld += text
	end, stop := len(c.withheld), ""
	for _, s := range c.job.options.Stops {
		if i := strings.Index(c.withheld, s); i >= 0 && i < end && len(c.ids) >= c.job.options.MinTokens {
			end, stop, c.stopFound = i, s, true
		}
	}
	if c.stopFound && c.job.WithStop {
		end += len(stop)
	} else if !c.stopFound {
		for _, s := range c.job.options.Stops {
			end = min(end, len(c.withheld)-tokenize.Begun(c.withheld, s)) // Begun: as many bytes at the end may begin s
		}
	}
	text, c.withheld = c.withheld[:end], c.withheld[end:]
	return text
}
