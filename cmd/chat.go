package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
	"onering/train/rundir"
)

// chatLong is the help of chat.
const chatLong = `Talk to a model, which answers token by token. The model is a folder, a
checkpoint, a run folder, whose newest checkpoint answers, or a name on a hub;
--adapter puts a LoRA adapter beside it.
Each line is a turn, several lines if they are pasted together. Lines that
begin with a slash are for the program:

` + chatHelp + `
Ctrl-C stops an answer; twice leaves, as does Ctrl-D.

The conversation is that of the model's chat template. Earlier turns are never
written anew: a turn is appended to the tokens that were read and sampled. With
another --template each line is a problem of its own, as in training. A run
folder and its checkpoints have the run's template.

If stdin is no terminal, each of its lines is a turn, and answers are printed as
they are. --json prints an object for each turn:

  {"turn", "prompt", "text", "ids", "finish", "prompt_tokens", "reused_tokens"}

where "finish" is "stop", "length" or "interrupted". A turn that fails has
{"turn", "prompt", "error"}; the others go on, and the exit code is 1.

Answers follow from --seed and the number of the turn: the first one is what
generate --chat samples for the same line.`

func newChat() *cobra.Command {
	var e engineFlags
	var around tokenize.TemplateSettings
	o := chatOptions{Options: sampler.Options{Sampling: sampler.Plain(512)}}
	c := &cobra.Command{
		Use:   "chat --model DIR",
		Short: "Talk to a model in the terminal",
		Long:  chatLong,
		Example: `  onering chat --model DIR
  onering chat --model DIR --system 'Answer in one sentence.' --temperature 0.6
  onering chat --model RUN --max-tokens 2000
  printf 'What is 1+1?\nAnd plus 3?\n' | onering chat --model DIR --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if !c.Flags().Changed("template") {
				if err := templateOfRun(cmp.Or(e.adapter, e.model), &around); err != nil {
					return err
				}
			}
			if o.around, err = parseTemplate(around); err != nil {
				return err
			}
			if err := validateSampling(&o.Sampling, 1, 1); err != nil {
				return err
			}
			engine, err := e.open(c)
			if err != nil {
				return err
			}
			defer engine.Close()
			chat, err := newConversation(engine, o)
			if err != nil {
				return err
			}
			defer chat.close()
			return chat.run(c)
		},
	}
	e.register(c)
	e.registerAdapter(c)
	registerDType(c, &e.dtype)
	flags := c.Flags()
	addSettings(flags, &o.Sampling)
	addTemplate(c, &around, "chat", true)
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the sampling")
	flags.BoolVar(&o.json, "json", false, "print one JSON object for each turn")
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

// templateOfRun sets the template to that of a run, if name is its folder or one of
// its checkpoints. What the flags say besides the template's name stays.
func templateOfRun(name string, s *tokenize.TemplateSettings) error {
	path := filepath.Join(name, "run.toml")
	if _, err := os.Stat(path); err != nil {
		if path = rundir.RunOf(name); path == "" {
			return nil
		}
	}
	text, err := os.ReadFile(path)
	var settings layer
	if err == nil {
		settings, err = parseFile(path, text)
	}
	if err != nil {
		return err
	}
	r, err := resolve(settings)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	of := r.Model.TemplateSettings
	s.Template = of.Template
	if s.System == "" {
		s.System = of.System
	}
	if len(s.Args) == 0 {
		s.Args = of.Args
	}
	if len(s.Stop) == 0 {
		s.Stop = of.Stop
	}
	return nil
}

// run reads turns until there are no more, and answers them.
func (c *conversation) run(command *cobra.Command) error {
	turns, err := newTurns(command, c)
	if err != nil {
		return err
	}
	defer turns.close()
	c.out = command.OutOrStdout()
	if screen(c.out) == nil {
		c.out = raw(c.out)
	}
	for {
		text, err := turns.next(command.Context())
		switch {
		case err == io.EOF:
			return c.failed.err()
		case err != nil:
			return err
		}
		switch chatCommand(text) {
		case "/exit":
			return c.failed.err()
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

// turn answers a turn. Its own errors are told and counted; the error returned is
// one that ends the chat.
func (c *conversation) turn(turns *turns, text string) error {
	ctx, done := turns.answering()
	answer, err := c.answer(ctx, text)
	left := done()
	line := any(answer)
	if err != nil {
		var stop outputError
		if errors.As(err, &stop) {
			return stop.error
		}
		if errors.Is(err, runtime.ErrLost) {
			return err
		}
		failure := c.failed.add(turns.number, err)
		line = failedTurn{answer.Turn, answer.Prompt, failure.Error}
		if !c.json {
			slog.Error(err.Error())
		}
	}
	if c.json {
		err = lineWriter{c.out}.write(line)
	} else if err == nil {
		_, err = io.WriteString(c.out, "\n")
		c.remark(answer)
	} else {
		err = nil
	}
	return errors.Join(left, err)
}

// remark tells of an answer that ended before its end.
func (c *conversation) remark(a answered) {
	switch {
	case a.Finish == interruptedFinish:
		slog.Info("the answer was stopped; what there is of it stays in the conversation")
	case a.Finish != sampler.Length:
	case a.PromptTokens+len(a.IDs) >= c.decoder.MaxTokens():
		slog.Warn(fmt.Sprintf("the answer was cut: the conversation fills the model's context of %d tokens; /save FILE keeps it, /reset begins a new one", c.decoder.MaxTokens()))
	default:
		slog.Info(fmt.Sprintf("the answer was cut at %d tokens (--max-tokens)", len(a.IDs)))
	}
}

// A failedTurn is the line of --json for a turn without an answer.
type failedTurn struct {
	Turn   int    `json:"turn"`
	Prompt string `json:"prompt"`
	Error  string `json:"error"`
}

// An outputError is that of writing an answer.
type outputError struct{ error }

// interruptedFinish is the end of an answer that Ctrl-C stopped.
const interruptedFinish sampler.Finish = "interrupted"

// canceled reports whether an error is that of an answer that was stopped.
func canceled(err error) bool { return errors.Is(err, context.Canceled) }
