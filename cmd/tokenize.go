package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/policy"
	"onering/tokenize"
	"onering/train/rl"
)

func newTokenize() *cobra.Command {
	var o tokenizeOptions
	s := newSettings(func(config *rl.Config) { config.Model.Template = "no" }) // a text is encoded as it is
	c := newCommand("tokenize", &o, s.withResolved(func(c *cobra.Command, args []string, r *resolved) error { return o.run(c, args, r) }))
	s.required = []string{"model.path"}
	s.addRunFlags(c, "model.path", "model.template", "model.system", "model.template_args")
	s.addShortcut(c, "chat", "model.template", "chat", "render conversations with the tokenizer's chat template")
	c.MarkFlagsMutuallyExclusive("decode", "chat", "template")
	return c
}

// A tokenizeOptions has the flags of tokenize.
type tokenizeOptions struct {
	Decode      bool `help:"turn ids into text"`
	SkipSpecial bool `help:"with --decode: leave special tokens out"`
}

// run turns lines of texts or, with --chat, conversations into ids, or with --decode lines of ids into texts.
func (o tokenizeOptions) run(c *cobra.Command, args []string, r *resolved) error {
	chats, _ := c.Flags().GetBool("chat") // an error would mean that there is no such flag
	switch {
	case o.SkipSpecial && !o.Decode:
		return usagef("--skip-special goes with --decode")
	case chats && r.Model.System != "":
		return usagef("--system goes with --template chat")
	}
	var template *tokenize.Template // nil to encode texts as they are
	if r.Stated("model.template") {
		template = &r.prompt
	}
	folder, err := tokenizerFolder(c, r.Model.Path)
	if err != nil {
		return err
	}
	if _, failed := os.Stat(folder); errors.Is(failed, fs.ErrNotExist) && folder != data.Arithmetic {
		return fmt.Errorf("--model: there is no folder %q; name that of a model or tokenizer, or ORG/NAME on a hub", folder)
	}
	t, err := policy.Tokenizer(folder)
	if err != nil {
		return err
	}
	if template != nil && template.Chat {
		if err := t.CheckChat(); err != nil {
			return err
		}
	}
	switch {
	case o.Decode:
		return turnLines(c, args, func(row idsRow) (any, error) { return row.decode(t, o.SkipSpecial) })
	case chats:
		given, err := r.Model.Args.Parse()
		if err != nil {
			return err
		}
		return turnLines(c, args, func(row chatRow) (any, error) { return row.encode(t, given) })
	}
	return turnLines(c, args, func(row textRow) (any, error) { return row.encode(t, template) })
}

// inputName returns the file to read: the only argument, or "-" for stdin.
func inputName(args []string) string {
	if len(args) == 0 {
		return "-"
	}
	return args[0]
}

// A tokenized is a line of output. Text is nil if only the ids are wanted.
type tokenized struct {
	Text *string `json:"text,omitempty"`
	IDs  []int32 `json:"ids"`
}

// withInput opens the input that the arguments name, calls do with it and with what messages call it, and closes it.
func withInput(c *cobra.Command, args []string, do func(in io.Reader, name string) error) error {
	if f := c.Flags().Lookup("config"); f != nil && f.Value.String() == "-" && inputName(args) == "-" {
		return usagef("--config - and the input cannot both be stdin: name a file for one of them")
	}
	in, name, err := cli.OpenInput("input", inputName(args), c.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	return do(in, name)
}

// turnLines prints, for each row of the input, what turn makes of it. A row that cannot be converted becomes a line
// with its error; the first of these errors is returned at the end.
func turnLines[Row any](c *cobra.Command, args []string, turn func(Row) (any, error)) error {
	return withInput(c, args, func(in io.Reader, name string) error {
		out := cli.Answers{Name: name, Out: c.OutOrStdout()}
		err := cli.EachRow(in, name, func(index, number int, row Row) error {
			result, err := turn(row)
			if err != nil {
				return out.Fail(index, number, err)
			}
			return out.Give(index, 0, result)
		})
		return cmp.Or(err, out.Err())
	})
}

// errMissing is the error for a row without a field that it must have.
func errMissing(field string) error { return fmt.Errorf("field %q is missing", field) }

type textRow struct {
	Text *string `json:"text"`
}

// encode returns the ids of the row's text or, unless template is nil, of the prompt that it makes of the text, with
// the text of this prompt. A text that the tokenizer cannot encode is an error.
func (row textRow) encode(t *tokenize.Tokenizer, template *tokenize.Template) (any, error) {
	if row.Text == nil {
		return nil, errMissing("text")
	}
	if template == nil {
		return tokenized{IDs: t.Encode(*row.Text)}, t.Check(*row.Text)
	}
	text, ids, err := t.Prompt(*template, *row.Text)
	if err != nil {
		return nil, err
	}
	return tokenized{&text, ids}, t.Check(text)
}

type idsRow struct {
	IDs *[]int32 `json:"ids"`
}

func (row idsRow) decode(t *tokenize.Tokenizer, skipSpecial bool) (any, error) {
	if row.IDs == nil {
		return nil, errMissing("ids")
	}
	for i, id := range *row.IDs {
		if id < 0 {
			return nil, fmt.Errorf("ids[%d] = %d is negative", i, id)
		}
	}
	return map[string]string{"text": t.Decode(*row.IDs, skipSpecial)}, nil
}

type chatRow struct {
	tokenize.Conversation
	Messages *[]tokenize.Message `json:"messages"`
}

// encode renders a conversation with the chat template, and returns its text and ids. given are arguments of the
// template that hold for rows that do not state them.
func (row chatRow) encode(t *tokenize.Tokenizer, given tokenize.TemplateArgs) (any, error) {
	if row.Messages == nil {
		return nil, errMissing("messages")
	}
	chat := row.Conversation
	chat.Messages, chat.Args = *row.Messages, chat.Args.Over(given)
	text, ids, err := t.EncodeChat(chat)
	if err != nil {
		return nil, err
	}
	if ids == nil {
		ids = []int32{} // of an empty conversation; nil would be written as null
	}
	return tokenized{&text, ids}, t.Check(text)
}

// missingField returns the error for a row without a field that it must have.
func missingField(name string, number int, field string) error {
	return fmt.Errorf("%s:%d: %w", name, number, errMissing(field))
}
