package tokenize

import (
	"fmt"
	"slices"
	"strings"

	"onering/tokenize/jinja"
)

// learnFields are the names that datasets give to the field of a message which says whether
// its turn is learned: true or 1, and false or 0.
var learnFields = []string{"weight", "loss", "loss_weight", "loss_scale", "loss_mask", "train", "trainable", "training", "learn"}

// Learned says whether a turn is to be learned, which it is if its message does not say.
func (m Message) Learned() (bool, error) {
	fields := m.dict()
	for _, name := range learnFields {
		v, _ := fields.Get(name)
		switch said := strings.ToLower(fmt.Sprint(v)); said {
		case "<nil>", "true", "1":
		case "false", "0":
			return false, nil
		default:
			return false, fmt.Errorf("its %s is %.20s: a turn is learned (1, true) or not (0, false), not in part", name, said)
		}
	}
	return true, nil
}

// Untold returns the roles of messages whose contents leave no trace in the text that the
// tokenizer's chat template makes. It returns none of a conversation that is refused.
func (c Conversation) Untold(t *Tokenizer) (roles []string) {
	probe := c // with a mark in place of each content
	probe.Messages, probe.Continue = slices.Clone(c.Messages), ""
	marks := make([]string, len(c.Messages))
	for i, m := range c.Messages {
		d := m.dict()
		content, _ := d.Get("content")
		if texts, _ := textParts(content); strings.TrimSpace(m.Content+strings.Join(texts, "")) != "" {
			marks[i] = fmt.Sprintf("MESSAGE-%d-OF-ALL", i)
			d.Set("content", marks[i])
			probe.Messages[i] = Message{m.Role, marks[i], d}
		}
	}
	text, err := t.Chat(probe)
	for i, m := range c.Messages {
		// A message without a content has the mark "", which every text contains.
		if err == nil && !strings.Contains(text, marks[i]) && !slices.Contains(roles, m.Role) {
			roles = append(roles, m.Role)
		}
	}
	return roles
}

// NewlyUntold says which messages leave no trace in the text that the tokenizer's chat template
// makes, and which of their fields the template does not name; "" if there are none, or if
// this was said of an earlier conversation. It renders once for each sequence of roles.
func (c Conversation) NewlyUntold(t *Tokenizer) string {
	isNew := func(what string) bool { _, known := t.chat.reported.LoadOrStore(what, true); return !known }
	var shape, what []string
	for _, m := range c.Messages {
		shape = append(shape, m.Role)
		for key, v := range m.dict().All() {
			name, _ := key.(string)
			names := []string{name}
			if slices.Contains(reasoningFields, name) {
				name, names = reasoningFields[0], reasoningFields // several names of one field
			}
			list, isList := v.(jinja.List)
			reads := func(name string) bool { return Template{}.Reads(t, name) }
			switch { // the first case: fields that are empty, for training only, or usual
			case v == "" || isList && len(list) == 0 || slices.Contains(learnFields, name) ||
				slices.Contains([]string{"role", "content", "name", "id", "tool_call_id"}, name):
			case !slices.ContainsFunc(names, reads) && isNew("field "+name):
				what = append(what, fmt.Sprintf("the field %q of messages", name))
			}
		}
	}
	if isNew("roles " + strings.Join(shape, " ")) {
		for _, role := range c.Untold(t) {
			if isNew("role " + role) {
				what = append(what, fmt.Sprintf("messages of the role %q", role))
			}
		}
	}
	if len(what) == 0 {
		return ""
	}
	return "the chat template does not write " + strings.Join(what, " and ") + ": the model does not see them"
}
