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

// fileOptions returns the options for reading the file of that name; - is stdin.
func fileOptions(c *cobra.Command, columns data.Columns, filter, name string) (o data.Options, err error) {
	o.Columns, o.Filter = columns, filter
	if name == "-" {
		o.Input = c.InOrStdin()
	}
	if filter != "" {
		_, err = data.ParseFilter(filter)
	}
	return o, asUsage(err)
}

// openedName returns the name of a file for messages.
func openedName(path string) string {
	if path == "-" {
		return "stdin"
	}
	return path
}

func newDataShow() *cobra.Command {
	var limit int
	var filter string
	var columns data.Columns
	var rewards configFlags
	var mapped bool
	c := newCommand("data-show", &columns, func(c *cobra.Command, args []string) error {
		if limit < 0 {
			return usagef("-n %d: must be at least 0; 0 prints all rows", limit)
		}
		o, err := fileOptions(c, columns, filter, args[0])
		if err != nil {
			return err
		}
		o.Limit = limit
		path, err := localData(c, args[0])
		if err != nil {
			return err
		}
		if mapped || o.Prompt != "" || o.Answer != "" || o.ID != "" {
			config, err := rewards.resolveReward(c)
			if err != nil {
				return err
			}
			return showMapped(c.OutOrStdout(), openedName(path), reward.Reading(config.Reward.Rule, o))
		}
		return showData(c.OutOrStdout(), openedName(path), o)
	})
	c.Flags().IntVarP(&limit, "rows", "n", 0, "print at most this many rows; 0 is all")
	c.Flags().StringVar(&filter, "filter", "", `print only the rows that match, such as 'level in 3..5'`)
	c.Flags().BoolVar(&mapped, "mapped", false, "print names, problems and answers, as training reads them")
	rewards.registerReward(c)
	return c
}

// showData prints rows with the columns of the file.
func showData(w io.Writer, path string, o data.Options) error {
	var keep *data.Filter
	if o.Filter != "" {
		var err error
		if keep, err = data.ParseFilter(o.Filter); err != nil {
			return err
		}
	}
	records, err := data.OpenRecords(path, o)
	if err != nil {
		return err
	}
	defer records.Close()
	for shown := 0; o.Limit == 0 || shown < o.Limit; {
		record, err := records.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if keep != nil && !keep.Match(record.Object) {
			continue
		}
		if err := cli.WriteLine(w, record.Object); err != nil {
			return err
		}
		shown++
	}
	return nil
}

// showMapped prints rows as training reads them, and names the first rows that training
// leaves out.
func showMapped(w io.Writer, path string, o data.Options) error {
	o.OnBad = data.WarnLeftOut(slog.Default())
	rows, err := data.Open(path, o)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		row, err := rows.Next()
		if err == io.EOF {
			rows.Report().Log(slog.Default(), path)
			return nil
		}
		if err != nil {
			return err
		}
		if err := cli.WriteLine(w, struct {
			ID      string     `json:"id"`
			Prompt  string     `json:"prompt"`
			Chat    *data.Chat `json:"chat,omitempty"`
			Choices []string   `json:"choices,omitempty"`
			Answers []string   `json:"answers"`
		}{row.ID, row.Text, row.Chat, row.Choices, row.Answers}); err != nil {
			return err
		}
	}
}

func newDataCheck() *cobra.Command {
	var columns data.Columns
	var around tokenize.TemplateSettings
	var rewards configFlags
	var filter, model string
	var asJSON bool
	c := newCommand("data-check", &columns, func(c *cobra.Command, args []string) error {
		o := data.CheckOptions{Parse: verifier.Readable}
		var err error
		if o.Options, err = fileOptions(c, columns, filter, args[0]); err != nil {
			return err
		}
		template, err := parseTemplate(around)
		if err != nil {
			return err
		}
		o.Keep, o.Template = template.Columns, template
		if err := rewards.asks(c, template, &o); err != nil {
			return err
		}
		if model != "" {
			if o.Tokens, err = promptLength(c, model, template); err != nil {
				return err
			}
		}
		return reportData(c, args[0], o, asJSON)
	})
	addTemplate(c, &around, tokenize.DefaultTemplate, false)
	rewards.registerReward(c)
	flags := c.Flags()
	flags.StringVar(&filter, "filter", "", `check only the rows that match, such as 'level in 3..5'`)
	flags.StringVar(&model, "model", "", "model folder whose tokenizer measures the prompts")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	markDirs(c, "model")
	return c
}

