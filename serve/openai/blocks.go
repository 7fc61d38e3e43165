package openai

import (
	"encoding/json"
	"net/http"
	"slices"
)

// A block is a part of an answer, in APIs that have answers as lists of parts: what the model
// thinks, what it says, or a call of a tool.
type block struct {
	kind     blockKind
	text     string // of a call its arguments
	id, name string // of a call
}

type blockKind int

const (
	aThought blockKind = iota
	aText
	aCall
)

// blockEvents are those of a stream of blocks in one API.
type blockEvents interface {
	begin(n int, b block) []streamEvent // block number n begins, with an empty text
	add(n int, b block, text string) streamEvent
	end(n int, b block) []streamEvent
}

// A blockStream makes events of the pieces of an answer.
type blockStream struct {
	events blockEvents
	open   bool
	done   []block
}

// blocks returns the parts of a job's answer. There is at least one.
func (j *job) blocks() (list []block) {
	c := j.choices[0]
	if c.thought.Len() > 0 {
		list = append(list, block{kind: aThought, text: c.thought.String()})
	}
	if c.text.Len() > 0 || len(c.calls) == 0 {
		list = append(list, block{kind: aText, text: c.text.String()})
	}
	return append(list, j.callBlocks(0)...)
}

// callBlocks returns the calls of a job's answer from one on.
func (j *job) callBlocks(from int) (list []block) {
	for n, x := range j.choices[0].calls[from:] {
		c := j.call(0, from+n, x)
		list = append(list, block{aCall, c.Function.Arguments, c.ID, c.Function.Name})
	}
	return list
}

// pieces adds an event, a token or the end, to the answer, and returns the events about its blocks.
func (s *blockStream) pieces(j *job, e event) (list []streamEvent) {
	p := j.choices[0].add(e)
	list = append(s.write(block{kind: aThought}, p.thought), s.write(block{kind: aText}, p.text)...)
	for _, b := range j.callBlocks(len(j.choices[0].calls) - len(p.calls)) {
		arguments := b.text
		b.text = ""                                                         // write adds the arguments, and sends them
		list = append(append(list, s.close()...), s.write(b, arguments)...) // closed: one call is not added to another
	}
	if e.finish == "" {
		return list
	}
	if len(s.done) == 0 && !s.open {
		list = append(list, s.begin(block{kind: aText})...) // an answer has at least one block
	}
	return append(list, s.close()...)
}

// write adds a text to the open block, if it is of the kind, or else to a new one.
func (s *blockStream) write(b block, text string) (list []streamEvent) {
	if text == "" {
		return nil
	}
	if !s.open || s.done[len(s.done)-1].kind != b.kind {
		list = append(s.close(), s.begin(b)...)
	}
	n := len(s.done) - 1
	s.done[n].text += text
	return append(list, s.events.add(n, s.done[n], text))
}

func (s *blockStream) begin(b block) []streamEvent {
	s.open, s.done = true, append(s.done, b)
	return s.events.begin(len(s.done)-1, b)
}

func (s *blockStream) close() []streamEvent {
	if !s.open {
		return nil
	}
	s.open = false
	return s.events.end(len(s.done)-1, s.done[len(s.done)-1])
}

// A chatBody is the body of a chat that stands for one of another API.
type chatBody map[string]any

// job begins the job of the chat.
func (b chatBody) job(s *Server, r *http.Request, kind string) (*job, func() history, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, nil, err
	}
	return new(chat).job(s, r, text, kind)
}

// set sets a field, unless the other API's is null or not there.
func (b chatBody) set(name string, value json.RawMessage) {
	if !isNull(value) {
		b[name] = value
	}
}

// callOf is a call of an earlier answer in a chat.
func callOf(id, name, arguments string) map[string]any {
	return map[string]any{"id": id, "type": "function", "function": map[string]string{"name": name, "arguments": arguments}}
}

// A clientTool is a tool as other APIs describe it.
type clientTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Input       json.RawMessage `json:"input_schema"` // Anthropic's name of the parameters
	Strict      bool            `json:"strict"`
}

// setTools sets the tools, which have one of the types, and whether one may be called beside another.
func (b chatBody) setTools(tools []clientTool, parallel bool, types ...string) error {
	var list []any
	for i, t := range tools {
		if !slices.Contains(types, t.Type) {
			return invalid("tools", "tools[%d] has the type %q: this server runs no tools, so there are those of the client alone", i, t.Type)
		}
		if t.Parameters == nil {
			t.Parameters = t.Input // Anthropic's name of them
		}
		described := map[string]any{"name": t.Name, "description": t.Description, "parameters": t.Parameters, "strict": t.Strict}
		list = append(list, map[string]any{"type": "function", "function": described})
	}
	if list != nil {
		b["tools"], b["parallel_tool_calls"] = list, parallel
	}
	return nil
}

// choiceOf is the choice of one tool.
func choiceOf(name string) any {
	return map[string]any{"type": "function", "function": map[string]string{"name": name}}
}

// jsonFormat is the response_format of a schema.
func jsonFormat(schema json.RawMessage, exact bool) map[string]any {
	return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": schema, "strict": exact}}
}
