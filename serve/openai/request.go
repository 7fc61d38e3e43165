package openai

import (
	"cmp"
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
	"onering/sampler"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// A completion is the body of POST /v1/completions.
type completion struct {
	common
	Prompt   prompts `json:"prompt"`
	Logprobs *int    `json:"logprobs"`
}

// A chat is the body of POST /v1/chat/completions.
type chat struct {
	common
	Messages    []message             `json:"messages"`
	Logprobs    bool                  `json:"logprobs"`
	TopLogprobs *int                  `json:"top_logprobs"`
	MaxTokens2  *int                  `json:"max_completion_tokens"`
	Tools       toolList              `json:"tools"`
	ToolChoice  toolChoice            `json:"tool_choice"`
	Parallel    *bool                 `json:"parallel_tool_calls"` // false: only the first call is reported
	Effort      string                `json:"reasoning_effort"`    // an argument of the template
	Args        tokenize.TemplateArgs `json:"chat_template_kwargs"`

	begun string // beginning of the answer, from tool_choice
	ended bool   // the text ends with the messages, without the beginning of an answer
}

// common has the fields of both kinds of requests.
type common struct {
	Model string `json:"model"` // "" means the first model of the server

	sampler.Sampling
	Seed *int64 `json:"seed"` // random if not given

	MaxTokens      *int    `json:"max_tokens"`
	N              *int    `json:"n"`
	BestOf         *int    `json:"best_of"`
	Stop           texts   `json:"stop"`
	StopIDs        []int32 `json:"stop_token_ids"`
	IgnoreEOS      bool    `json:"ignore_eos"`
	SkipSpecial    *bool   `json:"skip_special_tokens"` // leave special tokens out of texts; true if not given
	Stream         bool    `json:"stream"`
	ReturnTokenIDs bool    `json:"return_token_ids"`
	StreamOptions  *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (c *common) shared() *common { return c }

// texts are one text or a list of them.
type texts []string

// UnmarshalJSON reads a text, a list of texts or null.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one *string
	if json.Unmarshal(data, &one) == nil {
		if *t = nil; one != nil {
			*t = texts{*one}
		}
		return nil
	}
	var list []string
	if json.Unmarshal(data, &list) != nil {
		return errors.New("stop must be a text or a list of texts")
	}
	*t = list
	return nil
}

// A toolList has the functions that a chat may call. An empty list means none.
type toolList struct {
	tokenize.Data
	some bool
}

// UnmarshalJSON reads a list.
func (t *toolList) UnmarshalJSON(data []byte) error {
	if *t = (toolList{}); isOneOf(data, []string{"null", "[]"}) {
		return nil
	}
	t.some = true
	return t.Data.UnmarshalJSON(data)
}

// A toolChoice is "auto", "none", "required" or, with a name, "function".
type toolChoice struct{ how, name string }

// UnmarshalJSON reads a text, or an object with the name of a function.
func (t *toolChoice) UnmarshalJSON(data []byte) error {
	*t = toolChoice{}
	if json.Unmarshal(data, &t.how) == nil {
		return nil
	}
	var named struct {
		Type     string
		Function struct{ Name string }
	}
	if json.Unmarshal(data, &named) != nil || named.Type != "function" || named.Function.Name == "" {
		return invalid("tool_choice", wrongChoice)
	}
	*t = toolChoice{"function", named.Function.Name}
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
	*p = nil // a body may have the field twice
	var list texts
	if list.UnmarshalJSON(data) == nil {
		for i := range list {
			*p = append(*p, promptOf{text: &list[i]})
		}
		return nil
	}
	var one []int32
	if json.Unmarshal(data, &one) == nil {
		*p = prompts{{ids: one}}
		return nil
	}
	var many [][]int32
	if json.Unmarshal(data, &many) != nil {
		return errors.New("prompt must be a text, a list of token ids, or a list of texts or of lists of token ids")
	}
	for _, ids := range many {
		*p = append(*p, promptOf{ids: ids})
	}
	return nil
}

// A message is one of a conversation. A content of several texts is joined.
type message struct {
	tokenize.Message
	calls []tools.Call // calls of an answer
}

// UnmarshalJSON reads an object whose content is a text, or a list of parts with texts. Only
// an answer may be without.
func (m *message) UnmarshalJSON(data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return invalid("messages", "a message must be a JSON object")
	}
	content := fields["content"]
	if len(content) > 0 && content[0] == '[' {
		var parts []struct{ Type, Text string }
		if json.Unmarshal(content, &parts) != nil {
			return invalid("messages", `the content of a message must be a text, or a list of {"type": "text", "text": ...}`)
		}
		var joined strings.Builder
		for _, p := range parts {
			if p.Type != "text" {
				return invalid("messages", "a message has a part of type %q; there is text only", p.Type)
			}
			joined.WriteString(p.Text)
		}
		fields["content"], _ = json.Marshal(joined.String())
		data, _ = json.Marshal(fields)
	}
	if err := m.Message.UnmarshalJSON(data); err != nil {
		return err
	}
	var calls []call
	if m.calls = nil; json.Unmarshal(fields["tool_calls"], &calls) == nil {
		for _, c := range calls {
			m.calls = append(m.calls, tools.Call{Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
		}
	}
	switch {
	case m.Role == "":
		return invalid("messages", `a message needs a "role"`)
	case !isNull(fields["function_call"]):
		return invalid("messages", `a message has a "function_call": write it as one of "tool_calls", and what it returned with the role tool`)
	case m.Role != "assistant" && isNull(content):
		return invalid("messages", "a message of the role %q needs a content", m.Role)
	}
	return nil
}

// isNull reports whether a field is null or not there.
func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// kinds describe the possible types of fields.
var kinds = map[reflect.Kind]string{
	reflect.String: "a text", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int64: "a whole number of 64 bits",
	reflect.Float64: "a number", reflect.Slice: "a list", reflect.Struct: "an object", reflect.Map: "an object",
}

// parse reads a body into a request. Settings that it does not state are the model's.
func parse(body []byte, into any, c *common, models func(name string) (*Model, error)) error {
	of := struct{ Model string }{c.Model}
	_ = json.Unmarshal(body, &of) // the error is explained below
	c.Sampling = sampler.Plain(0)
	if m, err := models(of.Model); err == nil {
		c.Sampling = m.Sampling
	}
	return read(body, into)
}

// read reads a body. It refuses unknown fields, which might ask for something that the
// answer would not follow.
func read(body []byte, into any) error {
	if !utf8.Valid(body) {
		return invalid("", "the body is not UTF-8")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return unreadable(cmp.Or(err, error(&json.UnmarshalTypeError{Value: "null", Type: reflect.TypeOf(fields)})))
	}
	if err := checkFields(fields, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return unreadable(err)
	}
	return nil
}

// unreadable explains a JSON error in a body.
func unreadable(err error) error {
	var known *failure
	if errors.As(err, &known) {
		return known
	}
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return invalid("", "the body is no request: %v", err)
	}
	field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] // after the embedded structs
	kind := cmp.Or(kinds[wrong.Type.Kind()], wrong.Type.String())
	switch number, is := strings.CutPrefix(wrong.Value, "number "); {
	case field == "":
		return invalid("", "the body must be a JSON object, such as {\"prompt\": \"1+1=\"}")
	case is:
		return invalid(field, "%s = %s: must be %s", field, number, kind)
	}
	return invalid(field, "%s must be %s", field, kind)
}

