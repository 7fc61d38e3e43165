// Package export writes the ONNX graphs of a model to files, with a manifest that
// describes their inputs and outputs, so that other programs can run them.
package export

import (
	"encoding/json"
	"os"
	"path/filepath"

	"onering/internal/files"
	"onering/models"
)

// Options state what an export needs beyond the Architecture.
type Options struct {
	// Device is the device of the Architecture's Compute: "cpu" or "cuda".
	Device string
	// Blocks is the number of query blocks in which the layers compute attention: more
	// blocks take less memory with long rows.
	Blocks int
	// Adapter is the Compute's adapter, or nil.
	Adapter *models.Adapter
}

// Graphs are the graphs of a model, ready to be written.
type Graphs struct{ manifest }

// Build builds every graph of a model.
func Build(arch models.Architecture, o Options) (*Graphs, error) {
	graphs, err := buildGraphs(arch, o)
	if err != nil {
		return nil, err
	}
	return &Graphs{newManifest(arch, graphs, o)}, nil
}

// Write writes the graphs and manifest.json to a new folder. It returns how many graphs there are.
func (g *Graphs) Write(out string) (int, error) {
	text, err := json.MarshalIndent(g.manifest, "", "  ")
	if err != nil {
		return 0, err
	}
	return len(g.Graphs), files.WriteFolder(out, func(d *files.Draft) error {
		for _, x := range g.Graphs {
			if err := os.WriteFile(filepath.Join(d.Dir, x.File), x.onnx, 0o666); err != nil {
				return err
			}
		}
		return d.WriteFile("manifest.json", files.Content(append(text, '\n')))
	})
}
