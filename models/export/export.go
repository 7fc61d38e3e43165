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

// Write writes every graph of a model and manifest.json to a new folder. It
// returns how many graphs there are.
func Write(out string, arch models.Architecture, o Options) (int, error) {
	graphs, err := buildGraphs(arch, o)
	if err != nil {
		return 0, err
	}
	text, err := json.MarshalIndent(newManifest(arch, graphs, o), "", "  ")
	if err != nil {
		return 0, err
	}
	return len(graphs), files.WriteFolder(out, func(d *files.Draft) error {
		for _, g := range graphs {
			if err := os.WriteFile(filepath.Join(d.Dir, g.File), g.onnx, 0o666); err != nil {
				return err
			}
		}
		return d.WriteFile("manifest.json", files.Content(append(text, '\n')))
	})
}
