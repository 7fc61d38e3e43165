package cmd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/files"
	"onering/internal/settings"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
)

// newChat makes the command chat, a conversation with a model in the terminal.
func newChat() *cobra.Command {
	o := chatOptions{samplingOptions: samplingOptions{Generation: true}} // the default of --generation-config
	s := talkSettings("chat")
	c := newCommand("chat", &o, s.withResolved(func(c *cobra.Command, _ []string, r *resolved) error {
		r.warnOfEpisodes()
		p, err := r.open(c, noNamedAdapters)
		if err != nil {
			return err
		}
		defer p.Close()
		sampling, err := r.sampling(p, o.samplingOptions)
		if err != nil {
			return err
		}
		chat, err := newChatting(p, r.prompt, sampler.Options{Sampling: sampling, Seed: o.Seed}, o.JSON)
		if err != nil {
			return err
		}
		defer chat.Close()
		return chat.run(c)
	}))
	s.addModelFlags(c, slices.Concat(templateKeys, samplingPaths, []string{adapterFlag})...)
	return c
}

// chatHelp lists what a chat takes besides turns.
const chatHelp = `  /reset         forget the conversation
  /system TEXT   begin anew with this system message; without TEXT show it
  /save FILE     write the conversation as a row of {"messages"}
  /help          list these
  /exit          leave
  //TEXT         a turn that begins with a slash
`

type chatOptions struct {
	samplingOptions
	JSON bool `help:"print one JSON object for each turn"`
}

// A chatting is a conversation in a terminal, or with the lines of a file.
type chatting struct {
	sampler.Options
	*policy.Conversation
	json        bool // an object for each turn, in place of text for people
	out         io.Writer
	saved       map[string]bool // files that /save has written
	failedTurns cli.Answers     // counts the turns with an error, which the exit code tells at the end
}

// newChatting begins a conversation in a template, without turns.
func newChatting(p *policy.Policy, template tokenize.Template, o sampler.Options, json bool) (*chatting, error) {
	talk, err := p.Conversation(template)
	if err != nil && template.Chat && p.Tokenizer != nil && p.Tokenizer.CheckChat() != nil {
		return nil, usagef("%w; --template no talks without one, each line for itself", err)
	}
	return &chatting{Options: o, Conversation: talk, json: json, saved: map[string]bool{}, failedTurns: cli.Answers{Name: "stdin"}}, err
}

// run reads turns until there are no more, and answers them. At the end it returns an error if some turns failed.
func (c *chatting) run(caller *cobra.Command) error {
	c.out = caller.OutOrStdout()
	turns := cli.ReadTurns(caller.InOrStdin(), c.out, caller.ErrOrStderr())
	defer turns.Close()
	if turns.Typed {
		slog.Info("each line is a turn; /help lists what else there is, Ctrl-D leaves", "context", c.MaxTokens())
		if !c.Template.Chat {
			slog.Info("each line is a problem of its own: only the template chat has conversations", "template", c.Template.Name)
		}
	}
	c.out = cli.Raw(c.out) // a file or a pipe gets the answers as they are
	for {
		text, err := turns.Next(caller.Context())
		switch {
		case err == io.EOF:
			return c.failedTurns.Err()
		case err != nil:
			return err
		}
		switch slashWord(text) {
		case "/exit":
			return c.failedTurns.Err()
		case "": // a turn
			if strings.HasPrefix(text, "//") {
				text = text[1:]
			}
			err = c.turn(turns, text)
		default:
			if wrong := c.slashCommand(caller.ErrOrStderr(), text); wrong != nil { // the chat goes on
				slog.Error(wrong.Error())
			}
		}
		if err != nil {
			return err
		}
	}
}

