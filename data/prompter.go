package data

import (
	"fmt"

	"onering/tokenize"
)

// A Prompter turns problems into prompts: their text in a template, as token
// ids.
type Prompter struct {
	Tokenizer *tokenize.Tokenizer
	Template  tokenize.Template
}

// NewPrompter makes a Prompter. If the template is the tokenizer's chat
// template, the tokenizer must have one that can be rendered.
func NewPrompter(t *tokenize.Tokenizer, template tokenize.Template) (*Prompter, error) {
	if template.Chat { // a template that fails for one problem fails for all
		if _, _, err := t.Prompt(template, "x"); err != nil {
			return nil, err
		}
	}
	return &Prompter{t, template}, nil
}

// Prompt returns the prompt of a problem, as text and as token ids.
func (p *Prompter) Prompt(q Problem) (text string, ids []int32, err error) {
	if q.Plain {
		return q.Text, p.Tokenizer.Encode(q.Text), nil
	}
	text, ids, err = p.Tokenizer.Prompt(p.Template, q.Text)
	if err != nil {
		return "", nil, fmt.Errorf("data: problem %q: %w", q.ID, err)
	}
	return text, ids, nil
}
