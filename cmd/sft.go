package cmd

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/models"
	"onering/tokenize"
	"onering/train"
)

func newSFT() *cobra.Command {
	var e engineFlags
	var file, out, dtype string
	var columns data.Options
	var around tokenize.TemplateSettings
	o := train.DefaultSupervised()
	c := &cobra.Command{
		Use:   "sft --model DIR --data FILE --out DIR",
		Short: "Warm-start a model on demonstrations",
		Long: `Warm-start a model on demonstrations, through the graphs that reinforcement
learning uses. FILE has a prompt and a response in each row, in any format that
data show reads: JSON lines, Parquet ..., a glob, hf:ORG/NAME. The loss is the
mean negative log-prob of a batch's response tokens, end of sequence included.
The learning rate rises over --warmup steps and falls linearly.`,
		Example: `  onering sft --model small --data demonstrations.jsonl --out warm
  onering sft --model small --data math.parquet --prompt problem --response solution \
    --out warm --template qwen_math --lr 1e-5`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := checkSettings(&o); err != nil {
				return err
			}
			if o.Template, err = parseTemplate(around); err != nil {
				return err
			}
			element, err := parseDType(dtype)
			if err != nil {
				return err
			}
			if err := checkVacant(out, "choose another folder with --out"); err != nil {
				return err
			}
			demonstrations, err := readDemonstrations(c, file, columns)
			if err != nil {
				return err
			}
			return supervise(c, &e, demonstrations, o, out, element)
		},
	}
	e.register(c)
	flags := c.Flags()
	flags.StringVar(&file, "data", "", "file of demonstrations; - is stdin (required)")
	flags.StringVar(&columns.Prompt, "prompt", "", "column of the prompt; found by name if not given")
	flags.StringVar(&columns.Answer, "response", "", "column of the response; found by name if not given")
	flags.StringVar(&columns.Split, "split", "", "split of a datasets folder that has several")
	flags.StringVar(&columns.Filter, "filter", "", `take the rows for which it holds, such as 'level in 3..5'`)
	flags.StringVar(&out, "out", "", "folder to write (required)")
	addSettings(flags, &o, "epochs", "batch-size", "lr", "warmup", "floor", "weight-decay", "max-grad-norm", "seed")
	addTemplate(c, &around, "no", false)
	flags.StringVar(&dtype, "dtype", "float32", "type of the tensors: "+strings.Join(dtypeNames, ", "))
	must(c.MarkFlagRequired("data"))
	must(c.MarkFlagRequired("out"))
	must(c.MarkFlagFilename("data"))
	must(c.MarkFlagDirname("out"))
	must(c.RegisterFlagCompletionFunc("dtype", cobra.FixedCompletions(dtypeNames, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func readDemonstrations(c *cobra.Command, name string, o data.Options) ([]train.Demonstration, error) {
	if name == "-" {
		o.Input = c.InOrStdin()
	}
	path, err := localData(c, name)
	if err != nil {
		return nil, err
	}
	pairs, err := data.LoadPairs(openedName(path), o)
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	demonstrations := make([]train.Demonstration, len(pairs))
	for i, p := range pairs {
		demonstrations[i] = train.Demonstration(p)
	}
	return demonstrations, nil
}

// supervise trains the model that the flags name on demonstrations and writes it to
// the folder out with tensors of type element.
func supervise(c *cobra.Command, f *engineFlags, demonstrations []train.Demonstration, o train.SupervisedConfig, out string, element models.DType) error {
	e, err := f.open(c)
	if err != nil {
		return err
	}
	defer e.Close()
	var bar *progress
	first, last := 0.0, 0.0
	err = train.Supervise(c.Context(), e.env, e.policy, demonstrations, o, slog.Default(), func(step, steps int, loss, norm float64) {
		if bar == nil {
			first = loss
			bar = newProgress(c.ErrOrStderr(), isQuiet(c), "sft", "steps", int64(steps))
		}
		last = loss
		bar.set(int64(step), int64(steps))
		slog.Debug("sft", "step", step, "loss", loss, "grad_norm", norm)
	})
	if err == nil {
		slog.Info("trained on demonstrations", "count", len(demonstrations), "first_loss", first, "last_loss", last)
	}
	if bar != nil {
		bar.finish()
	}
	if err != nil {
		return err
	}
	if err := e.env.Download(e.policy.Weights); err != nil {
		return err
	}
	if err := e.policy.Model.Save(out, e.policy.Weights, models.SaveOptions{DType: element, Tokenizer: e.policy.Dir}); err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), out)
	return nil
}
