package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"onering/tokenize"
)

// A Function describes a tool. Parameters are a JSON schema of an object.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Functions returns descriptions for the chat template, in OpenAI's form.
func Functions(list []Function) (tools tokenize.Data, err error) {
	type entry struct {
		Type     string   `json:"type"`
		Function Function `json:"function"`
	}
	entries := make([]entry, len(list))
	for i, f := range list {
		entries[i] = entry{"function", f}
	}
	text, err := json.Marshal(entries)
	if err == nil {
		err = tools.UnmarshalJSON(text)
	}
	return tools, err
}

// Of one turn so many calls are answered, each of which may take its time, and of an answer
// so many bytes are read.
const mostCalls, mostBytes = 16, 64 << 10

// Answer answers the calls of a turn one after the other, each by a message of the role tool.
// A turn without calls ends the episode. What call returns is what the policy reads; its error
// ends the episode without a grade. Functions that there are not are not called: the policy
// reads which there are.
func Answer(ctx context.Context, t Turn, functions []Function, call func(ctx context.Context, c Call) (string, error)) (o Observation, err error) {
	names := make([]string, len(functions))
	known := map[string]bool{}
	for i, f := range functions {
		names[i], known[f.Name] = f.Name, true
	}
	for i, c := range t.Calls {
		if err := ctx.Err(); err != nil {
			return Observation{}, err
		}
		text := ""
		switch {
		case i >= mostCalls:
			text = fmt.Sprintf("error: only %d calls are answered in one turn", mostCalls)
		case !known[c.Name]:
			text = fmt.Sprintf("error: there is no tool %.80q; there are %s", c.Name, strings.Join(names, ", "))
		default:
			text, err = call(ctx, c)
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return Observation{}, err
		}
		if more := len(text) - mostBytes; more > 0 {
			text = strings.ToValidUTF8(text[:mostBytes], "") + fmt.Sprintf("\n[%d bytes are cut off]", more)
		}
		o.Messages = append(o.Messages, tokenize.Message{Role: "tool", Content: strings.ToValidUTF8(text, "\ufffd")})
	}
	o.Done = len(t.Calls) == 0
	return o, ctx.Err()
}
