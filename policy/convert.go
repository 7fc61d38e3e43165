package policy

import (
	"errors"
	"fmt"
	"io/fs"

	"onering/internal/files"
	"onering/models"
	"onering/models/export"
	"onering/models/lora"
	"onering/tokenize"
)

// Tokenizer reads the tokenizer of a model's folder, or of the embedded model. An error says
// what the folder holds in place of a model.
func Tokenizer(dir string) (*tokenize.Tokenizer, error) {
	dir, remove, err := Unpacked(dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	t, err := tokenize.Load(dir)
	if errors.Is(err, fs.ErrNotExist) && models.IsAdapter(dir) {
		return nil, fmt.Errorf("%s is a LoRA adapter and has no tokenizer: name its model", dir)
	}
	if what := models.Foreign(dir); err != nil && what != "" {
		return nil, fmt.Errorf("%s is not a model folder: %s", dir, what)
	}
	return t, err
}

// Merge merges an adapter into the weights of the model in the folder dir, and writes the result to
// the folder out. Its tensors have the type element, or that of the model if element is Invalid. The
// tokenizer is the adapter's if that is complete, else the model's with the files that the adapter
// has, such as a chat template, in place of the model's.
func Merge(dir, adapter, out string, element models.DType) error {
	m, base, err := models.Load(dir)
	if err != nil {
		return err
	}
	defer base.Close()
	if err := lora.Merge(adapter, m, base); err != nil {
		return err
	}
	tokenizer, extraFiles := dir, func(d *files.Draft) error { return models.CopyTokenizer(d.WriteFile, adapter) }
	if hasVocabulary(adapter) {
		tokenizer, extraFiles = adapter, nil
	}
	if element == models.Invalid {
		element = m.DType
	}
	return m.Save(out, base, models.SaveOptions{DType: element, Tokenizer: tokenizer, Extra: extraFiles})
}

// Export builds the graphs of the model in the folder dir, computed as compute says on device
// (cpu or cuda) with attention in that many blocks of queries. adapter is the folder of an adapter beside the
// model, or "".
func Export(dir, adapter string, compute models.Compute, device string, blocks int) (*export.Graphs, error) {
	model, err := ReadModel(dir)
	if err != nil {
		return nil, err
	}
	if adapter != "" {
		a, err := lora.Read(adapter, model)
		if err != nil {
			return nil, err
		}
		// The graphs need no tensors, but existing tensors must be this model's.
		if err := a.Check(adapter); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		compute.Adapter = &a.Adapter
	}
	arch, err := model.Architecture(compute)
	if err != nil {
		return nil, err
	}
	return export.Build(arch, export.Options{Device: device, Blocks: blocks, Adapter: compute.Adapter})
}