// asks says what columns the reward of the flags needs and where it looks in responses.
func (f *configFlags) asks(c *cobra.Command, template tokenize.Template, o *data.CheckOptions) error {
	config, err := f.resolveReward(c)
	if err != nil {
		return err
	}
	if c.Flags().Changed("template") {
		reward.SetTemplate(config.Reward.Rule, template.Name)
	}
	o.Extract, o.Options = reward.Extract(config.Reward.Rule), reward.Reading(config.Reward.Rule, o.Options)
	return nil
}

// reportData prints the report of a file.
func reportData(c *cobra.Command, name string, o data.CheckOptions, asJSON bool) error {
	path, err := localData(c, name)
	if err != nil {
		return err
	}
	report, err := data.Check(openedName(path), o)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.WriteLine(c.OutOrStdout(), report)
	} else {
		_, err = io.WriteString(c.OutOrStdout(), report.String())
	}
	return cmp.Or(err, report.Refused(openedName(path)))
}

// promptLength returns a function that counts the tokens of a problem in its
// template.
func promptLength(c *cobra.Command, model string, around tokenize.Template) (func(data.Problem) (int, error), error) {
	folder, err := localTokenizer(c, model)
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
	folder, remove, err := policy.Unpacked(folder)
	if err != nil {
		return nil, err
	}
	defer remove()
	t, err := tokenize.Load(folder)
	if err != nil {
		return nil, err
	}
	return data.NewPrompter(t, around)
}

func newDataArithmetic() *cobra.Command {
	o := arithmeticOptions{Rows: 1000, Digits: 3}
	c := newCommand("data-arithmetic", &o, func(c *cobra.Command, _ []string) error {
		switch {
		case o.Rows < 1:
			return usagef("-n %d: must be at least 1", o.Rows)
		case o.Digits < 1 || o.Digits > 17: // ten times an operand must fit an int
			return usagef("--digits %d: must be from 1 to 17", o.Digits)
		case !(o.Guess >= 0 && o.Guess <= 1):
			return usagef("--guess %v: must be in [0, 1]", o.Guess)
		case !(o.Slip >= 0 && o.Slip <= 1):
			return usagef("--slip %v: must be in [0, 1]", o.Slip)
		case !(o.Call >= 0 && o.Call <= 1):
			return usagef("--call %v: must be in [0, 1]", o.Call)
		}
		return writeArithmetic(c.OutOrStdout(), o)
	})
	return c
}

type arithmeticOptions struct {
	Rows    int     `short:"n" help:"demonstrations to print"`
	Digits  int     `help:"digits of both operands"`
	Guess   float64 `help:"probability of a right answer without the working"`
	Slip    float64 `help:"probability of an error in each step of the working"`
	Call    float64 `help:"probability of a response that has a calculator compute the problem; the others are guesses and workings"`
	Seed    uint64  `help:"seed of problems and responses"`
	HeldOut bool    `help:"problems of the held-out part"`
}

// writeArithmetic prints demonstrations of the embedded task.
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
		response := ""
		if o.Call > 0 && r.Float64() < o.Call {
			response = p.Called()
		} else {
			response = p.Demonstrate(r, o.Guess, o.Slip)
		}
		if err := cli.WriteLine(w, row{p.Prompt(), response, p.Prompt(), p.Answer()}); err != nil {
			return err
		}
	}
	return nil
}
