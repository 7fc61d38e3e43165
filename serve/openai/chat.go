package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"onering/internal/strict"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// A chat is the body of POST /v1/chat/completions. It becomes a dialogue, which other
// requests could become, too, and that a prompt.
type chat struct {
	common
	Messages            []message             `json:"messages"`
	Logprobs            bool                  `json:"logprobs"`
	TopLogprobs         *int                  `json:"top_logprobs"`
	MaxCompletionTokens *int                  `json:"max_completion_tokens"`
	Tools               tokenize.Data         `json:"tools"` // none if the list is empty
	ToolChoice          toolChoice            `json:"tool_choice"`
	Parallel            *bool                 `json:"parallel_tool_calls"` // false: only the first call is reported
	Effort              string                `json:"reasoning_effort"`    // an argument of the template
	Args                tokenize.TemplateArgs `json:"chat_template_kwargs"`
	Generation          *bool                 `json:"add_generation_prompt"`  // false: the text ends with the messages
	Continue            bool                  `json:"continue_final_message"` // the answer continues the last message
	Special             *bool                 `json:"add_special_tokens"`
}

// A toolChoice is "auto", "none", "required" or, with a name, "function".
type toolChoice struct{ how, name string }

// UnmarshalJSON reads a text, or an object with the name of a function.
func (t *toolChoice) UnmarshalJSON(data []byte) error {
	*t = toolChoice{}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if isNull(data) || strict.JSON(data, &t.how) == nil {
		return nil
	} else if strict.JSON(data, &named) != nil || named.Type != "function" || named.Function.Name == "" {
		return invalid("tool_choice", wrongChoice)
	}
	*t = toolChoice{"function", named.Function.Name}
	return nil
}

const wrongChoice = `tool_choice must be "auto", "none", "required" or {"type": "function", "function": {"name": ...}}`

// forces reports whether the answer is to begin with a call.
func (t toolChoice) forces() bool { return t.how == "required" || t.how == "function" }

// A message is one of a conversation. The texts of its parts are joined, and so are its thoughts.
type message struct {
	tokenize.Message
	calls []tools.Call // calls of an answer
}

// UnmarshalJSON reads an object whose content is a text, or a list of parts with texts. Only
// an answer, and what a tool returned, may be without.
func (m *message) UnmarshalJSON(data []byte) error {
	var fields map[string]json.RawMessage
	if err := strict.JSON(data, &fields); err != nil || fields == nil {
		return invalid("messages", "a message must be a JSON object")
	}
	var said struct {
		Role  string `json:"role"`
		Calls []call `json:"tool_calls"`
	}
	_ = strict.JSON(data, &said) // what is not in this form goes to the template as it is
	content := fields["content"]
	switch {
	case said.Role == "":
		return invalid("messages", `a message needs a "role"`)
	case !isNull(fields["function_call"]):
		return invalid("messages", `a message has a "function_call": write it as one of "tool_calls", and what it returned with the role tool`)
	case said.Role == "tool" && isNull(content):
		fields["content"] = json.RawMessage(`""`)
	case said.Role != "assistant" && isNull(content):
		return invalid("messages", "a message of the role %q needs a content", said.Role)
	case !isNull(content) && content[0] != '"':
		if err := joinParts(fields); err != nil {
			return err
		}
	}
	data, _ = json.Marshal(fields)
	if err := m.Message.UnmarshalJSON(data); err != nil {
		return err
	}
	m.calls = nil
	for _, c := range said.Calls {
		m.calls = append(m.calls, tools.Call{Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
	}
	return nil
}

// joinParts makes one text of the parts of a message's content, and one of the thoughts among them.
func joinParts(fields map[string]json.RawMessage) error {
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Refusal  string `json:"refusal"`
		Thinking string `json:"thinking"`
	}
	if strict.JSON(fields["content"], &parts) != nil {
		return invalid("messages", `the content of a message must be a text, or a list of {"type": "text", "text": ...}`)
	}
	var text, thought string
	for _, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "refusal":
			text += p.Text + p.Refusal
		case "thinking", "reasoning", "reasoning_text":
			thought += p.Thinking + p.Text
		default:
			return invalid("messages", "a message has a part of type %q; there is text only", p.Type)
		}
	}
	fields["content"], _ = json.Marshal(text)
	if thought != "" {
		fields["reasoning_content"], _ = json.Marshal(thought)
	}
	return nil
}