// turn answers a turn, whose text appears while it is sampled, or with c.json as an object at the end. It prints and
// counts errors of the turn, and returns only an error that ends the chat.
func (c *chatting) turn(turns *cli.Turns, text string) error {
	ctx, done := turns.Answering()
	var unwritten error // why output could not be written
	answer, err := c.Answer(ctx, text, c.Options, func(piece string) error {
		if !c.json {
			_, unwritten = io.WriteString(c.out, piece)
		}
		return unwritten
	})
	left := done() // an error if the user wants to leave the chat
	if unwritten != nil || errors.Is(err, runtime.ErrLost) {
		return err
	}
	line := any(answer)
	if err != nil {
		if _, full := errors.AsType[policy.FullError](err); full {
			err = fmt.Errorf("%w: %s", err, fullRemedy)
		}
		c.failedTurns.Count(turns.Number, err)
		line = struct {
			Turn   int    `json:"turn"`
			Prompt string `json:"prompt"`
			Error  string `json:"error"`
		}{answer.Turn, answer.Prompt, err.Error()}
	}
	switch {
	case c.json:
		err = cli.WriteLine(c.out, line)
	case err != nil:
		slog.Error(err.Error())
		err = nil
	default:
		_, err = io.WriteString(c.out, "\n")
		c.remark(answer)
	}
	return errors.Join(left, err)
}

// fullRemedy says what to do about a full context.
const fullRemedy = "/save FILE keeps it, /reset begins a new one"

// remark tells the user of an answer that was cut off.
func (c *chatting) remark(a policy.Answer) {
	switch {
	case a.Interrupted():
		slog.Info("the answer was stopped; what there is of it stays in the conversation")
	case a.Finish != sampler.Length:
	case a.PromptTokens+len(a.IDs) >= c.MaxTokens():
		slog.Warn(fmt.Sprintf("the answer was cut: the conversation fills the model's context of %d tokens; %s", c.MaxTokens(), fullRemedy))
	default:
		slog.Info(fmt.Sprintf("the answer was cut at %d tokens (--max-tokens)", len(a.IDs)))
	}
}

// slashWord returns the first word of a line that is for the program; "" means that the line is a turn.
func slashWord(line string) string {
	if !strings.HasPrefix(line, "/") || strings.HasPrefix(line, "//") {
		return ""
	}
	return strings.Fields(line)[0]
}

// slashCommand does what a line that begins with a slash asks for. It prints to w.
func (c *chatting) slashCommand(w io.Writer, line string) error {
	word := slashWord(line)
	rest := strings.TrimSpace(strings.TrimPrefix(line, word))
	if rest != "" && (word == "/reset" || word == "/help") {
		return fmt.Errorf("%s takes nothing after it, not %q", word, rest)
	}
	switch word {
	case "/help":
		_, err := io.WriteString(w, chatHelp)
		return err
	case "/reset":
		c.Reset()
		_, err := fmt.Fprintln(w, "the conversation begins anew")
		return err
	case "/system":
		return c.setSystem(w, rest)
	case "/save":
		return c.save(w, rest)
	}
	return fmt.Errorf("unknown command %q%s; /help lists them, and // begins a turn with a slash",
		word, settings.DidYouMean(word, []string{"/reset", "/system", "/save", "/help", "/exit"}))
}

// setSystem carries out /system: it sets the system message and begins anew, or prints it to w if text is empty.
func (c *chatting) setSystem(w io.Writer, text string) (err error) {
	switch {
	case !c.Template.Chat:
		return errors.New("/system goes with the template chat; other templates are written with theirs")
	case text != "":
		if err := c.SetSystem(text); err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, "the conversation begins anew with this system message")
	case c.Template.System == "":
		_, err = fmt.Fprintln(w, "there is no system message; /system TEXT sets one")
	default:
		_, err = fmt.Fprintln(w, c.Template.System)
	}
	return err
}

// save writes the conversation as a row of JSON to a file that is new or that this chat wrote, and says so on w.
func (c *chatting) save(w io.Writer, name string) error {
	switch _, err := os.Lstat(name); {
	case name == "":
		return errors.New("/save needs the name of a file")
	case len(c.Messages) == 0:
		return errors.New("there is nothing to save yet")
	case err == nil && !c.saved[name]:
		return fmt.Errorf("/save %q: there is such a file already: choose another name", name)
	}
	list := c.Messages
	if c.Template.System != "" {
		list = append([]tokenize.Message{{Role: "system", Content: c.Template.System}}, list...)
	}
	err := files.WriteFile(name, func(w io.Writer) error { return cli.WriteLine(w, map[string]any{"messages": list}) })
	if err != nil {
		return err
	}
	c.saved[name] = true
	_, err = fmt.Fprintf(w, "saved %d messages in %q\n", len(list), name)
	return err
}
