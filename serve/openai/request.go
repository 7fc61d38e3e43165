package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"onering/internal/settings"
	"onering/internal/strict"
	"onering/sampler"
)

// A completion is the body of POST /v1/completions.
type completion struct {
	common
	Prompt   prompts `json:"prompt"`
	Logprobs *int    `json:"logprobs"`
}

// common has the fields of both kinds of requests.
type common struct {
	Model string `json:"model"` // "" means the first model of the server

	sampler.Sampling
	sampler.Steering
	wantedShape
	Seed *int64          `json:"seed"`       // random if not given
	Salt json.RawMessage `json:"cache_salt"` // only prompts with the same may be continued

	MaxTokens      *int    `json:"max_tokens"`
	N              *int    `json:"n"`
	BestOf         *int    `json:"best_of"`
	Stop           texts   `json:"stop"`
	StopIDs        []int32 `json:"stop_token_ids"`
	WithStop       bool    `json:"include_stop_str_in_output"`
	IgnoreEOS      bool    `json:"ignore_eos"`
	SkipSpecial    *bool   `json:"skip_special_tokens"` // leave special tokens out of texts; true if not given
	Stream         bool    `json:"stream"`
	ReturnTokenIDs bool    `json:"return_token_ids"`
	NamedByID      bool    `json:"return_tokens_as_token_ids"` // in log-probs
	StreamOptions  *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (c *common) shared() *common { return c }

// texts are one text or a list of them.
type texts []string

// UnmarshalJSON reads a text, a list of texts or null.
func (t *texts) UnmarshalJSON(data []byte) error {
	*t = nil
	if data[0] == '"' {
		data = slices.Concat([]byte("["), data, []byte("]"))
	}
	if strict.JSON(data, (*[]string)(t)) != nil {
		return errors.New("must be a text or a list of texts")
	}
	return nil
}

// A promptOf is a text or, if the text is nil, a list of ids.
type promptOf struct {
	text *string
	ids  []int32
}

// prompts are a text, ids, or a list of either.
type prompts []promptOf

// UnmarshalJSON reads the four forms of a prompt.
func (p *prompts) UnmarshalJSON(data []byte) error {
	*p = nil
	var list texts
	var one []int32
	var many [][]int32
	if list.UnmarshalJSON(data) == nil {
		for i := range list {
			*p = append(*p, promptOf{text: &list[i]})
		}
	} else if err := strict.JSON(data, &one); err == nil {
		*p = prompts{{ids: one}}
	} else if strict.JSON(data, &many) != nil {
		return fmt.Errorf("must be a text, a list of token ids, or a list of texts or of lists of token ids: %w", err)
	}
	for _, ids := range many {
		*p = append(*p, promptOf{ids: ids})
	}
	return nil
}

// isNull reports whether a field is null or not there.
func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// parse reads a body into a request, whose common part is c, and returns its model, which models finds by name.
// Settings of sampling that the body does not state are the model's.
func parse(body []byte, into any, c *common, models func(name string) (*Model, error)) (*Model, error) {
	of := struct {
		Model string `json:"model"`
	}{c.Model}
	_ = strict.JSON(body, &of) // the error is explained below
	m, missing := models(of.Model)
	c.Sampling = sampler.Plain(0)
	if missing == nil {
		c.Sampling = m.Sampling
	}
	if err := read(body, into); err != nil {
		return nil, err
	}
	return m, missing
}

// read reads a body. It refuses unknown fields, which might ask for something that the answer would not follow.
func read(body []byte, into any) error {
	if !utf8.Valid(body) {
		return invalid("", "the body is not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := strict.JSON(body, &fields); err != nil || fields == nil {
		return unreadable(err)
	}
	if err := checkFields(fields, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if err := strict.JSON(body, into); err != nil {
		return unreadable(err)
	}
	return nil
}

// unreadable explains a JSON error in a body.
func unreadable(err error) error {
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	wrong, ok := errors.AsType[*strict.Error](err)
	switch {
	case !ok && err != nil:
		return invalid("", "the body is not a request: %v", err)
	case !ok || wrong.Path == "":
		return invalid("", "the body must be a JSON object, such as {\"prompt\": \"1+1=\"}")
	}
	field := strings.FieldsFunc(wrong.Path, func(r rune) bool { return r == '.' || r == '[' })[0]
	return invalid(field, "%v", wrong)
}

// check refuses what the server cannot fulfil of the fields that completions and chats share.
func (c *common) check() error {
	switch {
	case c.N != nil && (*c.N < 1 || *c.N > maxSamples):
		return invalid("n", "n = %d: must be from 1 to %d", *c.N, maxSamples)
	case c.BestOf != nil && *c.BestOf != c.sampleCount():
		return invalid("best_of", "best_of must be n: all samples are returned")
	case len(c.Stop) > maxStops:
		return invalid("stop", "stop has %d texts, more than %d", len(c.Stop), maxStops)
	}
	if len(c.StopIDs) > maxStopIDs || len(c.StopIDs) > 0 && slices.Min(c.StopIDs) < 0 {
		return invalid("stop_token_ids", "stop_token_ids must be up to %d ids, each at least 0", maxStopIDs)
	}
	for _, s := range c.Stop {
		if s == "" || len(s) > maxStopBytes {
			return invalid("stop", "a text of stop has %d bytes: there must be 1 to %d", len(s), maxStopBytes)
		}
	}
	return nil
}

// Limits of a request.
const (
	maxSamples   = 128
	maxPrompts   = 128
	maxTop       = 20
	maxStops     = 16
	maxStopIDs   = 256
	maxStopBytes = 1000
)

// check refuses completions that the server cannot fulfil.
func (c *completion) check() error {
	switch {
	case c.Logprobs != nil && (*c.Logprobs < 0 || *c.Logprobs > maxTop):
		return invalid("logprobs", wrongLogprobs, *c.Logprobs, maxTop)
	case len(c.Prompt) < 1 || len(c.Prompt) > maxPrompts:
		return invalid("prompt", "there must be 1 to %d prompts, and there are %d", maxPrompts, len(c.Prompt))
	}
	return c.common.check()
}

const wrongLogprobs = "logprobs = %d: must be from 0, the log-probs of the sampled tokens, to %d"

func (c *common) sampleCount() int {
	if c.N == nil {
		return 1
	}
	return *c.N
}

// sampling returns how the tokens are chosen. A response may have up to most tokens, and a request may ask for more:
// many clients ask for what other models have. Without a limit in the request, or with -1, it has up to usual.
func (c *common) sampling(usual, most int) (sampler.Sampling, error) {
	s := c.Sampling
	if s.TopK == -1 { // like 0, it turns top_k off
		s.TopK = 0
	}
	if s.TopP == 0 {
		s.Temperature, s.TopP = 0, 1 // only the likeliest token
	}
	s.MaxNewTokens = usual
	if c.MaxTokens != nil && *c.MaxTokens != -1 {
		s.MaxNewTokens = min(*c.MaxTokens, most)
	}
	s = s.OrGreedy()
	var wrong *settings.Error
	if err := errors.Join(settings.Check(&s), settings.Check(&c.Steering)); errors.As(err, &wrong) {
		key := wrong.Key
		if key == "max_new_tokens" {
			key = "max_tokens"
		}
		return s, invalid(key, "%s = %v: %s", key, wrong.Value, wrong.Remedy)
	} else if err != nil {
		return s, invalid("", "%v", err)
	}
	return s, nil
}

// options returns the options of a call that answers the request. stops are the template's, besides the request's own.
func (c *common) options(m *Model, s sampler.Sampling, stops []string) sampler.Options {
	seed := rand.Uint64()
	if c.Seed != nil {
		seed = uint64(*c.Seed)
	}
	ends := slices.Clone(c.StopIDs)
	if !c.IgnoreEOS {
		ends = append(ends, m.EOS...)
	}
	o := sampler.Options{Sampling: s, Steering: c.Steering, EOS: ends, Stops: slices.Concat(c.Stop, stops), Seed: seed}
	if len(o.Stops) > 0 {
		o.Text = func() sampler.TextDecoder { return m.Tokenizer.NewDecoder() }
	}
	return o
}

// encode returns the ids of a prompt without a template.
func (m *Model) encode(p promptOf) (ids []int32, err error) {
	ids = p.ids
	if p.text != nil {
		if m.Tokenizer == nil {
			return nil, invalid("prompt", "the model has no tokenizer: give token ids")
		}
		if err := m.Tokenizer.Check(*p.text); err != nil {
			return nil, invalid("prompt", "%v", err)
		}
		ids = m.Tokenizer.Encode(*p.text)
	}
	return ids, m.checkIDs(ids, "prompt")
}

// checkIDs refuses a prompt that the model cannot read.
func (m *Model) checkIDs(ids []int32, param string) error {
	if len(ids) == 0 {
		return invalid(param, "the prompt is empty: a response must follow at least one token")
	}
	for _, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return invalid(param, "the prompt has the id %d: the model has ids 0 to %d", id, m.Vocab-1)
		}
	}
	if room := m.Decoder.MaxTokens(); len(ids) >= room {
		e := invalid(param, "the prompt has %d tokens, and prompt and response together have room for %d", len(ids), room)
		e.code = "context_length_exceeded"
		return e
	}
	return nil
}

// ignoredFields are fields about the user and accounting, which are ignored.
var ignoredFields = strings.Fields("user safety_identifier prompt_cache_key prompt_cache_retention metadata store " +
	"service_tier prediction cache_prompt keep_alive request_id priority guided_decoding_backend")

const (
	noList    = "there are logit_bias, and response_format for the form of an answer"
	noGrammar = "the form of an answer is a schema (response_format), an expression (structured_outputs.regex) or a choice"
	noBeams   = "responses are sampled, one beside the other"
)

// neutralFields are fields for which onering has no option: the values that change nothing, as
// JSON, and why other values are refused. Each may also be null.
var neutralFields = map[string]struct {
	values []string
	why    string
}{
	"repeat_penalty": {[]string{"1"}, "the name is repetition_penalty"}, "allowed_token_ids": {[]string{"[]"}, noList},
	"bad_words": {[]string{"[]"}, noList},
	"echo":      {[]string{"false"}, "the prompt's tokens come with return_token_ids, and onering score has their log-probs"},
	"suffix":    {[]string{`""`}, "a model continues its prompt"},
	"greedy":    {[]string{"false"}, "a temperature of 0 takes the likeliest token"},
	"do_sample": {[]string{"true"}, "a temperature of 0 takes the likeliest token"},
	"functions": {[]string{"[]"}, "give them as tools"}, "function_call": {[]string{`"none"`, `"auto"`}, "give functions as tools"},
	"spaces_between_special_tokens": {[]string{"true", "false"}, "it is true or false"}, // no tokenizer here has such spaces
	"detokenize":                    {[]string{"true"}, "token_ids comes beside the text"},
	"add_special_tokens":            {[]string{"true"}, "a prompt gets those that the tokenizer adds; give token ids for one without"},
	"add_generation_prompt":         {[]string{"true"}, "a completion has no template"},
	"continue_final_message":        {[]string{"false"}, "a completion has no messages"},
	"enable_thinking":               {nil, "give it in chat_template_kwargs"}, "thinking": {nil, "give what the chat template reads in chat_template_kwargs"},
	"use_beam_search": {[]string{"false"}, noBeams}, "num_beams": {[]string{"1"}, noBeams},
	"length_penalty": {[]string{"1", "0"}, noBeams}, "early_stopping": {[]string{"false"}, noBeams},
	"typical_p": {[]string{"1"}, "there are top_p, top_k and min_p"}, "tfs_z": {[]string{"1"}, "there are top_p, top_k and min_p"},
	"guided_grammar": {nil, noGrammar}, "grammar": {nil, noGrammar}, "ebnf": {nil, noGrammar}, "structural_tag": {nil, noGrammar},
	"prompt_logprobs": {nil, "onering score has the log-probs of a prompt"},
	"reasoning":       {[]string{`{"effort": "medium"}`, `{"enabled": true}`}, "give reasoning_effort, or what the chat template reads as chat_template_kwargs"}, "include_reasoning": {[]string{"true"}, "thoughts are apart, as reasoning_content"}, "separate_reasoning": {[]string{"true"}, "thoughts are reasoning_content"}, "stream_reasoning": {[]string{"true"}, "thoughts come as they are written"},
	"modalities": {[]string{`["text"]`}, "there is text only"}, "verbosity": {[]string{`"medium"`}, "ask for it in the prompt"},
}

// emptyValues are values with which an unknown field asks for nothing.
var emptyValues = []string{"null", "false", "0", `""`, "[]", "{}"}

// checkFields refuses fields that the request type does not have, unless they change nothing: a field of other servers
// with one of the values that neutralFields lists, or an unknown one with an empty value.
func checkFields(fields map[string]json.RawMessage, request reflect.Type) error {
	known := slices.Clone(ignoredFields)
	for _, f := range reflect.VisibleFields(request) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && f.Tag.Get("toml") != "-" { // Sampling.Greedy has the tag: here a temperature of 0 says that
			known = append(known, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		option, is := neutralFields[name]
		switch {
		case slices.Contains(known, name):
		case is && !isNull(value) && !isOneOf(value, option.values):
			return invalid(name, "%s = %s: must be %s: %s", name, shortened(value), strings.Join(append(slices.Clone(option.values), "left out"), " or "), option.why)
		case !is && !isOneOf(value, emptyValues):
			return invalid(name, "the field %q is not known here", name)
		}
	}
	return nil
}

// isOneOf reports whether a list has a value, compared as JSON: 1.0 is 1.
func isOneOf(value json.RawMessage, list []string) bool {
	var is any
	if json.Unmarshal(value, &is) != nil {
		return false
	}
	return slices.ContainsFunc(list, func(text string) bool {
		var want any
		return json.Unmarshal([]byte(text), &want) == nil && reflect.DeepEqual(is, want)
	})
}

// shortened shortens a value for a message.
func shortened(value json.RawMessage) string {
	if len(value) > 60 {
		return string(value[:50]) + "..."
	}
	return string(value)
}