// check refuses requests that the server cannot fulfil. It takes an empty list of tools, or tool_choice =
// "none", for no tools, and max_completion_tokens for max_tokens.
func (c *chat) check() error {
	if tools, _ := c.Tools.MarshalJSON(); c.ToolChoice.how == "none" || isOneOf(tools, []string{"[]"}) {
		c.Tools = tokenize.Data{}
	}
	switch {
	case !slices.Contains([]string{"", "auto", "none", "required", "function"}, c.ToolChoice.how):
		return invalid("tool_choice", wrongChoice)
	case c.ToolChoice.forces() && !c.Tools.Given():
		return invalid("tool_choice", "tool_choice asks for a call, and there are no tools")
	case c.ToolChoice.forces() && c.Continue:
		return invalid("tool_choice", "tool_choice asks for a call, and continue_final_message for the rest of a message")
	case c.TopLogprobs != nil && (*c.TopLogprobs < 0 || *c.TopLogprobs > maxTop):
		return invalid("top_logprobs", "top_logprobs = %d: must be from 0 to %d", *c.TopLogprobs, maxTop)
	case c.TopLogprobs != nil && *c.TopLogprobs > 0 && !c.Logprobs:
		return invalid("top_logprobs", "top_logprobs needs logprobs = true")
	case len(c.Messages) == 0:
		return invalid("messages", "messages must have at least one message")
	}
	if c.MaxCompletionTokens != nil {
		c.MaxTokens = c.MaxCompletionTokens
	}
	return c.common.check()
}

// A dialogue is a conversation that a model is to continue.
type dialogue struct {
	tokenize.Conversation
	requested []message // the request's messages, before which the template may have set another
}

// dialogue returns what a chat asks a model to continue: its messages, behind the template's system message if they
// have none, and what the template reads.
func (c *chat) dialogue(m *Model) (d dialogue, err error) {
	if m.Tokenizer == nil {
		return d, invalid("messages", "the model has no tokenizer: use /v1/completions with token ids")
	}
	if c.Special != nil && *c.Special {
		return d, invalid("add_special_tokens", "add_special_tokens must be false or left out beside messages: a chat has the special tokens of its template")
	}
	d.requested = c.Messages
	for _, x := range c.Messages {
		d.Messages = append(d.Messages, x.Message)
	}
	d.Tools, d.Args = c.Tools, c.Args
	d.AddGenerationPrompt = !c.Continue
	if c.Generation != nil {
		d.AddGenerationPrompt = *c.Generation
	}
	if c.Continue {
		d.Continue = "content" // the field of the last message that the answer continues
	}
	if c.Effort != "" {
		if !m.Template.Reads(m.Tokenizer, "reasoning_effort") && c.Effort != "medium" { // OpenAI's default asks for nothing
			return d, invalid("reasoning_effort", "reasoning_effort = %q: the model's chat template does not read it; "+
				"leave it out, or give what it reads as chat_template_kwargs", c.Effort)
		}
		text, _ := json.Marshal(map[string]string{"reasoning_effort": c.Effort})
		var effort tokenize.TemplateArgs
		_ = effort.UnmarshalJSON(text)
		d.Args = d.Args.Over(effort)
	}
	if d.Conversation, err = m.Template.Around(d.Conversation); err != nil { // adds the template's system message and names
		err = invalid("messages", "%v", err)
	}
	return d, err
}

// A prompt is a dialogue as a model reads it, and how to read the answer.
type prompt struct {
	ids       []int32
	format    *tools.Format // the format of calls, nil if there are no tools
	toolsText []byte        // the tools as the request has them
	continued string        // the beginning of a message with which the prompt ends
}

