package models

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"onering/internal/files"
)

// Foreign explains a file or a folder that is given as a model but has another format,
// and says what to do; "" if the format is unknown.
func Foreign(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return ""
	case info.IsDir():
		return foreignFolder(path)
	}
	return foreignFile(path)
}

// foreignFile explains a file that is given as a model but is neither a model folder nor
// a config.json, and says what to do; "" if it is unknown.
func foreignFile(path string) string {
	if f, err := files.Open(path); err == nil {
		defer f.Close()
		head := make([]byte, 512)
		n, _ := io.ReadFull(f, head)
		if what := files.Foreign(head[:n]); what != "" {
			return "it is " + what
		}
	}
	if filepath.Ext(path) == ".safetensors" {
		return "it is a file of tensors: name the folder that holds it and " + configFile
	}
	return ""
}

// foreignFolder explains a folder that lacks parts of a model folder but has a LoRA adapter or GGUF files, and
// says what to do; "" if it has neither.
func foreignFolder(path string) string {
	if text, err := files.Read(filepath.Join(path, adapterFile), maxConfig); err == nil {
		var adapter struct {
			Base string `json:"base_model_name_or_path"`
		}
		base := "its base model"
		if json.Unmarshal(text, &adapter) == nil && adapter.Base != "" {
			base = adapter.Base
		}
		return "it is a LoRA adapter (" + adapterFile + "), not a model: name " + base +
			" and give this folder as its adapter (--adapter), or write a model of both with onering merge"
	}
	if found := files.Glob(path, "*.gguf"); len(found) > 0 {
		return "it holds " + filepath.Base(found[0]) + ", " + files.Foreign([]byte("GGUF")) // as if it began with that
	}
	return ""
}

// adapterFile is the file that PEFT writes in place of config.json.
const adapterFile = "adapter_config.json"
