package cmd

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/models"
	"onering/policy"
	"onering/tokenize"
)

func newInit() *cobra.Command {
	var o initOptions
	c := &cobra.Command{
		Use:   "init --config config.json --out DIR",
		Short: "Write a model folder with random weights",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	flags := c.Flags()
	flags.StringVar(&o.config, "config", "", "config.json of a model, or its folder")
	flags.StringVar(&o.model, "model", "", "model to write as it is: a folder, ORG/NAME, or builtin:arithmetic")
	flags.StringVar(&o.out, "out", "", "folder to write (required)")
	flags.StringVar(&o.tokenizer, "tokenizer", "", "folder to copy the tokenizer's files from; default: that of the config")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of the weights")
	flags.StringVar(&o.dtype, "dtype", "", "type of the tensors: "+strings.Join(dtypeNames, ", ")+"; default: float32, of --model its own")
	exclusive(c, "config", "model")
	exclusive(c, "seed", "model")
	exclusive(c, "tokenizer", "model")
	markDirs(c, "model")
	require(c, "out")
	must(c.MarkFlagFilename("config", "json"))
	markDirs(c, "out", "tokenizer")
	offer(c, dtypeNames, "dtype")
	return c
}

// An initOptions has the flags of init.
type initOptions struct {
	config, model, out, dtype, tokenizer string
	seed                                 uint64
}

// run writes the folder.
func (o initOptions) run(c *cobra.Command) error {
	if o.config == "" && o.model == "" {
		return usagef("give --config, the shape of a model with random weights, or --model, one to write as it is")
	}
	element := models.F32
	var err error
	if o.dtype != "" {
		if element, err = parseDType(o.dtype); err != nil {
			return err
		}
	}
	if o.model != "" {
		return o.copy(c, element)
	}
	config, err := localTokenizer(c, o.config)
	if err != nil {
		return err
	}
	file := config
	if folderOf(config) == config {
		file = filepath.Join(config, "config.json")
	}
	if _, err := os.Stat(file); err != nil {
		return cli.Unreadable("--config", file, err, "name a config.json, or a folder that has one")
	}
	model, err := models.ReadConfig(config)
	if err != nil {
		return err
	}
	weights, err := model.Init(o.seed)
	if err != nil {
		return err
	}
	defer weights.Close()
	from := folderOf(config)
	if o.tokenizer != "" {
		if from, err = localTokenizer(c, o.tokenizer); err != nil {
			return err
		}
		if _, err := os.ReadDir(from); err != nil {
			return cli.Unreadable("--tokenizer", from, err, "name a folder with a tokenizer's files")
		}
	}
	err = model.Save(o.out, weights, models.SaveOptions{DType: element, Tokenizer: from})
	if err != nil {
		return err
	}
	if _, err := tokenize.Load(o.out); err != nil && o.tokenizer != "" {
		slog.Warn("the model works with token ids alone", "tokenizer", from, "reason", err)
	}
	n := 0
	for _, t := range weights.Tensors() {
		n += len(t.Data)
	}
	slog.Info("wrote a model with random weights", "folder", o.out, "parameters", n, "seed", o.seed)
	fmt.Fprintln(c.OutOrStdout(), o.out)
	return nil
}

// copy writes the folder of a model with its weights, in the type element if one is given.
func (o initOptions) copy(c *cobra.Command, element models.DType) error {
	dir, remove, err := unpackedModel(c, o.model)
	if err != nil {
		return err
	}
	defer remove()
	model, weights, err := models.Load(dir)
	if err != nil {
		return err
	}
	defer weights.Close()
	if o.dtype == "" {
		element = model.DType
	}
	if err := model.Save(o.out, weights, models.SaveOptions{DType: element, Tokenizer: dir}); err != nil {
		return err
	}
	slog.Info("wrote a model", "folder", o.out, "parameters", weights.Parameters())
	fmt.Fprintln(c.OutOrStdout(), o.out)
	return nil
}

// folderOf returns the folder of a config.json, or config if that is the folder.
func folderOf(config string) string {
	if info, err := os.Stat(config); err == nil && info.IsDir() {
		return config
	}
	return filepath.Dir(config)
}

// dtypeNames are the element types of a model folder, by their names in config.json.
var dtypeNames = []string{"float32", "float16", "bfloat16"}

func parseDType(name string) (models.DType, error) {
	if d, ok := policy.ComputeTypes[name]; ok {
		return d, nil
	}
	return models.Invalid, usagef("--dtype %q: must be one of %s", name, strings.Join(dtypeNames, ", "))
}
