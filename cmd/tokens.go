package cmd

import (
	"errors"
	"fmt"

	"onering/policy"
	"onering/tokenize"
)

// A prompt is how a row gives a prompt: as text, ids, or a conversation.
type prompt struct {
	Prompt    *string             `json:"prompt"`
	PromptIDs *[]int32            `json:"prompt_ids"`
	Messages  *[]tokenize.Message `json:"messages"`
	// What else the chat template reads.
	Tools     tokenize.Data         `json:"tools"`
	Documents tokenize.Data         `json:"documents"`
	Args      tokenize.TemplateArgs `json:"chat_template_kwargs"`
}

// ids returns the prompt's token ids, in a template; there is at least one. A
// conversation is rendered with the chat template whatever the template is, with its
// system message if the row has none.
func (p prompt) ids(policy *policy.Policy, around tokenize.Template) ([]int32, error) {
	given := 0
	for _, is := range []bool{p.Prompt != nil, p.PromptIDs != nil, p.Messages != nil} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, errors.New(`one of "prompt", "prompt_ids" and "messages" must be given; onering data show FILE --mapped writes problems as prompts`)
	case given > 1:
		return nil, errors.New(`only one of "prompt", "prompt_ids" and "messages" may be given`)
	}
	var ids []int32
	var err error
	switch {
	case p.PromptIDs != nil:
		ids, err = *p.PromptIDs, checkIDs("prompt_ids", *p.PromptIDs, policy)
	case p.Prompt != nil:
		ids, err = encode(policy, func(t *tokenize.Tokenizer) (string, []int32, error) { return t.Prompt(around, *p.Prompt) })
	default:
		ids, err = encode(policy, func(t *tokenize.Tokenizer) (string, []int32, error) {
			chat := tokenize.Talk(*p.Messages...)
			chat.Tools, chat.Documents, chat.Args = p.Tools, p.Documents, p.Args
			if chat, err = around.Around(chat); err != nil {
				return "", nil, err
			}
			return t.EncodeChat(chat)
		})
	}
	if err == nil && len(ids) == 0 {
		err = errors.New("the prompt is empty: a response must follow at least one token")
	}
	return ids, err
}

// encode returns the ids of a text that the tokenizer makes, if the vocabulary can
// express it.
func encode(policy *policy.Policy, text func(*tokenize.Tokenizer) (string, []int32, error)) ([]int32, error) {
	if err := policy.NeedTokenizer(); err != nil {
		return nil, err
	}
	made, ids, err := text(policy.Tokenizer)
	if err == nil {
		err = policy.Tokenizer.Check(made)
	}
	return ids, err
}

// checkIDs returns an error for an id that the model does not have.
func checkIDs(field string, ids []int32, policy *policy.Policy) error {
	for i, id := range ids {
		if id < 0 || int(id) >= policy.Model.Vocab {
			return fmt.Errorf("%s[%d] = %d: the model has ids 0 to %d", field, i, id, policy.Model.Vocab-1)
		}
	}
	return nil
}

// checkLength returns an error for n tokens if the model has fewer positions.
func checkLength(what string, n int, policy *policy.Policy) error {
	if m := policy.Model.MaxPositions; m > 0 && n > m {
		return fmt.Errorf("%s takes %d tokens, the model's context (max_position_embeddings) is %d", what, n, m)
	}
	return nil
}
