package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/policy"
	"onering/sampler"
	"onering/tokenize"
)

type chatOptions struct {
	sampler.Options
	around tokenize.Template
	json   bool
}

// A conversation is what a chat has said and read.
type conversation struct {
	chatOptions
	policy   *policy.Policy
	decoder  *sampler.Kept
	free     func() // the decoder under it
	out      io.Writer
	messages []tokenize.Message
	ids      []int32 // of the conversation, as they were read and sampled
	count    int     // turns so far, those before a reset included
	saved    map[string]bool
	failed   lineErrors
}

// longestChat bounds the conversation with a model that states no context.
const longestChat = 1 << 15

// stepCost is how many tokens of a prompt take as long as a decode step: measured
// with a model of 135M weights on two cores, 2.4 ms a token and 69 ms a step.
const stepCost = 28

func newConversation(e *engine, o chatOptions) (*conversation, error) {
	if err := e.policy.NeedTokenizer(); err != nil {
		return nil, err
	}
	noChat := e.policy.Tokenizer.CheckChat()
	if o.around.Auto && noChat == nil {
		// The lines of a chat are what a prompt of messages is in training.
		chat, err := tokenize.ParseTemplate("chat")
		if err != nil {
			return nil, err
		}
		chat.System, chat.Args, chat.Stops = o.around.System, o.around.Args, o.around.Stops
		o.around = chat
	}
	if o.around.Chat && noChat != nil {
		return nil, usagef("%s: %w; --template no talks without one, each line for itself", e.policy.Dir, noChat)
	}
	length := e.policy.Model.MaxPositions
	if length == 0 {
		length = longestChat
	}
	decoder, err := e.env.NewDecoder(e.policy.Ring, 1, length)
	if err != nil {
		return nil, err
	}
	o.EOS, o.Stops = e.policy.Model.EOS, o.around.Stops
	o.Text = func() sampler.TextDecoder { return e.policy.Tokenizer.NewDecoder() }
	return &conversation{
		chatOptions: o, policy: e.policy, decoder: sampler.NewKept(decoder, stepCost), free: decoder.Close,
		saved: map[string]bool{}, failed: lineErrors{name: "stdin"},
	}, nil
}

func (c *conversation) close() {
	c.decoder.Close()
	c.free()
}

// An answered is a turn with its answer.
type answered struct {
	Turn         int            `json:"turn"` // from 0
	Prompt       string         `json:"prompt"`
	Text         string         `json:"text"`
	IDs          []int32        `json:"ids"`
	Finish       sampler.Finish `json:"finish"`
	PromptTokens int            `json:"prompt_tokens"` // of the conversation until the answer
	ReusedTokens int            `json:"reused_tokens"` // of these, what was not computed again
}

// answer samples the answer to a text, prints it as it comes and adds both to the
// conversation. If there is an error, the conversation is as before.
func (c *conversation) answer(ctx context.Context, text string) (answered, error) {
	a := answered{Turn: c.count, Prompt: text, IDs: []int32{}}
	c.count++
	prompt, err := c.prompt(text)
	if err != nil {
		return a, err
	}
	a.PromptTokens = len(prompt)
	if limit := c.decoder.MaxTokens(); len(prompt) >= limit {
		return a, fmt.Errorf("the conversation would take %d tokens, and the model's context has %d: /save FILE keeps it, /reset begins a new one", len(prompt)+1, limit)
	}
	decode := c.policy.Tokenizer.NewDecoder()
	decode.SkipSpecial = true
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var said strings.Builder
	var failed error
	say := func(text string) {
		said.WriteString(text)
		if c.json || failed != nil || text == "" {
			return
		}
		if _, failed = io.WriteString(c.out, text); failed != nil {
			stop()
		}
	}
	o := c.Options
	o.Token = func(t sampler.Token) {
		a.IDs = append(a.IDs, t.ID)
		say(decode.Add(t.ID))
	}
	request := sampler.Request{Prompt: prompt, ID: uint64(a.Turn), Samples: 1}
	responses, _, err := sampler.Sample(ctx, c.decoder, o, []sampler.Request{request}, nil)
	a.ReusedTokens = c.decoder.Reused
	say(decode.Flush())
	a.Text = said.String()
	switch {
	case failed != nil:
		return a, outputError{failed}
	case canceled(err):
		a.Finish = interruptedFinish
	case err != nil:
		return a, err
	default:
		a.Finish = responses[0].Finish
	}
	c.ids = append(prompt, a.IDs...)
	c.messages = append(c.messages, tokenize.Message{Role: "user", Content: text}, tokenize.Message{Role: "assistant", Content: a.Text})
	return a, nil
}

