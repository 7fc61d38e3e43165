package tokenize

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// A Character is a small vocabulary for models of a toy task: each character is a
// token, and nothing is merged. Its files are those of any Hugging Face tokenizer.
type Character struct {
	Specials []string // have the ids 0, 1, ...
	// Pieces have the ids after them. A piece of several bytes ("\\boxed{", or a
	// letter outside of ASCII) is found like a special token, but never skipped.
	Pieces []string
	// BOS, EOS and Pad are names in Specials, or empty. No BOS is added to texts.
	BOS, EOS, Pad string
}

// NewCharacter returns the tokenizer that c describes.
func NewCharacter(c Character) (*Tokenizer, error) {
	t, err := c.build()
	if err != nil {
		return nil, fmt.Errorf("tokenize: character vocabulary: %w", err)
	}
	return t, nil
}

func (c Character) build() (*Tokenizer, error) {
	for name, token := range map[string]string{"BOS": c.BOS, "EOS": c.EOS, "Pad": c.Pad} {
		if token != "" && !slices.Contains(c.Specials, token) {
			return nil, fmt.Errorf("%s %q is not among the specials", name, token)
		}
	}
	seen := map[string]bool{}
	for _, piece := range slices.Concat(c.Specials, c.Pieces) {
		if piece == "" || seen[piece] {
			return nil, fmt.Errorf("piece %q is empty or is listed twice", piece)
		}
		seen[piece] = true
	}
	model, config, err := c.files()
	if err != nil {
		return nil, err
	}
	b, settings := newBuilder(), new(configFile)
	if err := b.readTokenizer(model); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(config, settings); err != nil {
		return nil, err
	}
	t, err := b.finish(settings)
	if err != nil {
		return nil, err
	}
	for id, piece := range slices.Concat(c.Specials, c.Pieces) {
		// The byte alphabet would turn an added "é" into one byte, which is not a text.
		if got := t.Decode([]int32{int32(id)}, false); got != piece {
			return nil, fmt.Errorf("piece %q would decode to %q", piece, got)
		}
	}
	return t, nil
}

// Save writes tokenizer.json and tokenizer_config.json into dir, which must
// exist. Load reads them back; so do transformers and tokenizers.
func (c Character) Save(dir string) error {
	if _, err := NewCharacter(c); err != nil {
		return err
	}
	model, config, err := c.files()
	if err == nil {
		err = writeFile(filepath.Join(dir, "tokenizer.json"), model)
	}
	if err == nil {
		err = writeFile(filepath.Join(dir, "tokenizer_config.json"), config)
	}
	if err != nil {
		return fmt.Errorf("tokenize: save character vocabulary: %w", err)
	}
	return nil
}

// files returns tokenizer.json and tokenizer_config.json.
func (c Character) files() (model, config []byte, err error) {
	type object = map[string]any
	vocab := map[string]int32{}
	added := []addedToken{}
	for id, piece := range slices.Concat(c.Specials, c.Pieces) {
		special := id < len(c.Specials)
		name := piece
		if !special && len(piece) == 1 {
			name = string(byteToRune[piece[0]])
		} else {
			added = append(added, addedToken{ID: int32(id), Content: piece, Special: special})
		}
		if old, ok := vocab[name]; ok {
			return nil, nil, fmt.Errorf("pieces %d and %d are both written %q", old, id, name)
		}
		vocab[name] = int32(id)
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	model, err = json.MarshalIndent(object{
		"version":        "1.0",
		"truncation":     nil,
		"padding":        nil,
		"added_tokens":   added,
		"normalizer":     nil,
		"pre_tokenizer":  byteLevel,
		"post_processor": nil,
		"decoder":        byteLevel,
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []string{},
		},
	}, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	settings := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for name, token := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.Pad} {
		if token != "" {
			settings[name] = token
		}
	}
	config, err = json.MarshalIndent(settings, "", "  ")
	return append(model, '\n'), append(config, '\n'), err
}

// writeFile replaces the file at path completely or not at all.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename, when there is nothing to remove
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
