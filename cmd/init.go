package cmd

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/models"
	"onering/policy"
	"onering/tokenize"
)

func newInit() *cobra.Command {
	o := initOptions{DType: "auto"}
	c := newCommand("init", &o, func(c *cobra.Command, _ []string) error { return o.run(c) })
	for _, name := range []string{"config", "seed", "tokenizer"} {
		c.MarkFlagsMutuallyExclusive(name, "model")
	}
	return c
}

// An initOptions has the flags of init.
type initOptions struct {
	Config    string `help:"config.json of a model, or its folder" complete:"json"`
	Model     string `help:"model to write as it is: a folder, ORG/NAME, or builtin:arithmetic" complete:"dir"`
	Out       string `help:"folder to write (required)" required:"true" complete:"dir"`
	Tokenizer string `help:"folder to copy the tokenizer's files from; default: that of the config" complete:"dir"`
	Seed      uint64 `help:"seed of the weights"`
	DType     string `flag:"dtype" choice:"auto float32 float16 bfloat16" note:"auto is float32, and for --model its own" help:"type of the tensors"`
}

// run writes a model folder: one of random weights in the shape of --config, with the tokenizer of --tokenizer or
// else of that folder, or the model of --model as it is.
func (o initOptions) run(c *cobra.Command) error {
	if o.Config == "" && o.Model == "" {
		return usagef("give --config, the shape of a model with random weights, or --model, one to write as it is")
	}
	if o.Model != "" {
		return o.copy(c)
	}
	config, err := tokenizerFolder(c, o.Config)
	if err != nil {
		return err
	}
	file := config
	if folderOf(config) == config { // it is a folder
		file = filepath.Join(config, "config.json")
	}
	if _, err := os.Stat(file); err != nil {
		return cli.Unreadable("--config", file, err, "name a config.json, or a folder that has one")
	}
	model, err := models.ReadConfig(config)
	if err != nil {
		return err
	}
	weights, err := model.Init(o.Seed)
	if err != nil {
		return err
	}
	defer weights.Close()
	from := folderOf(config)
	if o.Tokenizer != "" {
		if from, err = tokenizerFolder(c, o.Tokenizer); err != nil {
			return err
		}
		if _, err := os.ReadDir(from); err != nil {
			return cli.Unreadable("--tokenizer", from, err, "name a folder with a tokenizer's files")
		}
	}
	err = model.Save(o.Out, weights, models.SaveOptions{DType: policy.ComputeTypes[o.DType], Tokenizer: from})
	if err != nil {
		return err
	}
	if _, err := tokenize.Load(o.Out); err != nil && o.Tokenizer != "" {
		slog.Warn("the model works with token ids alone", "tokenizer", from, "reason", err)
	}
	slog.Info("wrote a model with random weights", "folder", o.Out, "parameters", weights.Parameters(), "seed", o.Seed)
	fmt.Fprintln(c.OutOrStdout(), o.Out)
	return nil
}

// copy writes the folder of --model, read as training reads it, with its weights in the wanted type.
func (o initOptions) copy(c *cobra.Command) error {
	dir, remove, err := unpackedModel(c, o.Model)
	if err != nil {
		return err
	}
	defer remove()
	model, weights, err := models.Load(dir)
	if err != nil {
		return err
	}
	defer weights.Close()
	if err := model.Save(o.Out, weights, models.SaveOptions{DType: cmp.Or(policy.ComputeTypes[o.DType], model.DType), Tokenizer: dir}); err != nil {
		return err
	}
	slog.Info("wrote a model", "folder", o.Out, "parameters", weights.Parameters())
	fmt.Fprintln(c.OutOrStdout(), o.Out)
	return nil
}

// folderOf returns the folder that holds a config.json; config may name the file or the folder.
func folderOf(config string) string {
	if info, err := os.Stat(config); err == nil && info.IsDir() {
		return config
	}
	return filepath.Dir(config)
}
