package cmd

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/policy"
	"onering/reward"
	"onering/tokenize"
	"onering/verifier"
)

// columnsHelp says by which names columns are found.
func columnsHelp() string {
	var b strings.Builder
	b.WriteString("\nWithout --prompt, --answer and --id, columns are found by their names:\n\n")
	for _, c := range []struct {
		flag  string
		names []string
	}{{"prompt", data.PromptNames}, {"answer", data.AnswerNames}, {"id", data.IDNames}} {
		for i := 0; i < len(c.names); i += 4 {
			fmt.Fprintf(&b, "  %-6s  %s\n", c.flag, strings.Join(c.names[i:min(i+4, len(c.names))], ", "))
			c.flag = ""
		}
	}
	b.WriteString("\nA prompt is a text or a list of messages. A column inside a structure is named\nwith a dot, as reward_model.ground_truth.")
	return b.String()
}

func newData() *cobra.Command {
	c := newCommand("data", nil, func(c *cobra.Command, _ []string) error {
		return usagef("say what to do: data show FILE or data check FILE")
	})
	c.Args = knownCommand
	c.AddCommand(newDataShow(), newDataCheck(), newDataArithmetic())
	return c
}

// inputOf is what is read in place of the file of that name: stdin for -, nil for the file itself.
func inputOf(c *cobra.Command, name string) io.Reader {
	if name == "-" {
		return c.InOrStdin()
	}
	return nil
}

// orStdin returns a file's path, and stdin, for messages, in place of -.
func orStdin(path string) string {
	if path == "-" {
		return "stdin"
	}
	return path
}

// dataFlags are the settings of the commands that read a file of problems.
var dataFlags = []string{"data.prompt", "data.answer", "data.id", "data.split", "data.expansion", "data.filter", "reward.name=reward"}

// newDataShow makes the command data show, which prints rows of a file.
func newDataShow() *cobra.Command {
	var o struct {
		Rows   int  `short:"n" range:"[0,)" note:"0 is all" help:"print at most this many rows"`
		Mapped bool `help:"print names, problems and answers, as training reads them"`
	}
	s := newSettings(withTrainDefaults, "reward", "data", "model.template")
	c := newCommand("data-show", &o, s.withResolved(func(c *cobra.Command, args []string, r *resolved) error {
		from := r.Data.Options()
		from.Input, from.Limit = inputOf(c, args[0]), o.Rows
		path, err := localData(c, args[0])
		if err != nil {
			return err
		}
		mapped := o.Mapped || from.Prompt != "" || from.Answer != "" || from.ID != ""
		if mapped {
			from = reward.Reading(r.Reward.Rule, from) // also what the reward reads, such as choices
		}
		return showRows(c.OutOrStdout(), orStdin(path), from, mapped)
	}))
	s.addRunFlags(c, dataFlags...)
	return c
}

// showRows prints rows as JSON: with the columns of the file or, if mapped, as training reads them, with a report at
// the end of the rows that training leaves out.
func showRows(w io.Writer, path string, o data.Options, mapped bool) error {
	o.OnBad = data.LeaveOut
	rows, err := data.Open(path, o)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		var line any
		if mapped {
			var row data.Problem
			row, err = rows.Next()
			line = struct {
				ID      string     `json:"id"`
				Prompt  string     `json:"prompt"`
				Chat    *data.Chat `json:"chat,omitempty"`
				Choices []string   `json:"choices,omitempty"`
				Answers []string   `json:"answers"`
			}{row.ID, row.Text, row.Chat, row.Choices, row.Answers}
		} else {
			line, err = rows.Raw()
		}
		if err == io.EOF {
			if mapped {
				rows.Report().Log(slog.Default(), path)
			}
			return nil
		}
		if err == nil {
			err = cli.WriteLine(w, line)
		}
		if err != nil {
			return err
		}
	}
}

