package openai

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"onering/internal/strict"
)

// A responses is the body of POST /v1/responses. It becomes a chat.
type responses struct {
	Model        json.RawMessage `json:"model"`
	Instructions *string         `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Before       string          `json:"previous_response_id"`
	MaxTokens    json.RawMessage `json:"max_output_tokens"`
	Stream       json.RawMessage `json:"stream"`
	Temperature  json.RawMessage `json:"temperature"`
	TopP         json.RawMessage `json:"top_p"`
	TopLogprobs  *int            `json:"top_logprobs"`
	Seed         json.RawMessage `json:"seed"` // of ours
	Tools        []clientTool    `json:"tools"`
	Choice       json.RawMessage `json:"tool_choice"`
	Parallel     *bool           `json:"parallel_tool_calls"`
	Text         struct {
		Format struct {
			answerFormat
			Strict bool `json:"strict"`
		} `json:"format"`
		Verbosity json.RawMessage `json:"verbosity"`
	} `json:"text"`
	Reasoning struct {
		Effort json.RawMessage `json:"effort"`
	} `json:"reasoning"`
	Include  []string        `json:"include"`
	Store    *bool           `json:"store"` // false: no later request goes on from the answer
	Metadata json.RawMessage `json:"metadata"`
	Calls    any             `json:"max_tool_calls"` // of tools that the server runs, of which there are none
	Cut      string          `json:"truncation"`
	Options  any             `json:"stream_options"`
	Client   any             `json:"client_metadata"`
}

const withLogprobs = "message.output_text.logprobs"

// chat returns the body of a chat that asks for the same of the messages that items are.
func (q *responses) chat(items []inputItem) (chatBody, error) {
	list, err := turnsOf(items)
	if err != nil {
		return nil, err
	}
	if q.Instructions != nil && *q.Instructions != "" {
		list = slices.Insert(list, 0, map[string]any{"role": "system", "content": *q.Instructions})
	}
	b := chatBody{"messages": list, "logprobs": slices.Contains(q.Include, withLogprobs), "top_logprobs": q.TopLogprobs}
	for name, value := range map[string]json.RawMessage{"model": q.Model, "max_tokens": q.MaxTokens, "stream": q.Stream, "temperature": q.Temperature,
		"top_p": q.TopP, "seed": q.Seed, "reasoning_effort": q.Reasoning.Effort, "verbosity": q.Text.Verbosity} {
		b.set(name, value)
	}
	if q.Cut != "" && q.Cut != "disabled" {
		return nil, invalid("truncation", `truncation must be "disabled": nothing is taken out of a context`)
	}
	if err := b.setTools(q.Tools, q.Parallel == nil || *q.Parallel, "function"); err != nil {
		return nil, err
	}
	var chosen struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	b.set("tool_choice", q.Choice) // a text, such as "auto", stays as it is
	if strict.JSON(q.Choice, &chosen) == nil && chosen.Name != "" && chosen.Type == "function" {
		b["tool_choice"] = choiceOf(chosen.Name)
	}
	if format := q.Text.Format; format.Type == "json_schema" {
		b["response_format"] = jsonFormat(format.Schema, format.Strict)
	} else if format.Type != "" {
		b["response_format"] = map[string]string{"type": format.Type}
	}
	return b, nil
}

// An inputItem is one of the list that a request has as its input.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// turnsOf returns the messages of a chat that items are. What the model thought, said and called, in this order and
// without another's message between, is one message.
func turnsOf(items []inputItem) (list []map[string]any, err error) {
	for i, x := range items {
		if x.Type == "" || x.Type == "message" && x.Role != "assistant" {
			list = append(list, map[string]any{"role": x.Role, "content": x.Content})
			continue
		} else if x.Type == "function_call_output" {
			list = append(list, map[string]any{"role": "tool", "tool_call_id": x.CallID, "content": x.Output})
			continue
		}
		n := len(list) - 1
		// What the model said behind calls is a message of its own: in a message the calls come last.
		if n < 0 || list[n]["role"] != "assistant" || x.Type != "function_call" && list[n]["tool_calls"] != nil {
			list, n = append(list, map[string]any{"role": "assistant"}), n+1
		}
		parts, _ := list[n]["content"].([]any)
		var more []any
		switch x.Type {
		case "function_call":
			calls, _ := list[n]["tool_calls"].([]any)
			list[n]["tool_calls"] = append(calls, callOf(x.CallID, x.Name, x.Arguments))
		case "message", "reasoning":
			if strict.JSON(x.Content, &more) != nil && !isNull(x.Content) {
				more = []any{map[string]any{"type": "text", "text": x.Content}}
			}
			list[n]["content"] = append(parts, more...)
		default:
			return nil, invalid("input", "input[%d] has the type %q: there are message, function_call, function_call_output, reasoning, "+
				"and references to items of responses that are kept", i, x.Type)
		}
	}
	return list, nil
}

// respond answers POST /v1/responses, and keeps the conversation for a request that goes on from it.
func (c *conversations) respond(w http.ResponseWriter, r *http.Request, body []byte) error {
	var q responses
	if err := read(body, &q); err != nil {
		return err
	}
	items, known := c.find(q.Before)
	if !known && q.Before != "" {
		return &failure{http.StatusNotFound, fmt.Sprintf("there is no response %.60q here: the newest are kept in memory, but for those with store = false: "+
			"send the conversation as input", q.Before), "invalid_request_error", "previous_response_id", "previous_response_not_found"}
	}
	input := []inputItem{{Role: "user", Content: q.Input}}
	if isNull(q.Input) || q.Input[0] != '"' {
		if err := strict.JSON(q.Input, &input); err != nil {
			return invalid("input", "input must be a text or a list of items: %v", err)
		}
	}
	items = slices.Clip(items) // append must not write behind the items that are kept
	for _, x := range input {
		if found, known := c.find(x.ID); known && x.Type == "item_reference" {
			x = found[0] // the one item that the reference names
		}
		items = append(items, x)
	}
	b, err := q.chat(items)
	if err != nil {
		return err
	}
	j, stated, err := b.job(c.Server, r, "resp")
	if err != nil {
		return err
	}
	j.id = "resp_" + rand.Text()
	f := &responsesForm{q: q, id: j.id}
	f.events, j.form = f, f // f has the events of blocks, too
	err = c.answer(w, r, j, stated)
	if list := j.choices; err == nil && (q.Store == nil || *q.Store) && len(list) > 0 && list[0].finish != "" {
		for n, b := range f.done { // the blocks of the answer
			items = append(items, f.asInput(n, b))
		}
		c.put(conversation{j.id, items, len(body)})
	}
	return err
}

// conversations are the newest ones that requests may go on from, by the ids of responses.
type conversations struct {
	*Server
	mu     sync.Mutex
	newest []conversation
	bytes  int
}

type conversation struct {
	id           string
	items        []inputItem // with those of the response
	requestBytes int         // in bytes of the request that brought its newest ones
}

// maxConversations bounds the sizes of conversations together.
const maxConversations = 64 << 20

// find returns the items of a conversation, or one item, by its id.
func (c *conversations) find(id string) (items []inputItem, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.newest {
		if n := slices.IndexFunc(x.items, func(item inputItem) bool { return id != "" && item.ID == id }); n >= 0 {
			return x.items[n : n+1], true
		} else if x.id == id {
			return x.items, true
		}
	}
	return nil, false
}

func (c *conversations) put(x conversation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.bytes += x.requestBytes; c.bytes > maxConversations; c.newest = c.newest[1:] {
		c.bytes -= c.newest[0].requestBytes
	}
	c.newest = append(c.newest, x)
}

// A responsesForm is the form of answers of /v1/responses.
type responsesForm struct {
	blockStream
	q     responses
	id    string
	count int // events that were sent
}

// event is an event with its number.
func (f *responsesForm) event(kind string, body map[string]any) streamEvent {
	body["type"], body["sequence_number"] = kind, f.count
	f.count++
	return named(body)
}

// response returns the object of a response: its status, the output so far, and what the request asked for.
func (f *responsesForm) response(j *job, status string, output []any) map[string]any {
	q := f.q
	text := map[string]any{"format": map[string]any{"type": cmp.Or(q.Text.Format.Type, "text")}}
	if q.Text.Format.Schema != nil {
		format := q.Text.Format
		text["format"] = map[string]any{"type": format.Type, "name": cmp.Or(format.Name, "answer"), "schema": format.Schema, "strict": format.Strict}
	}
	tools := []any{}
	for _, t := range q.Tools {
		tools = append(tools, map[string]any{"type": t.Type, "name": t.Name, "description": t.Description, "parameters": t.Parameters, "strict": t.Strict})
	}
	x := map[string]any{"id": j.id, "object": "response", "created_at": j.created, "status": status, "background": false, "error": nil, "incomplete_details": nil,
		"instructions": q.Instructions, "max_output_tokens": q.MaxTokens, "model": j.model.Name, "output": output, "parallel_tool_calls": !j.onlyFirstCall,
		"previous_response_id": nil, "reasoning": map[string]any{"effort": q.Reasoning.Effort, "summary": nil}, "store": q.Store == nil || *q.Store,
		"temperature": j.options.Temperature, "text": text, "tool_choice": "auto", "tools": tools, "top_p": j.options.TopP, "truncation": "disabled", "usage": nil,
		"metadata": map[string]any{}}
	if q.Before != "" {
		x["previous_response_id"] = q.Before
	}
	for name, value := range map[string]json.RawMessage{"tool_choice": q.Choice, "metadata": q.Metadata} {
		if !isNull(value) {
			x[name] = value
		}
	}
	if status == "incomplete" {
		x["incomplete_details"] = map[string]string{"reason": "max_output_tokens"}
	}
	if status != "in_progress" {
		u := j.usage()
		x["usage"] = map[string]any{"input_tokens": u.Prompt, "input_tokens_details": u.PromptDetails, "output_tokens": u.Completion,
			"output_tokens_details": u.Details, "total_tokens": u.Total}
	}
	return x
}

func (f *responsesForm) whole(j *job) any {
	f.done = j.blocks()
	return f.finished(j)
}

// finished is the response when all of it is written.
func (f *responsesForm) finished(j *job) map[string]any {
	c := j.choices[0]
	status := map[bool]string{true: "incomplete", false: "completed"}[c.finish == "length"]
	output := []any{}
	for n, b := range f.done {
		item := f.item(n, b, status)
		if b.kind == aText && j.logprobs {
			item["content"].([]any)[0].(map[string]any)["logprobs"] = j.model.chatLogprobs(c.ids, c.logp, c.top).Content
		}
		output = append(output, item)
	}
	return f.response(j, status, output)
}

func (f *responsesForm) opening(j *job) []streamEvent {
	x := f.response(j, "in_progress", []any{})
	return []streamEvent{f.event("response.created", map[string]any{"response": x}), f.event("response.in_progress", map[string]any{"response": x})}
}

func (f *responsesForm) closing(j *job) []streamEvent {
	x := f.finished(j)
	return []streamEvent{f.event("response."+x["status"].(string), map[string]any{"response": x})}
}

func (f *responsesForm) failed(why *failure) streamEvent {
	return f.event("error", map[string]any{"code": cmp.Or(why.code, why.kind), "message": why.message, "param": why.param})
}

// asInput is block number n as a later request has it.
func (f *responsesForm) asInput(n int, b block) inputItem {
	text, _ := json.Marshal([]any{textPart(b)}) // texts are JSON
	return inputItem{blockItems[b.kind], f.itemID(n, b), "assistant", text, b.id, b.name, b.text, nil}
}

// blockItems are the types of items that blocks are.
var blockItems = [...]string{aThought: "reasoning", aText: "message", aCall: "function_call"}

// itemID is the id of item number n of the response.
func (f *responsesForm) itemID(n int, b block) string {
	return fmt.Sprintf("%s_%s-%d", [...]string{aThought: "rs", aText: "msg", aCall: "fc"}[b.kind], strings.TrimPrefix(f.id, "resp_"), n)
}

// textPart is a text as a part of an item.
func textPart(b block) map[string]any {
	if b.kind == aThought {
		return map[string]any{"type": "reasoning_text", "text": b.text}
	}
	return map[string]any{"type": "output_text", "text": b.text, "annotations": []any{}, "logprobs": []any{}}
}

// item is a block as an item of the output.
func (f *responsesForm) item(n int, b block, status string) map[string]any {
	x := map[string]any{"id": f.itemID(n, b), "type": blockItems[b.kind], "status": status}
	switch b.kind {
	case aThought:
		x["summary"], x["content"] = []any{}, []any{textPart(b)}
	case aText:
		x["role"], x["content"] = "assistant", []any{textPart(b)}
	case aCall:
		x["call_id"], x["name"], x["arguments"] = b.id, b.name, b.text
	}
	return x
}

// part is an event about the text of item number n.
func (f *responsesForm) part(kind string, n int, b block, more map[string]any) streamEvent {
	more["item_id"], more["output_index"] = f.itemID(n, b), n
	if b.kind != aCall {
		more["content_index"] = 0
	}
	return f.event("response."+kind, more)
}

func (f *responsesForm) begin(n int, b block) []streamEvent {
	item := f.item(n, b, "in_progress")
	if b.kind == aCall {
		return []streamEvent{f.event("response.output_item.added", map[string]any{"output_index": n, "item": item})}
	}
	item["content"] = []any{}
	return []streamEvent{f.event("response.output_item.added", map[string]any{"output_index": n, "item": item}),
		f.part("content_part.added", n, b, map[string]any{"part": textPart(b)})}
}

// textEvents begin the names of events about the text of a block.
var textEvents = [...]string{aThought: "reasoning_text", aText: "output_text", aCall: "function_call_arguments"}

func (f *responsesForm) add(n int, b block, text string) streamEvent {
	return f.part(textEvents[b.kind]+".delta", n, b, map[string]any{"delta": text, "logprobs": []any{}})
}

func (f *responsesForm) end(n int, b block) []streamEvent {
	whole := map[string]any{"text": b.text, "logprobs": []any{}}
	if b.kind == aCall {
		whole = map[string]any{"name": b.name, "arguments": b.text}
	}
	list := []streamEvent{f.part(textEvents[b.kind]+".done", n, b, whole)}
	if b.kind != aCall {
		list = append(list, f.part("content_part.done", n, b, map[string]any{"part": textPart(b)}))
	}
	return append(list, f.event("response.output_item.done", map[string]any{"output_index": n, "item": f.item(n, b, "completed")}))
}
