package cmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"onering/tokenize"
)

func newTokenize() *cobra.Command {
	var o tokenizeOptions
	c := &cobra.Command{
		Use:   "tokenize --model DIR [FILE]",
		Short: "Turn text into token ids and back",
		Long: `Turn text into token ids and back with the tokenizer of a model folder. Input
is one JSON object per line, from FILE or stdin; each gives one line of output.

  {"text"}                               -> {"ids"}
  --decode    {"ids"}                    -> {"text"}
  --chat      {"messages", "add_generation_prompt"} -> {"text", "ids"}
  --template  {"text"}, a problem        -> {"text", "ids"}, the prompt

Added tokens such as <|im_end|> are found in text.`,
		Example: `  echo '{"text":"1+1=2"}' | onering tokenize --model DIR
  echo '{"ids":[16,10,16]}' | onering tokenize --model DIR --decode
  echo '{"text":"What is 1+1?"}' | onering tokenize --model DIR --template qwen_math
  onering tokenize --model DIR --chat chats.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	flags := c.Flags()
	flags.StringVar(&o.model, "model", "", "model folder with a tokenizer (required)")
	flags.BoolVar(&o.decode, "decode", false, "turn ids into text")
	flags.BoolVar(&o.skipSpecial, "skip-special", false, "with --decode: leave special tokens out")
	flags.BoolVar(&o.chat, "chat", false, "render conversations with the tokenizer's chat template")
	addTemplate(c, &o.prompt, "", false)
	must(c.MarkFlagRequired("model"))
	must(c.MarkFlagDirname("model"))
	exclusive(c, "decode", "chat", "template")
	return c
}

// A tokenizeOptions has the flags of tokenize.
type tokenizeOptions struct {
	model                     string
	prompt                    tokenize.TemplateSettings
	decode, chat, skipSpecial bool
}

// run tokenizes, or the reverse.
func (o tokenizeOptions) run(c *cobra.Command, args []string) error {
	if o.skipSpecial && !o.decode {
		return usagef("--skip-special goes with --decode")
	}
	var around *tokenize.Template
	if c.Flags().Changed("template") {
		found, err := parseTemplate(o.prompt)
		if err != nil {
			return err
		}
		around = &found
	} else if o.prompt.System != "" {
		return usagef("--system goes with --template chat")
	}
	folder, err := localTokenizer(c, o.model)
	if err != nil {
		return err
	}
	t, err := tokenize.Load(folder)
	if err != nil {
		return err
	}
	in, name, err := openInput("input", inputName(args), c.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	out := lineWriter{c.OutOrStdout()}
	switch {
	case o.decode:
		return decodeLines(in, name, out, t, o.skipSpecial)
	case o.chat:
		return chatLines(in, name, out, t)
	}
	return encodeLines(in, name, out, t, around)
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

func encodeLines(in io.Reader, name string, out lineWriter, t *tokenize.Tokenizer, around *tokenize.Template) error {
	type row struct {
		Text *string `json:"text"`
	}
	for number, line := range readLines[row](in, name) {
		if line.Err != nil {
			return line.Err
		}
		if line.Row.Text == nil {
			return missingField(name, number, "text")
		}
		text := *line.Row.Text
		var result tokenized
		var err error
		if around != nil {
			text, result.IDs, err = t.Prompt(*around, text)
			result.Text = &text
		} else {
			result.IDs = t.Encode(text)
		}
		if err == nil {
			err = t.Check(text)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if err := out.write(result); err != nil {
			return err
		}
	}
	return nil
}

func decodeLines(in io.Reader, name string, out lineWriter, t *tokenize.Tokenizer, skipSpecial bool) error {
	type row struct {
		IDs *[]int32 `json:"ids"`
	}
	type result struct {
		Text string `json:"text"`
	}
	for number, line := range readLines[row](in, name) {
		if line.Err != nil {
			return line.Err
		}
		if line.Row.IDs == nil {
			return missingField(name, number, "ids")
		}
		for i, id := range *line.Row.IDs {
			if id < 0 {
				return fmt.Errorf("%s:%d: ids[%d] = %d is negative", name, number, i, id)
			}
		}
		if err := out.write(result{t.Decode(*line.Row.IDs, skipSpecial)}); err != nil {
			return err
		}
	}
	return nil
}

func chatLines(in io.Reader, name string, out lineWriter, t *tokenize.Tokenizer) error {
	type row struct {
		Messages            *[]tokenize.Message `json:"messages"`
		AddGenerationPrompt bool                `json:"add_generation_prompt"`
	}
	for number, line := range readLines[row](in, name) {
		if line.Err != nil {
			return line.Err
		}
		if line.Row.Messages == nil {
			return missingField(name, number, "messages")
		}
		text, ids, err := t.EncodeChat(*line.Row.Messages, line.Row.AddGenerationPrompt)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if ids == nil {
			ids = []int32{} // of an empty conversation; nil would be written as null
		}
		if err := out.write(tokenized{&text, ids}); err != nil {
			return err
		}
	}
	return nil
}

// missingField returns the error for a row without a field that it must have.
func missingField(name string, number int, field string) error {
	return fmt.Errorf("%s:%d: field %q is missing", name, number, field)
}
