package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"onering/sampler"
	"onering/tokenize/tools"
)

// A reply is the body of an answer, and of a piece of a streamed one.
type reply struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []part `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
	// PromptIDs are the prompt's ids of a chat; a completion has them in its choices.
	PromptIDs []int32 `json:"prompt_token_ids,omitempty"`
}

// A part is a choice, or a piece of one. Fields that do not fit the kind of answer are nil.
type part struct {
	Index     int          `json:"index"`
	Text      *string      `json:"text,omitempty"`    // text of a completion
	Message   *chatMessage `json:"message,omitempty"` // message of a chat that is not streamed
	Delta     *chatMessage `json:"delta,omitempty"`   // piece of a streamed chat
	Logprobs  any          `json:"logprobs"`
	Finish    *string      `json:"finish_reason"`
	PromptIDs []int32      `json:"prompt_token_ids,omitempty"`
	IDs       *[]int32     `json:"token_ids,omitempty"`
}

// A chatMessage is a message, or a piece of one.
type chatMessage struct {
	Role    string `json:"role,omitempty"`
	Thought string `json:"reasoning_content,omitempty"`
	Content any    `json:"content,omitempty"` // a text, null beside calls, nil in a piece with a call or a thought alone
	Calls   []call `json:"tool_calls,omitempty"`
}

// A call is one of a tool, or a piece of one.
type call struct {
	Index    *int   `json:"index,omitempty"` // set in a stream
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// call is call number n of choice number i, with its id.
func (j *job) call(i, n int, of tools.Call) (c call) {
	c.ID, c.Type = fmt.Sprintf("call_%s-%d-%d", strings.TrimPrefix(j.id, "chatcmpl-"), i, n), "function"
	c.Function.Name, c.Function.Arguments = of.Name, string(of.Arguments)
	return c
}

// message returns the message of a chat's choice.
func (j *job) message(i int) *chatMessage {
	c := j.choices[i]
	m := &chatMessage{Role: "assistant", Thought: c.thought.String(), Content: c.text.String()}
	for n, x := range c.calls {
		m.Calls = append(m.Calls, j.call(i, n, x))
	}
	if len(c.calls) > 0 && c.text.Len() == 0 {
		m.Content = json.RawMessage("null")
	}
	return m
}

// deltas returns the pieces for the newest calls of choice number i, which it has already: for each call one with the
// name, and one with the arguments.
func (j *job) deltas(i int, calls []tools.Call) (list []part) {
	first := len(j.choices[i].calls) - len(calls)
	for n, x := range calls {
		begin := j.call(i, first+n, x)
		begin.Index, begin.Function.Arguments = new(first+n), ""
		rest := call{Index: begin.Index}
		rest.Function.Arguments = string(x.Arguments)
		for _, c := range []call{begin, rest} {
			list = append(list, part{Index: i, Delta: &chatMessage{Calls: []call{c}}})
		}
	}
	return list
}

type usage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	Total         int `json:"total_tokens"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"` // of a prompt that were kept of earlier ones
	} `json:"prompt_tokens_details"`
	Details struct {
		Thoughts int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// completionLogprobs are the log-probs in answers of /v1/completions.
type completionLogprobs struct {
	Tokens  []string  `json:"tokens"`
	LogP    []float32 `json:"token_logprobs"`
	Top     []any     `json:"top_logprobs"`
	Offsets []int     `json:"text_offset"` // in characters of the response's text
}

// chatLogprobs are the log-probs in answers of /v1/chat/completions.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token string  `json:"token"`
	LogP  float32 `json:"logprob"`
	Bytes []int   `json:"bytes"` // null if the model has no tokenizer
}

// logprob is the log-prob of a token.
func (m *Model) logprob(id int32, logp float32) tokenLogprob {
	x := tokenLogprob{Token: m.name(id), LogP: max(logp, -math.MaxFloat32)} // JSON has no infinities
	if m.Tokenizer != nil {
		x.Bytes = []int{}
		for _, b := range m.Tokenizer.NewDecoder().Bytes(id) {
			x.Bytes = append(x.Bytes, int(b))
		}
	}
	return x
}

// name returns a token as text, or "token_id:ID" if the model has no tokenizer.
func (m *Model) name(id int32) string {
	if m.Tokenizer == nil {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return strings.ToValidUTF8(string(m.Tokenizer.NewDecoder().Bytes(id)), "\ufffd")
}

// chatLogprobs returns the log-probs of tokens, with the likeliest ones beside each where they are given.
func (m *Model) chatLogprobs(ids []int32, logp []float32, top [][]sampler.Candidate) *chatLogprobs {
	out := &chatLogprobs{Content: []chatLogprob{}}
	for i, id := range ids {
		x := chatLogprob{m.logprob(id, logp[i]), []tokenLogprob{}}
		if i < len(top) {
			for _, c := range top[i] {
				x.Top = append(x.Top, m.logprob(c.ID, c.LogProb))
			}
		}
		out.Content = append(out.Content, x)
	}
	return out
}

// completionLogprobs returns the log-probs of the next tokens of a choice.
func (m *Model) completionLogprobs(ids []int32, logp []float32, top [][]sampler.Candidate, c *choice) *completionLogprobs {
	out := &completionLogprobs{Tokens: []string{}, LogP: append([]float32{}, logp...), Top: make([]any, len(ids)), Offsets: []int{}}
	for i, id := range ids {
		name := m.name(id)
		if i < len(top) && top[i] != nil {
			others := map[string]float32{name: logp[i]}
			for _, c := range top[i] {
				others[m.name(c.ID)] = m.logprob(c.ID, c.LogProb).LogP
			}
			out.Top[i] = others
		}
		out.Tokens, out.Offsets = append(out.Tokens, name), append(out.Offsets, c.textOffset(id, name))
	}
	return out
}

// A failure is an error in the form of OpenAI's API.
type failure struct {
	status  int
	message string
	kind    string // "type" in JSON
	param   string
	code    string
}

func (f *failure) Error() string { return f.message }

// MarshalJSON writes {"error": ...}; empty fields are null.
func (f *failure) MarshalJSON() ([]byte, error) {
	null := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	return json.Marshal(map[string]body{"error": {f.message, f.kind, null(f.param), null(f.code)}})
}

// invalid returns the error of an invalid field of a request.
func invalid(param, format string, args ...any) *failure {
	return &failure{http.StatusBadRequest, fmt.Sprintf(format, args...), "invalid_request_error", param, ""}
}

var (
	errFull     = &failure{http.StatusTooManyRequests, "the server has as many requests as it holds: try again later", "rate_limit_error", "", "queue_full"}
	errStopping = &failure{http.StatusServiceUnavailable, "the server is stopping", "server_error", "", "stopping"}
	errTooLarge = &failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody), "invalid_request_error", "", ""}
	errSlow     = &failure{http.StatusRequestTimeout, "the body did not come to its end", "invalid_request_error", "", ""}
	errKey      = &failure{http.StatusUnauthorized, "the API key is missing or wrong: send it as Authorization: Bearer KEY or X-Api-Key: KEY",
		"authentication_error", "", "invalid_api_key"}
	errNoJSON = &failure{http.StatusUnsupportedMediaType, "the body must be of Content-Type application/json", "invalid_request_error", "", ""}
)

// failureOf returns err in the form of the API.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{http.StatusInternalServerError, err.Error(), "server_error", "", ""}
}
