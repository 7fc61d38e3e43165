package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
)

// A generation is the body of POST /inference/v1/generate of vLLM: ids in, ids out.
type generation struct {
	Model     string          `json:"model"`
	IDs       []int32         `json:"token_ids"`
	Params    json.RawMessage `json:"sampling_params"`
	RequestID string          `json:"request_id"`
	Salt      json.RawMessage `json:"cache_salt"`
}

// params are the sampling_params of a generation.
type params struct {
	common
	Logprobs *int `json:"logprobs"`
	Named    any  `json:"model"` // belongs to the generation's other fields

	// Options about texts or experts, which answers in ids lack.
	Detokenize any `json:"detokenize"`
	Spaces     any `json:"spaces_between_special_tokens"`
	Experts    any `json:"routed_experts_prompt_start"`
	Kind       any `json:"output_kind"`
}

// check refuses requests that the server cannot fulfil.
func (p *params) check() error {
	switch {
	case p.Named != nil:
		return invalid("model", "model is not a field of sampling_params")
	case p.Stream:
		return invalid("stream", "an answer in ids is not streamed")
	case p.Logprobs != nil && (*p.Logprobs < 0 || *p.Logprobs > maxTop):
		return invalid("logprobs", wrongLogprobs, *p.Logprobs, maxTop)
	}
	return p.common.check()
}

// generate answers POST /inference/v1/generate.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, body []byte) error {
	var g generation
	if err := read(body, &g); err != nil {
		return err
	}
	switch {
	case len(g.IDs) == 0:
		return invalid("token_ids", "token_ids must have at least one id")
	case isNull(g.Params):
		g.Params = json.RawMessage("{}")
	case g.Params[0] != '{':
		return invalid("sampling_params", "sampling_params must be an object")
	}
	p := params{common: common{Model: g.Model, Salt: g.Salt}}
	j, err := s.job(r, g.Params, &p, "gen")
	if err != nil {
		return err
	}
	j.id = cmp.Or(g.RequestID, j.id)
	if p.Logprobs != nil && *p.Logprobs > 1 { // 1 asks for the sampled token alone
		j.top = *p.Logprobs
	}
	j.prompts, j.idsOnly, j.logprobs, j.ReturnTokenIDs = [][]int32{g.IDs}, true, p.Logprobs != nil, true
	if err := j.model.checkIDs(g.IDs, "token_ids"); err != nil {
		return err
	}
	if err := j.setSampling(s.MaxTokens, s.MaxTokens, nil, toolChoice{}); err != nil { // no template, no tools
		return err
	}
	return s.answer(w, r, j, func() history { return history{ids: g.IDs} })
}

// withTokenizer returns a model, and an error if it has no tokenizer.
func withTokenizer(m *Model, err error) (*Model, error) {
	if err == nil && m.Tokenizer == nil {
		err = invalid("model", "the model has no tokenizer")
	}
	return m, err
}

// A tokenizing is the body of POST /tokenize of vLLM: a text, or a chat.
type tokenizing struct {
	chat
	Prompt *string `json:"prompt"`
	Names  bool    `json:"return_token_strs"`
}

// tokenize answers POST /tokenize with the ids of a text or of a chat's prompt, and their names if asked for.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request, body []byte) error {
	var q tokenizing
	m, err := withTokenizer(parse(body, &q, &q.common, s.modelFinder(r)))
	if err != nil {
		return err
	}
	var ids []int32
	switch {
	case (q.Prompt != nil) == (q.Messages != nil):
		return invalid("prompt", "there must be one of prompt and messages")
	case q.Prompt != nil:
		ids = m.Tokenizer.Encode(*q.Prompt)
		if q.Special != nil && !*q.Special {
			ids, _ = m.Tokenizer.EncodeSpans(*q.Prompt, nil) // adds no special tokens
		}
	default:
		d, err := q.dialogue(m)
		if err != nil {
			return err
		}
		p, err := m.prompt(d)
		if err != nil {
			return err
		}
		ids = p.ids
	}
	var names []string
	for _, id := range ids {
		if q.Names {
			names = append(names, m.Tokenizer.Token(id))
		}
	}
	Write(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": m.Decoder.MaxTokens(), "tokens": append([]int32{}, ids...), "token_strs": names})
	return nil
}

// detokenize answers POST /detokenize of vLLM.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request, body []byte) error {
	var q struct {
		Model string  `json:"model"`
		IDs   []int32 `json:"tokens"`
	}
	if err := read(body, &q); err != nil {
		return err
	}
	m, err := withTokenizer(s.modelFinder(r)(q.Model))
	if err != nil {
		return err
	}
	for _, id := range q.IDs {
		if id < 0 || int(id) >= m.Vocab {
			return invalid("tokens", "there is no id %d: the model has ids 0 to %d", id, m.Vocab-1)
		}
	}
	Write(w, http.StatusOK, map[string]string{"prompt": m.Tokenizer.Decode(q.IDs, false)})
	return nil
}
