package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onering/sampler"
	"onering/tokenize"
)

// A Conversation holds the tokens of a conversation with a model. Ids are only appended,
// so the decoder computes only the new tokens of a turn. With a template other than the
// chat template each turn is a separate prompt.
type Conversation struct {
	Template tokenize.Template
	Messages []tokenize.Message
	IDs      []int32 // ids that were read or sampled

	policy  *Policy
	decoder *sampler.Kept
	free    func() // frees the decoder
	turns   int    // number of turns so far, including those before a Reset
}

// longestConversation bounds a conversation with a model that does not state its context length.
const longestConversation = 1 << 15

// Conversation begins a conversation in a template. The template auto becomes the tokenizer's
// chat template, if there is one. The caller closes the conversation.
func (p *Policy) Conversation(template tokenize.Template) (*Conversation, error) {
	if err := p.NeedTokenizer(); err != nil {
		return nil, err
	}
	missing := p.Tokenizer.CheckChat()
	switch {
	case template.Chat && missing != nil:
		return nil, fmt.Errorf("%s: %w", p.Dir, missing)
	case template.Auto && missing == nil:
		template.Auto, template.Chat, template.Name, template.Prefix, template.Suffix = false, true, "chat", "", ""
	}
	length := p.Model.MaxPositions
	if length == 0 {
		length = longestConversation
	}
	decoder, err := p.Env.NewDecoder(p.Ring, 1, length) // 1: one sequence at a time
	if err != nil {
		return nil, err
	}
	return &Conversation{Template: template, policy: p, decoder: sampler.NewKept(decoder, sampler.StepCost), // it computes only what is new of a prompt
		free: decoder.Close}, nil
}

// Close frees the decoder.
func (c *Conversation) Close() {
	c.decoder.Close()
	c.free()
}

// MaxTokens is the largest number of tokens of the conversation.
func (c *Conversation) MaxTokens() int { return c.decoder.MaxTokens() }

// An Answer is a turn with its answer.
type Answer struct {
	Turn         int            `json:"turn"` // number of the turn, from 0
	Prompt       string         `json:"prompt"`
	Text         string         `json:"text"`
	IDs          []int32        `json:"ids"`
	Finish       sampler.Finish `json:"finish"`
	PromptTokens int            `json:"prompt_tokens"` // tokens of the conversation before the answer
	ReusedTokens int            `json:"reused_tokens"` // how many of these were not computed again
}

// interrupted is the end of an answer whose context was canceled.
const interrupted sampler.Finish = "interrupted"

// Interrupted says whether the context of the answer was canceled.
func (a Answer) Interrupted() bool { return a.Finish == interrupted }

// A FullError says that a turn does not fit into the model's context.
type FullError struct{ Tokens, Context int }

// Error implements error.
func (e FullError) Error() string {
	return fmt.Sprintf("the conversation would take %d tokens, and the model's context has %d", e.Tokens, e.Context)
}

// Answer samples the answer to a text, calls say with each piece of the answer, and adds both to the conversation.
// o says how to sample. An error of say ends the answer. After an error the conversation is unchanged but for the number
// of turns. Where ctx is cancelled, the answer so far counts, and is Interrupted.
func (c *Conversation) Answer(ctx context.Context, text string, o sampler.Options, say func(string) error) (Answer, error) {
	a := Answer{Turn: c.turns, Prompt: text, IDs: []int32{}}
	c.turns++
	prompt, err := c.prompt(text)
	if err != nil {
		return a, err
	}
	a.PromptTokens = len(prompt)
	if limit := c.MaxTokens(); len(prompt) >= limit {
		return a, FullError{len(prompt) + 1, limit} // 1: an answer has at least one token
	}
	if err := c.policy.Ends(&o, c.Template); err != nil {
		return a, err
	}
	decode := c.policy.Tokenizer.NewDecoder()
	decode.SkipSpecial = true
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var said strings.Builder
	var sayErr error
	add := func(text string) {
		said.WriteString(text)
		if text != "" && sayErr == nil {
			if sayErr = say(text); sayErr != nil {
				stop() // Sample then returns context.Canceled
			}
		}
	}
	o.Token = func(t sampler.Token) {
		a.IDs = append(a.IDs, t.ID)
		add(decode.Add(t.ID))
	}
	request := sampler.Request{Prompt: prompt, ID: uint64(a.Turn), Samples: 1} // the ID decides the draws
	responses, _, err := sampler.Sample(ctx, c.decoder, o, []sampler.Request{request}, nil)
	a.ReusedTokens = c.decoder.Reused
	add(decode.Flush())
	a.Text = said.String()
	switch {
	case sayErr != nil:
		return a, sayErr
	case errors.Is(err, context.Canceled):
		a.Finish = interrupted
	case err != nil:
		return a, err
	default:
		a.Finish = responses[0].Finish
	}
	c.IDs = append(prompt, a.IDs...) // in the chat template the prompt has the conversation before
	c.Messages = append(c.Messages, tokenize.Message{Role: "user", Content: text}, tokenize.Message{Role: "assistant", Content: a.Text})
	return a, nil
}

// prompt returns the ids of the conversation with a further turn of the user.
func (c *Conversation) prompt(text string) ([]int32, error) {
	if !c.Template.Chat || len(c.Messages) == 0 {
		return c.policy.encode(func(t *tokenize.Tokenizer) (string, []int32, error) { return t.Prompt(c.Template, text) })
	}
	talk, err := c.Template.Around(tokenize.Talk(append(slices.Clone(c.Messages), tokenize.Message{Role: "user", Content: text})...))
	if err != nil {
		return nil, err
	}
	ids, err := c.policy.encode(func(t *tokenize.Tokenizer) (string, []int32, error) { return t.NextTurn(talk) })
	if err != nil {
		return nil, err
	}
	return slices.Concat(c.IDs, tokenize.After(c.IDs[len(c.IDs)-1], c.policy.Model.EOS, ids)), nil
}

// Reset forgets the conversation.
func (c *Conversation) Reset() { c.Messages, c.IDs = nil, nil }

// SetSystem starts a new conversation with a system message, if the tokenizer can render it.
func (c *Conversation) SetSystem(text string) error {
	with := c.Template
	with.System = text
	if _, err := c.policy.encode(func(t *tokenize.Tokenizer) (string, []int32, error) { return t.Prompt(with, "") }); err != nil {
		return err
	}
	c.Template = with
	c.Reset()
	return nil
}
