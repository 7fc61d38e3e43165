// Package export writes the ONNX graphs of a model to files, with a manifest that
// describes their inputs and outputs, so that other programs can run them.
package export

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"onering/models"
	"onering/models/adamw"
)

// Write writes every graph of a model and manifest.json to a new folder. It
// returns how many graphs there are.
func Write(out string, arch models.Architecture) (int, error) {
	graphs, err := buildGraphs(arch)
	if err != nil {
		return 0, err
	}
	text, err := json.MarshalIndent(newManifest(arch, graphs), "", "  ")
	if err != nil {
		return 0, err
	}
	return len(graphs), models.WriteFolder(out, func(dir string) error {
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

// A manifest describes an export.
type manifest struct {
	Version int               `json:"version"`
	Shape   map[string]any    `json:"shape"` // by the keys of config.json where it has them
	Letters map[string]string `json:"letters"`
	// LayerPrefix comes before the names of layer 0's weights. The layer graphs
	// name their weights without it, so that one graph serves all layers.
	LayerPrefix string        `json:"layer_prefix"`
	Weights     []graphWeight `json:"weights"`
	Graphs      []graphFile   `json:"graphs"`
}

// A graphWeight is a weight as the graphs take it: tensors of the model folder,
// stacked along the first dimension.
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

// letters explains the letters in the shapes of inputs and outputs.
var letters = map[string]string{
	"B": "rows in a batch", "T": "tokens of a row", "N": "packed tokens", "S": "cached length", "P": "positions of the rotary tables",
	"R": "rows that predict a response token", "v": "rows of a slice of the vocabulary",
}

func newManifest(arch models.Architecture, graphs []graphFile) manifest {
	g := arch.Geometry()
	m := manifest{
		Version: 1, Letters: letters, LayerPrefix: arch.LayerPrefix(0), Graphs: graphs,
		Shape: map[string]any{
			"num_hidden_layers": g.Layers, "hidden_size": g.Hidden, "intermediate_size": g.FFN, "vocab_size": g.Vocab,
			"num_attention_heads": g.Heads, "num_key_value_heads": g.KVHeads, "head_dim": g.HeadDim,
			"max_position_embeddings": g.MaxPositions, "rope_theta": g.RopeTheta, "cache_width": g.CacheWidth,
			"embedding": g.Embedding, "head": g.Head, "norm": g.Norm,
			// The inputs cos and sin are of position*frequency: theta does not say all.
			"rope_frequencies": g.RopeFrequencies,
		},
	}
	if g.Unturned != nil { // to the layer graphs of these, angles of 0 are given
		turned := make([]int, g.Layers)
		for i, still := range g.Unturned {
			if !still {
				turned[i] = 1
			}
		}
		m.Shape["no_rope_layers"] = turned
	}
	for _, fused := range arch.Layout().Fused() {
		w := graphWeight{Name: fused.Name, Shape: fused.Shape}
		for _, part := range fused.Parts {
			w.Parts = append(w.Parts, weightPart(part))
		}
		m.Weights = append(m.Weights, w)
	}
	return m
}

// A graphFile is a Program and the file that it is written to.
type graphFile struct {
	File    string            `json:"file"`
	Program string            `json:"program"`
	Inputs  []models.Port     `json:"inputs"`
	Outputs []models.Port     `json:"outputs"`
	Alias   map[string]string `json:"alias,omitempty"`   // output -> the input it may be bound onto
	Options map[string]string `json:"options,omitempty"` // session configuration entries
	onnx    []byte
}

// buildGraphs builds every variant of every Program.
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
		for _, choice := range models.Choices {
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
	norm2, err := arch.GradNorm()
	add("", err, norm2)
	step, err := adamw.Default().Program(nil, models.F32)
	add("", err, step)
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
