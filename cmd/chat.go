package cmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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
	o := chatOptions{drawn: drawn{Generation: true}}
	s := talkChoice("chat")
	c := newCommand("chat", &o, s.run(func(c *cobra.Command, _ []string, r *resolved) error {
		r.warnOfEpisodes()
		p, err := r.open(c, nil)
		if err != nil {
			return err
		}
		defer p.Close()
		sampling, err := r.sampling(p, o.drawn)
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
	s.registerModel(c, slices.Concat(templateKeys, samplingFlags, []string{adapterFlag})...)
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
	drawn
	JSON bool `help:"print one JSON object for each turn"`
}

// A chatting is a conversation in a terminal, or with the lines of a file.
type chatting struct {
	sampler.Options
	*policy.Conversation
	json   bool
	out    io.Writer
	saved  map[string]bool
	failed answers
}

func newChatting(p *policy.Policy, template tokenize.Template, o sampler.Options, json bool) (*chatting, error) {
	talk, err := p.Conversation(template)
	if err != nil && template.Chat && p.Tokenizer != nil && p.Tokenizer.CheckChat() != nil {
		return nil, usagef("%w; --template no talks without one, each line for itself", err)
	}
	return &chatting{Options: o, Conversation: talk, json: json, saved: map[string]bool{}, failed: answers{Name: "stdin"}}, err
}

// run reads turns until there are no more, and answers them.
func (c *chatting) run(command *cobra.Command) error {
	turns, err := newTurns(command, c.Conversation)
	if err != nil {
		return err
	}
	defer turns.restore() // gives the terminal back
	defer signal.Stop(turns.signals)
	c.out = command.OutOrStdout()
	if cli.Screen(c.out) == nil {
		c.out = cli.Raw(c.out)
	}
	for {
		text, err := turns.next(command.Context())
		switch {
		case err == io.EOF:
			return c.failed.Err()
		case err != nil:
			return err
		}
		switch chatCommand(text) {
		case "/exit":
			return c.failed.Err()
		case "":
			if strings.HasPrefix(text, "//") {
				text = text[1:]
			}
			err = c.turn(turns, text)
		default:
			if wrong := c.command(command.ErrOrStderr(), text); wrong != nil {
				slog.Error(wrong.Error())
			}
		}
		if err != nil {
			return err
		}
	}
}

// turn answers a turn. It prints and counts errors of the turn, and returns only an error
// that ends the chat.
func (c *chatting) turn(turns *turns, text string) error {
	ctx, done := turns.answering()
	var unwritten error
	answer, err := c.Answer(ctx, text, c.Options, func(piece string) error {
		if !c.json {
			_, unwritten = io.WriteString(c.out, piece)
		}
		return unwritten
	})
	left := done()
	if unwritten != nil || errors.Is(err, runtime.ErrLost) {
		return err
	}
	line := any(answer)
	if err != nil {
		if _, full := errors.AsType[policy.FullError](err); full {
			err = fmt.Errorf("%w: %s", err, fullRemedy)
		}
		c.failed.Count(turns.number, err)
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

// chatCommand returns the first word of a line that is for the program; "" means that
// the line is a turn.
func chatCommand(line string) string {
	if !strings.HasPrefix(line, "/") || strings.HasPrefix(line, "//") {
		return ""
	}
	return strings.Fields(line)[0]
}

// command does what a line that begins with a slash asks for. It prints to w.
func (c *chatting) command(w io.Writer, line string) error {
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

// setSystem carries out /system: it sets the system message and begins anew, or shows it if text is empty.
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

// save writes the conversation to a file that does not exist yet, or that this chat
// wrote.
func (c *chatting) save(w io.Writer, name string) error {
	switch _, err := os.Lstat(name); {
	case name == "":
		return errors.New("/save needs the name of a file")
	case len(c.Messages) == 0:
		return errors.New("there is nothing to save yet")
	case err == nil && !c.saved[name]:
		return fmt.Errorf("/save %q: there is such a file already: choose another name", name)
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var list []message
	if c.Template.System != "" {
		list = append(list, message{"system", c.Template.System})
	}
	for _, m := range c.Messages {
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

// turns are the turns that somebody types, or the lines of a file.
type turns struct {
	number  int // of the newest line; lines count from 1
	signals chan os.Signal
	presses int  // of Ctrl-C since the newest line
	typed   bool // the turns are typed on a terminal
	lines   chan typedLine
	read    func() (string, error)
	restore func() // gives the terminal back as it was
	pending bool   // a line is being read
}

// A typedLine is a line, or the error of reading it.
type typedLine struct {
	text string
	err  error
}

// errPressed is the error of a line that Ctrl-C ended.
var errPressed = errors.New("interrupted")

// newTurns reads the turns from stdin, with line editing where both ends are a
// terminal.
func newTurns(c *cobra.Command, talk *policy.Conversation) (*turns, error) {
	in, out := c.InOrStdin(), cli.Screen(c.OutOrStdout())
	t := &turns{signals: make(chan os.Signal, 8), typed: cli.IsTerminal(in), lines: make(chan typedLine, 1), restore: func() {}}
	if t.typed {
		slog.Info("each line is a turn; /help lists what else there is, Ctrl-D leaves", "context", talk.MaxTokens())
		if !talk.Template.Chat {
			slog.Info("each line is a problem of its own: only the template chat has conversations", "template", talk.Template.Name)
		}
	}
	if t.typed && out != nil && os.Getenv("TERM") != "dumb" {
		t.edit(in.(*os.File), out)
	} else {
		lines := bufio.NewReader(in)
		t.read = func() (string, error) {
			if t.typed {
				fmt.Fprint(c.ErrOrStderr(), "> ")
			}
			line, err := readLine(lines)
			if err != nil && err != io.EOF {
				err = fmt.Errorf("stdin:%d: %w", t.number+1, err)
			}
			if err == nil && t.number == 0 {
				line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
			}
			return string(line), err
		}
	}
	signal.Notify(t.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return t, nil
}

// edit reads lines with line editing. The terminal is raw only while it does.
func (t *turns) edit(in, out *os.File) {
	keys := &keyReader{in: in}
	line := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys, out}, "> ")
	var state atomic.Pointer[term.State] // a signal may restore it while a line is read
	t.restore = func() {
		if s := state.Swap(nil); s != nil {
			line.SetBracketedPasteMode(false)
			term.Restore(int(in.Fd()), s)
		}
	}
	t.read = func() (text string, err error) {
		if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 0 {
			line.SetSize(w, h)
		}
		was, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		state.Store(was)
		line.SetBracketedPasteMode(true)
		defer t.restore()
		for {
			part, err := line.ReadLine()
			if keys.pressed {
				keys.pressed = false
				return "", errPressed
			}
			text += part
			if !errors.Is(err, term.ErrPasteIndicator) {
				return text, err
			}
			text += "\n" // pasted lines are one turn
		}
	}
}

// A keyReader reads what is typed. Ctrl-C, which ends a line as Ctrl-D does, becomes
// the keys that empty the line and end it, and is noted.
type keyReader struct {
	in      io.Reader
	rest    []byte // bytes that were read and not handed out yet
	pressed bool
}

// Read implements io.Reader.
func (k *keyReader) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		n, err := k.in.Read(p[:max(1, len(p)-2)])
		k.rest = append(k.rest, p[:n]...)
		if n == 0 {
			return 0, err
		}
	}
	const ctrlC, endOfLine, eraseLine = 3, 5, 21
	if k.rest[0] == ctrlC && len(p) >= 3 {
		k.rest, k.pressed = nil, true // Ctrl-C also takes back what was typed before it
		return copy(p, []byte{endOfLine, eraseLine, '\r'}), nil
	}
	n := bytes.IndexByte(k.rest, ctrlC)
	if n < 0 || len(p) < 3 {
		n = len(k.rest)
	}
	n = copy(p, k.rest[:n])
	k.rest = k.rest[n:]
	return n, nil
}

// next returns the next turn; io.EOF means that there are no more.
func (t *turns) next(ctx context.Context) (string, error) {
	for {
		if !t.pending {
			t.pending = true
			go func() {
				text, err := t.read()
				t.lines <- typedLine{text, err}
			}()
		}
		select {
		case line := <-t.lines:
			t.pending = false
			switch {
			case line.err == errPressed:
				if t.press() {
					return "", io.EOF
				}
				continue
			case line.err != nil:
				if t.typed && line.err == io.EOF {
					fmt.Fprintln(os.Stderr)
				}
				return "", line.err
			}
			t.number, t.presses = t.number+1, 0
			text := strings.TrimSpace(line.text)
			if text == "" {
				continue
			}
			return text, nil
		case s := <-t.signals:
			if s != os.Interrupt || !t.typed {
				return "", leftBy(s)
			}
			if t.press() {
				return "", io.EOF
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// press counts a Ctrl-C while nothing is answered, and reports whether it leaves.
func (t *turns) press() (leave bool) {
	if t.presses++; t.presses < 2 {
		slog.Info("Ctrl-C again leaves, as does Ctrl-D")
	}
	return t.presses >= 2
}

// leftBy is the error of a chat that a signal ended.
func leftBy(s os.Signal) error { return cli.Interrupted{Signal: s, Next: "the conversation is gone"} }

// answering returns a context that Ctrl-C cancels while an answer is sampled. done
// releases it, and returns an error if a signal ends the chat.
func (t *turns) answering() (ctx context.Context, done func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, finished := make(chan struct{}), make(chan error)
	go func() {
		var leave error
		for {
			select {
			case s := <-t.signals:
				if t.presses++; s != os.Interrupt || t.presses >= 2 {
					leave = leftBy(s)
				}
				cancel()
			case <-ended:
				finished <- leave
				return
			}
		}
	}()
	return ctx, func() error {
		close(ended)
		defer cancel()
		return <-finished
	}
}