// check refuses requests that the server cannot fulfil.
func (c *common) check() error {
	switch {
	case c.N != nil && (*c.N < 1 || *c.N > maxSamples):
		return invalid("n", "n = %d: must be from 1 to %d", *c.N, maxSamples)
	case c.BestOf != nil && *c.BestOf != c.samples():
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

// check refuses requests that the server cannot fulfil.
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
const wrongChoice = `tool_choice must be "auto", "none", "required" or {"type": "function", "function": {"name": ...}}`

// check refuses requests that the server cannot fulfil.
func (c *chat) check() error {
	if c.ToolChoice.how == "none" {
		c.Tools = toolList{}
	}
	switch {
	case !slices.Contains([]string{"", "auto", "none", "required", "function"}, c.ToolChoice.how):
		return invalid("tool_choice", wrongChoice)
	case !c.Tools.some && (c.ToolChoice.how == "required" || c.ToolChoice.how == "function"):
		return invalid("tool_choice", "tool_choice asks for a call, and there are no tools")
	case c.TopLogprobs != nil && (*c.TopLogprobs < 0 || *c.TopLogprobs > maxTop):
		return invalid("top_logprobs", "top_logprobs = %d: must be from 0 to %d", *c.TopLogprobs, maxTop)
	case c.TopLogprobs != nil && *c.TopLogprobs > 0 && !c.Logprobs:
		return invalid("top_logprobs", "top_logprobs needs logprobs = true")
	case len(c.Messages) == 0:
		return invalid("messages", "messages must have at least one message")
	}
	if c.MaxTokens2 != nil {
		c.MaxTokens = c.MaxTokens2
	}
	return c.common.check()
}

func (c *common) samples() int {
	if c.N == nil {
		return 1
	}
	return *c.N
}

// sampling returns how the tokens are chosen. A response may have up to most tokens;
// without a limit in the request, up to usual.
func (c *common) sampling(usual, most int) (sampler.Sampling, error) {
	s := c.Sampling
	if s.TopK == -1 { // like 0, it turns top_k off
		s.TopK = 0
	}
	if s.TopP == 0 {
		s.Temperature, s.TopP = 0, 1 // only the likeliest token
	}
	if s.MaxNewTokens = usual; c.MaxTokens != nil {
		s.MaxNewTokens = *c.MaxTokens
	}
	s = s.OrGreedy()
	if s.MaxNewTokens > most {
		return s, invalid("max_tokens", "max_tokens = %d: this server gives up to %d", s.MaxNewTokens, most)
	}
	var wrong *settings.Error
	if err := settings.Check(&s); errors.As(err, &wrong) {
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

// options returns the options of a call that answers the request.
func (c *common) options(m *Model, s sampler.Sampling, stops []string) sampler.Options {
	seed := rand.Uint64()
	if c.Seed != nil {
		seed = uint64(*c.Seed)
	}
	ends := slices.Clone(c.StopIDs)
	if !c.IgnoreEOS {
		ends = append(ends, m.EOS...)
	}
	o := sampler.Options{Sampling: s, EOS: ends, Stops: slices.Concat(c.Stop, stops), Seed: seed}
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

// talk returns a chat in the form of the model's template.
func (m *Model) talk(c *chat) (tokenize.Conversation, error) {
	var messages []tokenize.Message
	for _, x := range c.Messages {
		messages = append(messages, x.Message)
	}
	talk := tokenize.Talk(messages...)
	talk.AddGenerationPrompt = !c.ended
	if talk.Tools, talk.Args = c.Tools.Data, c.Args; c.Effort != "" {
		if !m.Template.Reads(m.Tokenizer, "reasoning_effort") && c.Effort != usualEffort {
			return talk, invalid("reasoning_effort", "reasoning_effort = %q: the model's chat template does not read it; leave it out, or give what it reads as chat_template_kwargs", c.Effort)
		}
		talk.Args = talk.Args.Over(effort(c.Effort))
	}
	return m.Template.Around(talk)
}

// encodeChat returns the ids of a conversation in the model's template, and how the model
// writes calls if there are tools.
func (m *Model) encodeChat(c *chat) (ids []int32, format *tools.Format, err error) {
	if m.Tokenizer == nil {
		return nil, nil, invalid("messages", "the model has no tokenizer: use /v1/completions with token ids")
	}
	var text string
	if m.Template.Chat || m.Template.Auto {
		var talk tokenize.Conversation
		if talk, err = m.talk(c); err == nil && c.Tools.some {
			if format, err = tools.Of(m.Tokenizer, talk); err == nil && format.Silent {
				c.speak(talk.Messages, format)
			} else if err != nil && !errors.Is(err, tokenize.ErrNoChatTemplate) {
				return nil, nil, invalid("tools", "%v", err)
			}
		}
		if err == nil {
			text, ids, err = m.Tokenizer.EncodeChat(talk)
		}
		if how := c.ToolChoice.how; err == nil && (how == "required" || how == "function") {
			if c.begun, err = format.Begin(c.ToolChoice.name); err != nil {
				return nil, nil, invalid("tool_choice", "tool_choice: %v", err)
			}
			begun, _ := m.Tokenizer.EncodeSpans(c.begun, nil)
			ids = append(ids, begun...)
		}
	} else if c.Tools.some {
		return nil, nil, invalid("tools", "the template %q has no place for tools: start onering serve with --template chat", m.Template.Name)
	} else if len(c.Messages) == 1 && c.Messages[0].Role == "user" {
		text, ids, err = m.Tokenizer.Prompt(m.Template, c.Messages[0].Content)
	} else {
		err = fmt.Errorf("the template %q takes one message of the user", m.Template.Name)
	}
	if err == nil {
		err = m.Tokenizer.Check(text)
	}
	if errors.Is(err, tokenize.ErrNoChatTemplate) {
		err = fmt.Errorf("%w: ask /v1/completions, or start onering serve with --template", err)
	}
	if failed, ok := errors.AsType[*failure](err); ok {
		return nil, nil, failed
	}
	if err != nil {
		return nil, nil, invalid("messages", "%v", err)
	}
	return ids, format, m.checkIDs(ids, "messages")
}

// speak writes the calls of answers into their contents. The messages are the chat's,
// perhaps with another one in front.
func (c *chat) speak(messages []tokenize.Message, format *tools.Format) {
	from := len(messages) - len(c.Messages)
	for i, x := range c.Messages {
		if len(x.calls) > 0 {
			messages[from+i] = tokenize.Message{Role: x.Role, Content: format.Write(x.Content, x.calls)}
		}
	}
}

// usualEffort is OpenAI's default of reasoning_effort.
const usualEffort = "medium"

// effort returns reasoning_effort as an argument of a chat template.
func effort(value string) (args tokenize.TemplateArgs) {
	text, _ := json.Marshal(map[string]string{"reasoning_effort": value})
	_ = args.UnmarshalJSON(text)
	return args
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

// passedOver are fields about the user and accounting, which are ignored.
var passedOver = strings.Fields("user safety_identifier prompt_cache_key prompt_cache_retention metadata store service_tier cache_prompt cache_salt keep_alive request_id priority")

const (
	noPenalties  = "there are no penalties here"
	noConstraint = "what a model writes is not constrained: ask for the form in the prompt, and check the answer"
	noBeams      = "responses are sampled, one beside the other"
)

// neutral are fields for which onering has no option: the values that change nothing, as
// JSON, and why other values are refused. Each may also be null.
var neutral = map[string]struct {
	values []string
	why    string
}{
	"frequency_penalty": {[]string{"0"}, noPenalties}, "presence_penalty": {[]string{"0"}, noPenalties}, "repetition_penalty": {[]string{"1"}, noPenalties}, "repeat_penalty": {[]string{"1"}, noPenalties},
	"logit_bias": {[]string{"{}"}, "logits are as the model gives them"}, "allowed_token_ids": {[]string{"[]"}, noConstraint}, "bad_words": {[]string{"[]"}, noConstraint},
	"response_format": {[]string{`{"type":"text"}`}, noConstraint},
	"echo":            {[]string{"false"}, "the prompt's tokens come with return_token_ids, and onering score has their log-probs"},
	"suffix":          {[]string{`""`}, "a model continues its prompt"},
	"greedy":          {[]string{"false"}, "a temperature of 0 takes the likeliest token"}, "do_sample": {[]string{"true"}, "a temperature of 0 takes the likeliest token"},
	"functions": {[]string{"[]"}, "give them as tools"}, "function_call": {[]string{`"none"`, `"auto"`}, "give functions as tools"},
	"min_tokens":                    {[]string{"0"}, "an end-of-sequence token ends a response wherever it comes"},
	"include_stop_str_in_output":    {[]string{"false"}, "token_ids has the tokens of the stop text"},
	"spaces_between_special_tokens": {[]string{"true"}, "special tokens are no part of a text"},
	"detokenize":                    {[]string{"true"}, "token_ids comes beside the text"}, "add_special_tokens": {nil, "/v1/completions adds those that the tokenizer adds, and a chat has those of its template"},
	"add_generation_prompt": {[]string{"true"}, "a chat is answered"}, "continue_final_message": {[]string{"false"}, "ask /v1/completions with the beginning of the answer in the prompt"},
	"enable_thinking": {nil, "give it in chat_template_kwargs"}, "thinking": {nil, "give what the chat template reads in chat_template_kwargs"},
	"use_beam_search": {[]string{"false"}, noBeams}, "num_beams": {[]string{"1"}, noBeams}, "length_penalty": {[]string{"1", "0"}, noBeams}, "early_stopping": {[]string{"false"}, noBeams},
	"typical_p": {[]string{"1"}, "there are top_p, top_k and min_p"}, "tfs_z": {[]string{"1"}, "there are top_p, top_k and min_p"},
	"modalities": {[]string{`["text"]`}, "there is text only"}, "verbosity": {[]string{`"medium"`}, "ask for it in the prompt"},
}

// nothing are values with which an unknown field asks for nothing.
var nothing = []string{"null", "false", "0", `""`, "[]", "{}"}

// checkFields refuses fields that the request type does not have, unless they change nothing.
func checkFields(fields map[string]json.RawMessage, request reflect.Type) error {
	known, own := slices.Clone(passedOver), []string(nil)
	for _, f := range reflect.VisibleFields(request) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			if known = append(known, name); len(f.Index) == 1 {
				own = append(own, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		option, is := neutral[name]
		switch {
		case slices.Contains(own, name):
		case is && !isNull(value) && !isOneOf(value, option.values):
			return invalid(name, "%s = %s: must be %s: %s", name, shortened(value), strings.Join(append(slices.Clone(option.values), "left out"), " or "), option.why)
		case !is && !slices.Contains(known, name) && !isOneOf(value, nothing):
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
