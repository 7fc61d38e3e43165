package environment

import (
	"encoding/json"

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
