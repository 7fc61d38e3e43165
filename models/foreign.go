package models

import (
	"bytes"
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
	switch {
	case isGGUF(path):
		return "it is a GGUF file: " + ungguf(path)
	case filepath.Ext(path) == ".safetensors":
		return "it is a file of tensors: name the folder that holds it and " + configFile
	}
	return ""
}

// foreignFolder does the same for a folder that lacks parts of a model folder.
func foreignFolder(path string) string {
	if text, err := files.Read(filepath.Join(path, adapterFile), maxConfig); err == nil {
		var adapter struct {
			Base string `json:"base_model_name_or_path"`
		}
		base := "its base model"
		if json.Unmarshal(text, &adapter) == nil && adapter.Base != "" {
			base = adapter.Base
		}
		return "it is a LoRA adapter (" + adapterFile + "), not a model: name " + base + " and give this folder as its adapter (--adapter), or write a model of both with onering merge"
	}
	if found := files.Glob(path, "*.gguf"); len(found) > 0 {
		return "it holds a GGUF file: " + ungguf(found[0])
	}
	return ""
}

// adapterFile is the file that PEFT writes in place of config.json.
const adapterFile = "adapter_config.json"

// isGGUF reports whether a file has the ending or begins with the letters of GGUF.
func isGGUF(path string) bool {
	if filepath.Ext(path) == ".gguf" {
		return true
	}
	f, err := files.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && bytes.Equal(magic, []byte("GGUF"))
}

// ungguf says how to convert a GGUF file to a model folder.
func ungguf(file string) string {
	return "name the Hugging Face folder that it was made from, or make one with transformers: from_pretrained(DIR, gguf_file=\"" + filepath.Base(file) + "\"), then save_pretrained"
}
