package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/train"
)

func newExport() *cobra.Command {
	var model, out string
	c := &cobra.Command{
		Use:   "export --model DIR --out DIR",
		Short: "Write the ONNX graphs of a model and a manifest",
		Long: `Write the ONNX graphs that sampling and training of a model run, and
manifest.json, which lists each with its inputs and outputs, and which outputs
may be bound onto an input. The graphs are stock ONNX: any ONNX Runtime runs
them. They hold no weights, which are inputs; the manifest says how those are
made of the tensors of the model folder, of which only config.json is read.`,
		Example: "  onering export --model Qwen2.5-0.5B --out graphs",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			folder, err := localTokenizer(c, model) // the weights are not needed
			if err != nil {
				return err
			}
			config, err := train.ReadModel(folder)
			if err != nil {
				return err
			}
			arch, err := config.Architecture(models.Compute{})
			if err != nil {
				return err
			}
			graphs, err := buildGraphs(arch)
			if err != nil {
				return err
			}
			if err := writeGraphs(out, arch, graphs); err != nil {
				return err
			}
			slog.Info("wrote the graphs", "folder", out, "graphs", len(graphs))
			fmt.Fprintln(c.OutOrStdout(), out)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&model, "model", "", "model folder, or its config.json (required)")
	flags.StringVar(&out, "out", "", "folder to write (required)")
	must(c.MarkFlagRequired("model"))
	must(c.MarkFlagRequired("out"))
	must(c.MarkFlagDirname("model"))
	must(c.MarkFlagDirname("out"))
	return c
}

// A graphFile is a Program and the file it goes to.
type graphFile struct {
	File    string            `json:"file"`
	Program string            `json:"program"`
	Inputs  []models.Port     `json:"inputs"`
	Outputs []models.Port     `json:"outputs"`
	Alias   map[string]string `json:"alias,omitempty"`   // output -> the input it may be bound onto
	Options map[string]string `json:"options,omitempty"` // session configuration entries
	onnx    []byte
}

// buildGraphs builds every Program in its variants.
func buildGraphs(arch models.Architecture) ([]graphFile, error) {
	var files []graphFile
	var failed error
	add := func(variant string, err error, programs ...models.Program) {
		if failed != nil {
			return
		}
		if failed = err; err != nil {
			return
		}
		for _, p := range programs {
			files = append(files, graphFile{
				File: p.Name + variant + ".onnx", Program: p.Name,
				Inputs: p.Inputs, Outputs: p.Outputs, Alias: p.Alias, Options: p.Options, onnx: p.ONNX,
			})
		}
	}
	p, err := arch.Prefill()
	add("", err, p)
	for _, form := range models.Forms {
		p, err := arch.Decode(form)
		add("", err, p)
		for _, choice := range []models.Choice{models.Draw, models.Filter, models.Greedy} {
			p, err := arch.Sample(choice, form)
			add(form.Suffix(), err, p)
		}
	}
	for _, level := range []models.Stash{models.StashInput, models.StashAttention, models.StashAll} {
		forward, backward, err := arch.Layer(level, 1)
		add(fmt.Sprintf(".stash%d", level), err, forward, backward)
	}
	forward, backward, err := arch.Norm()
	add("", err, forward, backward)
	forward, target, backward, err := arch.Head(false)
	add("", err, forward, target, backward)
	norm2, step, err := arch.Optimizer()
	add("", err, norm2, step)
	if failed != nil {
		return nil, failed
	}
	seen := map[string]bool{}
	for _, f := range files {
		if seen[f.File] {
			return nil, fmt.Errorf("export: two graphs are called %s", f.File)
		}
		seen[f.File] = true
	}
	return files, nil
}

// A manifest describes an export.
type manifest struct {
	Version int               `json:"version"`
	Shape   map[string]any    `json:"shape"` // mostly the keys of config.json
	Letters map[string]string `json:"letters"`
	// LayerPrefix comes before the weights' names of layer 0; the layer graphs
	// name theirs without it, so that one serves all layers.
	LayerPrefix string        `json:"layer_prefix"`
	Weights     []graphWeight `json:"weights"`
	Graphs      []graphFile   `json:"graphs"`
}

// A graphWeight is a weight as the graphs take it: the tensors of the model
// folder, stacked along the first dimension.
type graphWeight struct {
	Name  string       `json:"name"`
	Shape []int        `json:"shape"`
	Parts []weightPart `json:"parts"`
}

// A weightPart is a tensor of the model folder.
type weightPart struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// letters are the sizes that vary, in the shapes of inputs and outputs.
var letters = map[string]string{
	"B": "rows in a batch", "T": "tokens of a row", "N": "packed tokens", "S": "cached length", "P": "positions of the rotary tables",
	"R": "rows that predict a response token", "v": "rows of a slice of the vocabulary",
}

func writeGraphs(out string, arch models.Architecture, graphs []graphFile) error {
	g := arch.Geometry()
	m := manifest{
		Version: 1, Letters: letters, LayerPrefix: arch.LayerPrefix(0), Graphs: graphs,
		Shape: map[string]any{
			"num_hidden_layers": g.Layers, "hidden_size": g.Hidden, "intermediate_size": g.FFN, "vocab_size": g.Vocab,
			"num_attention_heads": g.Heads, "num_key_value_heads": g.KVHeads, "head_dim": g.HeadDim,
			"max_position_embeddings": g.MaxPositions, "rope_theta": g.RopeTheta, "cache_width": g.CacheWidth,
			"embedding": g.Embedding, "head": g.Head, "norm": g.Norm,
		},
	}
	for _, fused := range arch.Layout().Fused() {
		w := graphWeight{Name: fused.Name, Shape: fused.Shape}
		for _, part := range fused.Parts {
			w.Parts = append(w.Parts, weightPart(part))
		}
		m.Weights = append(m.Weights, w)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return models.WriteFolder(out, func(dir string) error {
		for _, g := range graphs {
			if err := os.WriteFile(filepath.Join(dir, g.File), g.onnx, 0o666); err != nil {
				return err
			}
		}
		return models.WriteFile(filepath.Join(dir, "manifest.json"), func(w io.Writer) error {
			_, err := w.Write(append(text, '\n'))
			return err
		})
	})
}
