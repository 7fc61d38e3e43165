package policy

import (
	"errors"
	"fmt"
	"log/slog"

	"onering/internal/settings"
	"onering/internal/strict"
	"onering/models"
	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
)

// A Prompt is the prompt in a row of JSON: text, ids, or a conversation.
type Prompt struct {
	Prompt    *string             `json:"prompt"`
	PromptIDs *[]int32            `json:"prompt_ids"`
	Messages  *[]tokenize.Message `json:"messages"`
	// Further values that the chat template reads.
	Tools     tokenize.Data         `json:"tools"`
	Documents tokenize.Data         `json:"documents"`
	Args      tokenize.TemplateArgs `json:"chat_template_kwargs"`
}

// A Pair is a prompt and a response to it, as text or ids.
type Pair struct {
	Prompt
	Response    *string  `json:"response"`
	ResponseIDs *[]int32 `json:"response_ids"`
}

// IDs returns the prompt's token ids for a policy, in a template; there is at least one, and room for one more. A
// conversation is always rendered with the chat template, and with the template's system message if the row has none.
func (row Prompt) IDs(p *Policy, around tokenize.Template) ([]int32, error) {
	ids, err := row.ids(p, around)
	if err == nil {
		err = checkLength("the prompt and a token of response", len(ids)+1, p.Model)
	}
	return ids, err
}

// ids returns the tokens of the prompt, which is stated in one of three forms: a text, ids or messages. around is the
// template of texts, and has the system message and the arguments of messages.
func (row Prompt) ids(p *Policy, around tokenize.Template) (ids []int32, err error) {
	forms := 0
	for _, given := range []bool{row.Prompt != nil, row.PromptIDs != nil, row.Messages != nil} {
		if given {
			forms++
		}
	}
	switch {
	case forms == 0:
		return nil, errors.New(`one of "prompt", "prompt_ids" and "messages" must be given; onering data show FILE --mapped writes problems as prompts`)
	case forms > 1:
		return nil, errors.New(`only one of "prompt", "prompt_ids" and "messages" may be given`)
	case row.PromptIDs != nil:
		ids, err = *row.PromptIDs, checkIDs("prompt_ids", *row.PromptIDs, p.Model)
	case row.Prompt != nil:
		ids, err = p.encode(func(t *tokenize.Tokenizer) (string, []int32, error) { return t.Prompt(around, *row.Prompt) })
	default:
		ids, err = p.encode(func(t *tokenize.Tokenizer) (string, []int32, error) {
			chat := tokenize.Talk(*row.Messages...)
			chat.Tools, chat.Documents, chat.Args = row.Tools, row.Documents, row.Args
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

// Sequence returns the pair in the form that a policy's Learner reads.
func (row Pair) Sequence(p *Policy) (s runtime.Sequence, err error) {
	ids, err := row.ids(p, tokenize.Template{}) // nothing goes around a text
	if err != nil {
		return s, err
	}
	var response []int32
	switch {
	case (row.Response != nil) == (row.ResponseIDs != nil): // both or neither
		err = errors.New(`one of "response" and "response_ids" must be given`)
	case row.ResponseIDs != nil:
		response, err = *row.ResponseIDs, checkIDs("response_ids", *row.ResponseIDs, p.Model)
	default:
		response, err = p.encode(func(t *tokenize.Tokenizer) (string, []int32, error) {
			return *row.Response, t.Encode(*row.Response), nil
		})
	}
	if err != nil {
		return s, err
	}
	s = runtime.NewSequence(ids, response)
	return s, checkLength("prompt and response", len(s.Tokens), p.Model)
}

// encode returns the tokenizer's ids of a text, if the vocabulary can express it.
func (p *Policy) encode(text func(*tokenize.Tokenizer) (string, []int32, error)) ([]int32, error) {
	if err := p.NeedTokenizer(); err != nil {
		return nil, err
	}
	made, ids, err := text(p.Tokenizer)
	if err == nil {
		err = p.Tokenizer.Check(made)
	}
	return ids, err
}

// checkIDs returns an error for an id that the model does not have.
func checkIDs(field string, ids []int32, m models.Model) error {
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return fmt.Errorf("%s[%d] = %d: the model has ids 0 to %d", field, i, id, m.Vocab-1)
		}
	}
	return nil
}

// checkLength returns an error for n tokens if the model has fewer positions.
func checkLength(what string, n int, m models.Model) error {
	if m.MaxPositions > 0 && n > m.MaxPositions {
		return fmt.Errorf("%s takes %d tokens, and the model's %s", what, n, m.Context())
	}
	return nil
}

// Ends sets what ends a response in a template: the model's end tokens and the template's strings.
func (p *Policy) Ends(o *sampler.Options, template tokenize.Template) error {
	o.EOS, o.Stops = p.Model.EOS, template.Stops
	if p.Tokenizer != nil {
		o.Text = func() sampler.TextDecoder { return p.Tokenizer.NewDecoder() }
	}
	if len(o.Stops) == 0 {
		return nil
	}
	return p.NeedTokenizer()
}

// Sampling returns s with the temperature and the filters of the model's generation_config.json where it states them,
// as transformers and vLLM do, and greedy decoding if it states a temperature of 0. It ignores do_sample.
func (p *Policy) Sampling(s sampler.Sampling) (sampler.Sampling, error) {
	if len(p.Model.Text.Generation) == 0 {
		return s, nil
	}
	stated := struct {
		sampler.Sampling
		Repetition *float64 `json:"repetition_penalty"`
	}{Sampling: s} // what the file does not state stays
	err := strict.JSON(p.Model.Text.Generation, &stated)
	stated.Greedy, stated.MaxNewTokens = s.Greedy, 1 // these two are not taken from the file; 1 passes Check, whatever s has
	out := stated.OrGreedy()
	out.TopK = max(0, out.TopK) // -1 turns top-k off in some files
	if err == nil {
		err = settings.Check(&out)
	}
	out.MaxNewTokens = s.MaxNewTokens
	if err != nil {
		return s, fmt.Errorf("policy: %s: generation_config.json: %w; --generation-config=false leaves it out", p.Dir, err)
	}
	if r := stated.Repetition; r != nil && *r != 1 {
		slog.Warn("generation_config.json asks for a penalty of repetitions, which is left out; a request to onering serve may ask for one", "repetition_penalty", *r)
	}
	return out, nil
}

// Decoder opens a decoder for slots sequences of up to maxTokens tokens, or of as many as the model
// has positions. Their bits do not depend on what invariance names. free closes the decoder.
func (p *Policy) Decoder(slots, maxTokens int, invariance sampler.Invariance) (d sampler.Decoder, free func(), err error) {
	if invariance != sampler.NoInvariance {
		slots++ // one slot more, see sampler.Invariant
	}
	opened, err := p.Env.NewDecoder(p.Ring, slots, p.MaxTokens(maxTokens))
	if err != nil {
		return nil, nil, err
	}
	if invariance == sampler.NoInvariance {
		return opened, opened.Close, nil
	}
	kept := sampler.NewInvariant(opened, invariance)
	return kept, func() { kept.Close(); opened.Close() }, nil
}