// newDataCheck makes the command data check, which reports on a whole file: wrong rows, and lengths of prompts.
func newDataCheck() *cobra.Command {
	var flags struct {
		JSON bool `help:"print one JSON object"`
	}
	s := newSettings(withTrainDefaults, "reward", "data")
	s.opensModel = true
	c := newCommand("data-check", &flags, s.withResolved(func(c *cobra.Command, args []string, r *resolved) (err error) {
		o := data.CheckOptions{Parse: verifier.Readable, Options: r.Data.Options(), Extract: reward.Extract(r.Reward.Rule), Template: r.prompt}
		o.Input, o.Keep = inputOf(c, args[0]), o.Template.Columns // further columns that the template shows
		o.Options = reward.Reading(r.Reward.Rule, o.Options)      // further, what the reward reads, such as choices
		if r.Model.Path != "" {
			if o.Tokens, err = promptLength(c, r.Model.Path, o.Template); err != nil {
				return err
			}
		}
		return reportData(c, args[0], o, flags.JSON)
	}))
	s.addRunFlags(c, append(dataFlags, "model.path", "model.template", "model.system", "model.template_args")...)
	return c
}

// reportData prints the report of a file.
func reportData(c *cobra.Command, name string, o data.CheckOptions, asJSON bool) error {
	path, err := localData(c, name)
	if err != nil {
		return err
	}
	report, err := data.Check(orStdin(path), o)
	if err != nil {
		return err
	}
	err = show(c, asJSON, report, func(w io.Writer) error { _, err := io.WriteString(w, report.String()); return err })
	return cmp.Or(err, report.Refused(orStdin(path)))
}

// promptLength returns a function that counts the tokens of a problem in the template around it, with the tokenizer
// of the model. The function fails if the tokenizer cannot encode the text.
func promptLength(c *cobra.Command, model string, around tokenize.Template) (func(data.Problem) (int, error), error) {
	folder, err := tokenizerFolder(c, model)
	if err != nil {
		return nil, err
	}
	p, err := prompterOf(folder, around)
	if err != nil {
		return nil, err
	}
	if warning := p.Warning(); warning != "" {
		slog.Warn(warning)
	}
	return func(q data.Problem) (int, error) {
		text, ids, err := p.Prompt(q)
		if err == nil {
			err = p.Tokenizer.Check(text)
		}
		return len(ids), err
	}, nil
}

// prompterOf makes prompts with the tokenizer of a model's folder.
func prompterOf(folder string, around tokenize.Template) (*data.Prompter, error) {
	t, err := policy.Tokenizer(folder)
	if err != nil {
		return nil, err
	}
	return data.NewPrompter(t, around)
}

func newDataArithmetic() *cobra.Command {
	o := arithmeticOptions{Rows: 1000, Digits: 3}
	return newCommand("data-arithmetic", &o, func(c *cobra.Command, _ []string) error { return writeArithmetic(c.OutOrStdout(), o) })
}

type arithmeticOptions struct {
	Rows    int     `short:"n" range:"[1,)" help:"demonstrations to print"`
	Digits  int     `range:"[1,17]" help:"digits of both operands"`
	Guess   float64 `range:"[0,1]" help:"probability of a right answer without the working"`
	Slip    float64 `range:"[0,1]" help:"probability of an error in each step of the working"`
	Call    float64 `range:"[0,1]" help:"probability of a response that has a calculator compute the problem; the others are guesses and workings"`
	Seed    uint64  `help:"seed of problems and responses"`
	HeldOut bool    `help:"problems of the held-out part"`
}

// writeArithmetic prints demonstrations of the embedded task, as JSON. The same seed gives the same.
func writeArithmetic(w io.Writer, o arithmeticOptions) error {
	type row struct {
		Prompt   string `json:"prompt"`
		Response string `json:"response"`
		Problem  string `json:"problem"` // the problem as the reader of problems expects it
		Answer   string `json:"answer"`
	}
	r := rand.New(rand.NewPCG(o.Seed, 0))
	for range o.Rows {
		p := data.DrawSum(r, o.Digits, o.HeldOut)
		var response string
		if o.Call > 0 && r.Float64() < o.Call { // without --call nothing is drawn for it, so other responses stay as they are
			response = p.Called() // it has a calculator compute the problem
		} else {
			response = p.Demonstrate(r, o.Guess, o.Slip)
		}
		if err := cli.WriteLine(w, row{p.Prompt(), response, p.Prompt(), p.Answer()}); err != nil {
			return err
		}
	}
	return nil
}