// prompt renders a dialogue in the model's template and encodes it: a chat template, or one for a single message of
// the user. It refuses what the model would not see or has no room for.
func (m *Model) prompt(d dialogue) (p prompt, err error) {
	if d.Tools.Given() {
		p.format, err = m.calling(&d)
	}
	var text string
	switch {
	case err != nil: // it is returned below
	case m.Template.Chat || m.Template.Auto:
		if text, p.ids, err = m.Tokenizer.EncodeChat(d.Conversation); err == nil {
			if untold := d.Untold(m.Tokenizer); len(untold) > 0 {
				err = fmt.Errorf("the model's chat template does not write messages of the role %q, so the model would not see them: use a role that it writes", untold[0])
			}
		}
	case len(d.requested) == 1 && d.requested[0].Role == "user":
		text, p.ids, err = m.Tokenizer.Prompt(m.Template, d.requested[0].Content)
	default:
		err = fmt.Errorf("the template %q takes one message of the user", m.Template.Name)
	}
	if err == nil {
		err = m.Tokenizer.Check(text)
	}
	if errors.Is(err, tokenize.ErrNoChatTemplate) {
		err = fmt.Errorf("%w: ask /v1/completions, or start onering serve with --template", err)
	}
	if _, known := errors.AsType[*failure](err); err != nil && !known {
		err = invalid("messages", "%v", err)
	}
	if err != nil {
		return p, err
	}
	if d.Continue != "" {
		p.continued = d.requested[len(d.requested)-1].Content
	}
	p.toolsText, _ = d.Tools.MarshalJSON()
	return p, m.checkIDs(p.ids, "messages")
}

// calling returns how the model writes calls in a dialogue with tools. Where the template does not write the
// calls of earlier answers, it makes them a part of their content.
func (m *Model) calling(d *dialogue) (*tools.Format, error) {
	if !m.Template.Chat && !m.Template.Auto {
		return nil, invalid("tools", "the template %q has no place for tools: start onering serve with --template chat", m.Template.Name)
	}
	format, err := tools.Of(m.Tokenizer, d.Conversation)
	if errors.Is(err, tokenize.ErrNoChatTemplate) {
		return nil, err
	} else if err != nil {
		return nil, invalid("tools", "%v", err)
	}
	d.Messages = slices.Clone(d.Messages)
	before := len(d.Messages) - len(d.requested) // 1 if the template has set its system message before them
	for i, said := range d.requested {
		if format.Silent && len(said.calls) > 0 {
			d.Messages[before+i] = tokenize.Message{Role: said.Role, Content: format.Write(said.Content, said.calls)}
		}
	}
	return format, nil
}

// A clientMessage is a message as a client holds it, for comparison. Clients return an answer with other
// ids, other JSON formatting, and perhaps without its thought.
type clientMessage struct{ content, thought string }

// comparableMessage returns a message for comparison: its role, content and calls as one text, with "\x00" between, and
// its thought, which may stand in the content.
func comparableMessage(role, thought, content string, calls []tools.Call) clientMessage {
	if role == "assistant" && thought == "" {
		var cut tokenize.Thoughts
		thought, content = cut.Add(content)
		more, rest := cut.End()
		thought, content = thought+more, content+rest
	}
	for _, c := range calls {
		var compact bytes.Buffer
		if json.Compact(&compact, c.Arguments) == nil {
			c.Arguments = compact.Bytes()
		}
		content += "\x00" + c.Name + "\x00" + string(c.Arguments)
	}
	return clientMessage{role + "\x00" + content, thought}
}

// matches reports whether a message, as a client returned it, is the one that was said.
func (h clientMessage) matches(was clientMessage) bool {
	return h.content == was.content && (h.thought == "" || h.thought == was.thought)
}

// history returns the history that a dialogue states: its messages for comparison, and what renders those behind the
// ones that an episode has had.
func (m *Model) history(d dialogue) (h history) {
	for _, x := range d.requested {
		h.messages = append(h.messages, comparableMessage(x.Role, x.Thought(), x.Content, x.calls))
	}
	h.tokensAfter = func(after int) ([]int32, error) { // after: number of messages that the episode has had
		if slices.ContainsFunc(d.requested[after:], func(x message) bool { return x.Role == "assistant" }) {
			return nil, invalid("messages", "an answer that was not sampled follows the episode's turns")
		}
		text, ids, err := m.Tokenizer.NextTurn(d.Conversation) // what follows its last answer
		if err == nil {
			err = m.Tokenizer.Check(text)
		}
		if err != nil {
			return nil, invalid("messages", "%v", err)
		}
		return ids, nil
	}
	return h
}
