package tokenize

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// A Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user, assistant or tool
	Content string `json:"content"`
}

// ErrNoChatTemplate is wrapped by the error of Chat for a tokenizer without a
// chat template.
var ErrNoChatTemplate = errors.New("the tokenizer has no chat template")

// Chat renders messages with the chat template of the tokenizer's folder, as
// apply_chat_template of transformers does. With addGenerationPrompt the text ends
// where the answer of the assistant begins.
func (t *Tokenizer) Chat(messages []Message, addGenerationPrompt bool) (text string, err error) {
	text, err = t.chat.render(messages, addGenerationPrompt)
	if err != nil {
		return "", fmt.Errorf("tokenize: chat template: %w", err)
	}
	return text, nil
}

// EncodeChat returns the text of Chat and its ids. It adds no BOS: the template
// writes one if the model has one.
func (t *Tokenizer) EncodeChat(messages []Message, addGenerationPrompt bool) (text string, ids []int32, err error) {
	text, err = t.Chat(messages, addGenerationPrompt)
	if err != nil {
		return "", nil, err
	}
	return text, t.appendText(nil, text), nil
}

// A chatTemplate is parsed when it is first used: most runs never use it.
type chatTemplate struct {
	source string
	tokens map[string]string // bos_token and others that templates name

	once     sync.Once
	template *exec.Template
	err      error
}

func (c *chatTemplate) render(messages []Message, addGenerationPrompt bool) (text string, err error) {
	if c.source == "" {
		return "", ErrNoChatTemplate
	}
	c.once.Do(func() { c.template, c.err = parseJinja(c.source) })
	if c.err != nil {
		return "", c.err
	}
	turns, size := make(list, len(messages)), 0
	for i, m := range messages {
		size += len(m.Role) + len(m.Content)
		turns[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	data := map[string]any{
		"messages":              turns,
		"tools":                 nil,
		"documents":             nil,
		"add_generation_prompt": addGenerationPrompt,
	}
	for name, token := range c.tokens {
		data[name] = token
	}
	return renderJinja(c.template, data, size)
}
