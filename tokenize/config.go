package tokenize

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	reading "onering/internal/files"
	"onering/internal/strict"
)

// A configFile is the part of tokenizer_config.json that is read.
type configFile struct {
	Class        string                `json:"tokenizer_class"`
	BOS          tokenName             `json:"bos_token"`
	EOS          tokenName             `json:"eos_token"`
	Pad          tokenName             `json:"pad_token"`
	Unk          tokenName             `json:"unk_token"`
	Sep          tokenName             `json:"sep_token"`
	CLS          tokenName             `json:"cls_token"`
	Mask         tokenName             `json:"mask_token"`
	AddBOS       bool                  `json:"add_bos_token"`
	AddEOS       bool                  `json:"add_eos_token"`
	Added        map[string]addedToken `json:"added_tokens_decoder"`
	ChatTemplate templateSource        `json:"chat_template"`
}

// A tokenName is a string, an object with "content", or null in the file.
type tokenName string

func (n *tokenName) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var token struct{ Content string }
		err := strict.JSON(data, &token)
		*n = tokenName(token.Content)
		return err
	}
	return strict.JSON(data, (*string)(n))
}

// readConfig reads tokenizer_config.json and the files with chat templates, if the folder has them.
func readConfig(fsys fs.FS) (*configFile, error) {
	c := new(configFile)
	if err := readJSON(fsys, "tokenizer_config.json", c); err != nil {
		return nil, err
	}
	if c.BOS == "" && c.EOS == "" {
		// Older folders have them only here.
		var names struct {
			BOS tokenName `json:"bos_token"`
			EOS tokenName `json:"eos_token"`
		}
		if err := readJSON(fsys, "special_tokens_map.json", &names); err != nil {
			return nil, err
		}
		c.BOS, c.EOS = names.BOS, names.EOS
	}
	templates, err := readTemplates(fsys, c.ChatTemplate)
	c.ChatTemplate = templates
	return c, err
}

// maxFile bounds the files of a tokenizer. The largest in use have about 40 MB.
const maxFile = 256 << 20

// readFile reads a file of a tokenizer's folder.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	return reading.ReadFS(fsys, name, maxFile)
}

// readJSON decodes the named file into v; if there is no such file, v does not change.
func readJSON(fsys fs.FS, name string, v any) error {
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = strict.JSON(data, v); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// tokens returns the tokens that chat templates can name; one that is not set is undefined in the template.
func (c *configFile) tokens() map[string]string {
	tokens := map[string]string{}
	for name, token := range map[string]tokenName{
		"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.Pad, "unk_token": c.Unk, "sep_token": c.Sep, "cls_token": c.CLS, "mask_token": c.Mask,
	} {
		if token != "" {
			tokens[name] = string(token)
		}
	}
	return tokens
}

// addedTokens returns the added tokens of a folder beside those of tokenizer.json, by
// id: those of tokenizer_config.json or, in older folders, of added_tokens.json.
func (c *configFile) addedTokens(fsys fs.FS) ([]addedToken, error) {
	var tokens []addedToken
	for _, key := range slices.Sorted(maps.Keys(c.Added)) {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is not an id", key)
		}
		t := c.Added[key]
		t.ID = int32(id)
		tokens = append(tokens, t)
	}
	if c.Added == nil {
		var ids map[string]int32
		if err := readJSON(fsys, "added_tokens.json", &ids); err != nil {
			return nil, err
		}
		for _, content := range slices.Sorted(maps.Keys(ids)) {
			tokens = append(tokens, addedToken{ID: ids[content], Content: content, Special: true})
		}
	}
	slices.SortStableFunc(tokens, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	return tokens, nil
}

// withConfigured returns the added tokens of tokenizer.json and after them those that only tokenizer_config.json has,
// as transformers adds them when it loads a tokenizer. Tokens that the vocabulary has keep its ids.
func (c *configFile) withConfigured(fsys fs.FS, added []addedToken, vocab map[string]int32) ([]addedToken, error) {
	if c.Added == nil {
		return added, nil
	}
	stated, err := c.addedTokens(fsys)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(added))
	for _, a := range added {
		known[a.Content] = true
	}
	for _, a := range stated {
		if known[a.Content] {
			continue
		}
		if id, ok := vocab[a.Content]; ok {
			a.ID = id
		}
		added = append(added, a)
	}
	return added, nil
}

// surround puts BOS and EOS around texts if add_bos_token and add_eos_token ask for it.
// It is for folders without tokenizer.json: otherwise its post-processor decides (as in
// transformers 5; in version 4 the configuration of Llama's tokenizer class decided).
func (c *configFile) surround(t *Tokenizer) error {
	for _, o := range []struct {
		key  string
		add  bool
		name tokenName
		ids  *[]int32
	}{
		{"add_bos_token", c.AddBOS, c.BOS, &t.idsBefore},
		{"add_eos_token", c.AddEOS, c.EOS, &t.idsAfter},
	} {
		if !o.add || o.name == "" {
			continue
		}
		id, ok := t.ids[string(o.name)]
		if !ok {
			return fmt.Errorf("tokenizer_config.json: %s is true, but %q is not in the vocabulary", o.key, o.name)
		}
		*o.ids = []int32{id}
	}
	return nil
}
