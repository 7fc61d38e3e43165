package tokenize

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"onering/internal/strict"
	"onering/tokenize/jinja"
)

// A continued names the field of a conversation's last message with which its text
// ends, so that a model writes on there; "" for none. In JSON true stands for content.
type continued string

// UnmarshalJSON reads true, false, null or the name of a field.
func (c *continued) UnmarshalJSON(data []byte) error {
	var v any
	if err := strict.JSON(data, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
	case bool:
		*c = ""
		if v {
			*c = "content"
		}
	case string:
		*c = continued(v)
	default:
		return errors.New("continue_final_message must be true, false or the name of a field of the last message")
	}
	return nil
}

// continueTag marks the place where the text should end. As in transformers, the blank at
// its end shows whether the template keeps blanks at the end of a message.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// mark writes continueTag after the field c in the last of turns, and returns the field's text. source is the
// template's, which must read the field. Of a list of parts the last text is continued.
func (c continued) mark(turns jinja.List, source string) (said string, err error) {
	if len(turns) == 0 {
		return "", errors.New("continue_final_message: there is no message")
	}
	last := turns[len(turns)-1].(*jinja.Dict)
	value, _ := last.Get(string(c))
	if value == nil {
		return "", fmt.Errorf("continue_final_message: the last message has no %q", string(c))
	}
	fields := []string{string(c)}
	if text, ok := value.(string); ok && slices.Contains(reasoningFields, string(c)) {
		// The thought has several names; the template may read it by any of them.
		fields = slices.DeleteFunc(slices.Clone(reasoningFields), func(name string) bool {
			other, _ := last.Get(name)
			copied, ok := other.(string)
			return !ok || copied != text
		})
	}
	if !slices.ContainsFunc(fields, func(name string) bool { return strings.Contains(source, name) }) {
		return "", fmt.Errorf("continue_final_message: the chat template does not read %q", string(c))
	}
	switch value := value.(type) {
	case string:
		for _, name := range fields {
			last.Set(name, value+continueTag)
		}
		return value, nil
	case jinja.List:
		parts := slices.Clone(value)
		for i, part := range slices.Backward(parts) {
			block, ok := part.(*jinja.Dict)
			if !ok {
				continue
			}
			if text, ok := block.Get("text"); ok {
				said, ok = text.(string)
				if !ok {
					break
				}
				block = block.Clone()
				block.Set("text", said+continueTag)
				parts[i] = block
				last.Set(string(c), parts)
				return said, nil
			}
		}
	}
	return "", fmt.Errorf("continue_final_message: %q of the last message has no text", string(c))
}

// cut returns the text up to continueTag.
func (c continued) cut(text, said string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(continueTag))
	if at < 0 || !strings.Contains(text, strings.TrimFunc(said, jinja.IsSpace)) {
		return "", errors.New("continue_final_message: the chat template changes or leaves out the last message")
	}
	if strings.HasPrefix(text[at:], continueTag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], jinja.IsSpace), nil // the template trims messages
}
