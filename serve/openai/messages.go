package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"onering/internal/strict"
)

// A messages is the body of POST /v1/messages and /v1/messages/count_tokens of Anthropic's API. It becomes a chat.
type messages struct {
	Model    json.RawMessage `json:"model"`
	System   json.RawMessage `json:"system"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	MaxTokens   *int            `json:"max_tokens"`
	Stops       json.RawMessage `json:"stop_sequences"`
	Stream      json.RawMessage `json:"stream"`
	Temperature json.RawMessage `json:"temperature"`
	TopP        json.RawMessage `json:"top_p"`
	TopK        json.RawMessage `json:"top_k"`
	Seed        json.RawMessage `json:"seed"` // of ours
	Tools       []clientTool    `json:"tools"`
	Choice      struct {
		Type string `json:"type"`
		Name string `json:"name"`
		One  bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	Thinking struct {
		Type string `json:"type"`
	} `json:"thinking"`
	Format answerFormat `json:"output_format"`
	Output struct {
		Format answerFormat `json:"format"`
	} `json:"output_config"`
	Cache   any `json:"cache_control"`      // nothing is charged for
	Context any `json:"context_management"` // nothing is taken out of a context
}

// An answerFormat is a schema of an answer.
type answerFormat struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// chat returns the body of a chat that asks for the same.
func (q *messages) chat() (chatBody, error) {
	b := chatBody{"messages": q.turns(), "max_tokens": q.MaxTokens}
	for name, value := range map[string]json.RawMessage{"model": q.Model, "stop": q.Stops, "stream": q.Stream, "temperature": q.Temperature,
		"top_p": q.TopP, "top_k": q.TopK, "seed": q.Seed} {
		b.set(name, value)
	}
	if n := len(q.Messages); n > 0 && q.Messages[n-1].Role == "assistant" {
		b["continue_final_message"] = true
	}
	if err := b.setTools(q.Tools, !q.Choice.One, "", "custom"); err != nil { // the two types of tools that a client runs itself
		return nil, err
	}
	switch q.Choice.Type {
	case "": // the request chooses nothing
	case "any":
		b["tool_choice"] = "required"
	case "tool":
		b["tool_choice"] = choiceOf(q.Choice.Name)
	default:
		b["tool_choice"] = q.Choice.Type
	}
	if how := q.Thinking.Type; how == "enabled" || how == "disabled" {
		b["chat_template_kwargs"] = map[string]bool{"enable_thinking": how == "enabled"}
	}
	for _, format := range []answerFormat{q.Format, q.Output.Format} { // a request has it by one of two names
		switch format.Type {
		case "": // not by this one
		case "json_schema":
			b["response_format"] = jsonFormat(format.Schema, true)
		default:
			return nil, invalid("output_config", `output_config.format has the type %q: there is "json_schema"`, format.Type)
		}
	}
	return b, nil
}

// turns returns the messages of the chat. Calls and results of tools, which Anthropic's messages have as parts, go
// where a chat has them; all other parts stay as they are, for the chat to read.
func (q *messages) turns() (list []map[string]any) {
	if !isNull(q.System) {
		list = append(list, map[string]any{"role": "system", "content": q.System})
	}
	for _, m := range q.Messages {
		var parts, others []json.RawMessage
		if strict.JSON(m.Content, &parts) != nil { // a text, not a list: the next loop has nothing to do
			list = append(list, map[string]any{"role": m.Role, "content": m.Content})
		}
		var calls []any
		for _, part := range parts {
			var p struct {
				Type    string          `json:"type"`
				ID      string          `json:"id"`
				Name    string          `json:"name"`
				Input   json.RawMessage `json:"input"`
				Of      string          `json:"tool_use_id"`
				Content json.RawMessage `json:"content"`
			}
			_ = strict.JSON(part, &p) // the chat refuses what is not in this form
			switch p.Type {
			case "tool_use":
				calls = append(calls, callOf(p.ID, p.Name, string(p.Input)))
			case "tool_result":
				list = append(list, map[string]any{"role": "tool", "tool_call_id": p.Of, "content": p.Content})
			case "redacted_thinking": // encrypted: nobody here can read it
			default:
				others = append(others, part)
			}
		}
		if others != nil || calls != nil {
			list = append(list, map[string]any{"role": m.Role, "content": others, "tool_calls": calls})
		}
	}
	return list
}

// An anthropic answers requests of Anthropic's API.
type anthropic struct{ *Server }

// messages answers POST /v1/messages.
func (s anthropic) messages(w http.ResponseWriter, r *http.Request, body []byte) error {
	j, stated, err := s.messagesJob(r, body, true)
	if err != nil {
		return err
	}
	j.form = &messagesForm{blockStream{events: messageEvents{}}}
	return s.answer(w, r, j, stated)
}

// countTokens answers POST /v1/messages/count_tokens.
func (s anthropic) countTokens(w http.ResponseWriter, r *http.Request, body []byte) error {
	j, _, err := s.messagesJob(r, body, false)
	if err == nil {
		Write(w, http.StatusOK, map[string]int{"input_tokens": j.usage().Prompt})
	}
	return err
}

// messagesJob begins the job of the chat that a body stands for; bounded demands max_tokens.
func (s anthropic) messagesJob(r *http.Request, body []byte, bounded bool) (*job, func() history, error) {
	var q messages
	err := read(body, &q)
	if err == nil && bounded && q.MaxTokens == nil {
		err = invalid("max_tokens", "max_tokens: state how many tokens the answer may have")
	}
	var b chatBody
	if err == nil {
		b, err = q.chat()
	}
	if err != nil {
		return nil, nil, err
	}
	return b.job(s.Server, r, "msg")
}

// A messagesForm is the form of answers of Anthropic's API.
type messagesForm struct{ blockStream }

// whole returns the body of an answer that is not streamed: its blocks, and why it ended.
func (f *messagesForm) whole(j *job) any {
	content := []any{}
	for _, b := range j.blocks() {
		x := messageBlock(b)
		if b.kind == aCall {
			x["input"] = json.RawMessage(b.text)
		}
		content = append(content, x)
	}
	reason, stop := f.stopReason(j)
	return f.message(j, content, reason, stop)
}

// message is an answer, or the beginning of one.
func (f *messagesForm) message(j *job, content []any, reason, stop any) map[string]any {
	return map[string]any{"id": j.id, "type": "message", "role": "assistant", "model": j.model.Name, "content": content,
		"stop_reason": reason, "stop_sequence": stop, "usage": f.usage(j)}
}

func (f *messagesForm) usage(j *job) map[string]int {
	u := j.usage()
	cached := u.PromptDetails.Cached // not counted in input_tokens, where it is known
	return map[string]int{"input_tokens": u.Prompt - cached, "output_tokens": u.Completion, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}
}

// stopReason says why an answer ended, and with which of the request's stop texts.
func (f *messagesForm) stopReason(j *job) (reason string, stop any) {
	c := j.choices[0]
	switch {
	case c.finish == "tool_calls":
		return "tool_use", nil
	case c.finish == "length":
		return "max_tokens", nil
	case slices.Contains(j.Stop, c.stop):
		return "stop_sequence", c.stop
	}
	return "end_turn", nil
}

func (f *messagesForm) opening(j *job) []streamEvent {
	return []streamEvent{named(map[string]any{"type": "message_start", "message": f.message(j, []any{}, nil, nil)})}
}

func (f *messagesForm) closing(j *job) []streamEvent {
	reason, stop := f.stopReason(j)
	return []streamEvent{
		named(map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": stop}, "usage": f.usage(j)}),
		named(map[string]any{"type": "message_stop"}),
	}
}

func (f *messagesForm) failed(why *failure) streamEvent { return named(messageError(why)) }

// named is an event with its type as its name.
func named(body map[string]any) streamEvent { return streamEvent{body["type"].(string), body} }

// messageEvents are the events of blocks in Anthropic's API.
type messageEvents struct{}

func (messageEvents) begin(n int, b block) []streamEvent {
	return []streamEvent{named(map[string]any{"type": "content_block_start", "index": n, "content_block": messageBlock(b)})}
}

func (messageEvents) add(n int, b block, text string) streamEvent {
	kind := [...][2]string{aThought: {"thinking", "thinking"}, aText: {"text", "text"}, aCall: {"input_json", "partial_json"}}[b.kind]
	return messageDelta(n, kind[0], kind[1], text)
}

func (messageEvents) end(n int, b block) (list []streamEvent) {
	if b.kind == aThought {
		list = append(list, messageDelta(n, "signature", "signature", unsigned))
	}
	return append(list, named(map[string]any{"type": "content_block_stop", "index": n}))
}

// messageDelta is an event with more of block number n.
func messageDelta(n int, kind, field, text string) streamEvent {
	return named(map[string]any{"type": "content_block_delta", "index": n, "delta": map[string]string{"type": kind + "_delta", field: text}})
}

// unsigned is the signature of a thought, which clients return and nobody reads.
const unsigned = "onering"

// messageBlock is a block as the API has it, a call without its arguments.
func messageBlock(b block) map[string]any {
	switch b.kind {
	case aThought:
		return map[string]any{"type": "thinking", "thinking": b.text, "signature": unsigned}
	case aText:
		return map[string]any{"type": "text", "text": b.text}
	}
	return map[string]any{"type": "tool_use", "id": b.id, "name": b.name, "input": map[string]any{}}
}

// messageError is an error in the form of Anthropic's API.
func messageError(f *failure) map[string]any {
	kind := map[int]string{401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}[f.status]
	if kind == "" && f.status < 500 {
		kind = "invalid_request_error"
	}
	return map[string]any{"type": "error", "error": map[string]string{"type": cmp.Or(kind, "api_error"), "message": f.message}}
}
