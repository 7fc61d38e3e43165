package tokenize

import (
	"errors"
	"slices"
	"strings"
)

// NextTurn returns a chat template's text after the last answer of the assistant in c: the end of
// that answer, the messages that follow it and, with AddGenerationPrompt, the beginning of the
// next answer. A conversation grows by it: sampled tokens stay unchanged, even if the template
// would write earlier turns differently. The text of the answer itself does not matter.
//
// The end of the answer begins with the token that ends a turn. A response that has
// sampled it already needs it no more.
func (t *Tokenizer) NextTurn(c Conversation) (text string, ids []int32, err error) {
	answer := len(c.Messages) - 2
	for answer >= 0 && c.Messages[answer].Role != "assistant" {
		answer--
	}
	if answer < 0 || c.Messages[len(c.Messages)-1].Role == "assistant" {
		return "", nil, errors.New("tokenize: a turn must follow an answer of the assistant")
	}
	c.Messages = slices.Clone(c.Messages)
	c.Messages[answer] = Message{Role: "assistant", Content: unused(c.Messages)} // a text to be found in the rendering
	whole, err := t.Chat(c)
	if err != nil {
		return "", nil, err
	}
	before, after, ok := strings.Cut(whole, c.Messages[answer].Content)
	if !ok || strings.Contains(before+after, c.Messages[answer].Content) {
		return "", nil, errors.New("tokenize: chat template: it does not write an answer of the assistant once and as it is, so no turn can follow one")
	}
	return after, t.appendText(nil, after), nil
}

// After returns ids that NextTurn has made for a response with the last token last: without
// the token that ends a turn if the response has sampled that, one of eos, already.
func After(last int32, eos, ids []int32) []int32 {
	if len(ids) > 0 && ids[0] == last && slices.Contains(eos, last) {
		return ids[1:]
	}
	return ids
}

// unused returns a text that no message has.
func unused(messages []Message) string {
	text := "ANSWER"
	for slices.ContainsFunc(messages, func(m Message) bool { return strings.Contains(m.Content, text) }) {
		text += "R"
	}
	return text
}