// prompt returns the ids of the conversation with a further turn of the user. The
// ids of a conversation stay as they were; without a chat template there is none.
func (c *conversation) prompt(text string) ([]int32, error) {
	if !c.around.Chat || len(c.messages) == 0 {
		return encode(c.policy, func(t *tokenize.Tokenizer) (string, []int32, error) { return t.Prompt(c.around, text) })
	}
	talk, err := c.around.Around(tokenize.Talk(append(slices.Clone(c.messages), tokenize.Message{Role: "user", Content: text})...))
	if err != nil {
		return nil, err
	}
	ids, err := encode(c.policy, func(t *tokenize.Tokenizer) (string, []int32, error) { return tokenize.NextTurn(t, talk) })
	if err != nil {
		return nil, err
	}
	// The answer may have sampled the token that ends it.
	if last := c.ids[len(c.ids)-1]; len(ids) > 0 && ids[0] == last && slices.Contains(c.EOS, last) {
		ids = ids[1:]
	}
	return slices.Concat(c.ids, ids), nil
}

// reset forgets the conversation.
func (c *conversation) reset() { c.messages, c.ids = nil, nil }

// chatCommand returns the first word of a line that is for the program; "" means that
// the line is a turn.
func chatCommand(line string) string {
	if !strings.HasPrefix(line, "/") || strings.HasPrefix(line, "//") {
		return ""
	}
	return strings.Fields(line)[0]
}

// command does what a line that begins with a slash asks for. It talks to w.
func (c *conversation) command(w io.Writer, line string) error {
	word := chatCommand(line)
	rest := strings.TrimSpace(strings.TrimPrefix(line, word))
	if rest != "" && (word == "/reset" || word == "/help") {
		return fmt.Errorf("%s takes nothing after it, not %q", word, rest)
	}
	switch word {
	case "/help":
		_, err := io.WriteString(w, chatHelp)
		return err
	case "/reset":
		c.reset()
		_, err := fmt.Fprintln(w, "the conversation begins anew")
		return err
	case "/system":
		return c.setSystem(w, rest)
	case "/save":
		return c.save(w, rest)
	}
	return fmt.Errorf("unknown command %q%s; /help lists them, and // begins a turn with a slash",
		word, didYouMean(word, []string{"/reset", "/system", "/save", "/help", "/exit"}))
}

func (c *conversation) setSystem(w io.Writer, text string) (err error) {
	switch {
	case !c.around.Chat:
		return errors.New("/system goes with the template chat; other templates are written with theirs")
	case text != "":
		was := c.around.System
		c.around.System = text
		if _, err := encode(c.policy, func(t *tokenize.Tokenizer) (string, []int32, error) { return t.Prompt(c.around, "") }); err != nil {
			c.around.System = was
			return err
		}
		c.reset()
		_, err = fmt.Fprintln(w, "the conversation begins anew with this system message")
	case c.around.System == "":
		_, err = fmt.Fprintln(w, "there is no system message; /system TEXT sets one")
	default:
		_, err = fmt.Fprintln(w, c.around.System)
	}
	return err
}

// save writes the conversation to a file that does not exist yet, or that this chat
// has written.
func (c *conversation) save(w io.Writer, name string) error {
	switch _, err := os.Lstat(name); {
	case name == "":
		return errors.New("/save needs the name of a file")
	case len(c.messages) == 0:
		return errors.New("there is nothing to save yet")
	case err == nil && !c.saved[name]:
		return fmt.Errorf("/save %q: there is such a file already: choose another name", name)
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var list []message
	if c.around.System != "" {
		list = append(list, message{"system", c.around.System})
	}
	for _, m := range c.messages {
		list = append(list, message{m.Role, m.Content})
	}
	err := files.WriteFile(name, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(map[string]any{"messages": list})
	})
	if err != nil {
		return err
	}
	c.saved[name] = true
	_, err = fmt.Fprintf(w, "saved %d messages in %q\n", len(list), name)
	return err
}
