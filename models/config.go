package models

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"onering/internal/ordered"
	"onering/internal/strict"
)

// A ConfigFile is the JSON object of config.json or generation_config.json, or
// an object within one. Its methods read members by key. A member that is wrong
// is not reported at once: Err returns the first error, so that code can read
// all members in a row. A member that is null counts as absent.
type ConfigFile struct {
	name       string // its name in errors, such as "config.json"
	members    map[string][]byte
	seen       map[string]bool // what was read or expected, by name and key; shared by the objects of one file
	err        *error          // shared by the objects of one file
	textConfig *ConfigFile     // the object of ReadText
}

// parseConfigFile reads the text of a file. The keys' order and the text itself are not kept.
func parseConfigFile(name string, text []byte) (*ConfigFile, error) {
	f := &ConfigFile{name: name, members: make(map[string][]byte), seen: make(map[string]bool), err: new(error)}
	if err := f.parse(text); err != nil {
		return nil, fmt.Errorf("models: %s: %w", name, err)
	}
	return f, nil
}

func (f *ConfigFile) parse(text []byte) error {
	return ordered.EachMember(text, func(key string, value []byte, _ int) error {
		f.members[key] = value
		return nil
	})
}

// Err returns the first error of the file.
func (f *ConfigFile) Err() error { return *f.err }

// Fail reports that something in the file is wrong; the message should begin with the key.
func (f *ConfigFile) Fail(format string, args ...any) {
	if *f.err == nil {
		*f.err = fmt.Errorf("models: %s: %w", f.name, fmt.Errorf(format, args...))
	}
}

// Keys returns the keys of all members in alphabetical order, including null members.
func (f *ConfigFile) Keys() []string {
	return slices.Sorted(maps.Keys(f.members))
}

// Has reports whether the file states a value for key, and marks the key as seen: known to the reader.
func (f *ConfigFile) Has(key string) bool {
	f.seen[f.name+": "+key] = true
	v, ok := f.members[key]
	return ok && string(v) != "null"
}

// Default gives key a value, as JSON, where the file states none.
func (f *ConfigFile) Default(key, value string) {
	if !f.Has(key) {
		f.members[key] = []byte(value)
	}
}

// Seen reports whether a method was asked for the member before, even if there is none.
func (f *ConfigFile) Seen(key string) bool { return f.seen[f.name+": "+key] }

// Decode reads the member into v, which stays unchanged if there is no member. want says
// in words what the member must be.
func (f *ConfigFile) Decode(key string, v any, want string) {
	if f.Has(key) && strict.JSON(f.members[key], v) != nil {
		f.Fail("%s: want %s, found %.60s", key, want, f.members[key])
	}
}

// Size reads a positive whole number that must be there; 0 after an error.
func (f *ConfigFile) Size(key string) int {
	if !f.Has(key) {
		f.Fail("no %s", key)
		return 0
	}
	n, err := strconv.Atoi(string(f.members[key]))
	if err != nil || n < 1 {
		f.Fail("%s: want a positive whole number, found %.60s", key, f.members[key])
		return 0
	}
	return n
}

// SizeOr reads a positive whole number; otherwise is its value where it is absent.
func (f *ConfigFile) SizeOr(key string, otherwise int) int {
	if !f.Has(key) {
		return otherwise
	}
	return f.Size(key)
}

// Number reads a number; otherwise is its value where it is absent.
func (f *ConfigFile) Number(key string, otherwise float64) float64 {
	f.Decode(key, &otherwise, "a number")
	return otherwise
}

// Object reads an object within the object; nil where it is absent or wrong.
func (f *ConfigFile) Object(key string) *ConfigFile {
	if !f.Has(key) {
		return nil
	}
	o := &ConfigFile{name: f.name + ": " + key, members: make(map[string][]byte), seen: f.seen, err: f.err}
	if err := o.parse(f.members[key]); err != nil {
		o.Fail("%w", err)
		return nil
	}
	return o
}

// ReadText reads the language model within a larger model, from the object text_config, by the
// family of its model_type, or by defaultFamily where that is absent. Types, token ids and the
// like that the object does not state count as f states them beside it. A model of tiedFamily
// has a head of its own only if one of the two says so; others have their family's default.
func ReadText(f *ConfigFile, defaultFamily, tiedFamily string) (Design, error) {
	text := f.Object("text_config")
	if text == nil {
		f.Fail("no text_config, the language model within")
		return nil, f.Err()
	}
	f.textConfig = text // ParseConfig reads the rest from it
	for _, key := range append(slices.Clone(dtypeKeys), "tie_word_embeddings", "eos_token_id", "pad_token_id", "initializer_range", Quantized) {
		if f.Has(key) {
			text.Default(key, string(f.members[key]))
		}
	}
	text.Default("model_type", strconv.Quote(defaultFamily))
	if text.modelType() == tiedFamily {
		text.Default("tie_word_embeddings", "true")
	}
	return readDesign(text)
}

// Only refuses any value of key but the one that the Programs compute, which is
// given as JSON. An absent key is that value.
func (f *ConfigFile) Only(key, value string) {
	if v := f.members[key]; f.Has(key) && !sameScalar(string(v), value) {
		f.Fail("%s %.60s is not supported, only %s", key, v, value)
	}
}

// OnlyClass refuses a model whose architectures, the names of classes in
// transformers, do not include class. They may be absent.
func (f *ConfigFile) OnlyClass(class string) {
	if names := f.classes(); names != nil && !slices.Contains(names, class) && !slices.Contains(names, "FSDP"+class) {
		f.Fail("architectures %q is not supported, only %q: name a model of that class", names, class)
	}
}

func (f *ConfigFile) classes() (names []string) {
	f.Decode("architectures", &names, "a list of strings")
	return names
}

// JSON returns the member's text; nil where it is absent.
func (f *ConfigFile) JSON(key string) []byte { return f.members[key] }

// sameScalar reports whether two JSON scalars are the same; 0 and 0.0 are.
func sameScalar(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// modelType returns model_type or, if that is absent, the type in the name of the first
// class in architectures: "qwen2" of "Qwen2ForCausalLM".
func (f *ConfigFile) modelType() string {
	var kind string
	f.Decode("model_type", &kind, "a string")
	if names := f.classes(); kind == "" && len(names) > 0 {
		kind = strings.ToLower(strings.TrimSuffix(names[0], "ForCausalLM"))
	}
	if kind == "" {
		f.Fail("neither model_type nor architectures: they name the family of the model, of %s", knownFamilies())
	}
	return kind
}

// ids reads one token id or a list of them; nil where it is absent.
func (f *ConfigFile) ids(key string) []int32 {
	if !f.Has(key) {
		return nil
	}
	var one int32
	if strict.JSON(f.members[key], &one) == nil {
		return []int32{one}
	}
	ids := []int32{}
	f.Decode(key, &ids, "a token id or a list of token ids")
	return ids
}

// Quantized is the key that says how tensors of fewer bits were written.
const Quantized = "quantization_config"

// dtypeKeys name the type of the tensors, in transformers 5 and before it.
var dtypeKeys = []string{"dtype", "torch_dtype"}

// dtypeNames are PyTorch's names, as config.json has them. "auto" is the type of the file.
var dtypeNames = map[DType]string{F32: "float32", F16: "float16", BF16: "bfloat16", F64: "float64", Invalid: "auto"}

// dtype reads the type of the tensors; Invalid where it is absent.
func (f *ConfigFile) dtype() DType {
	for _, key := range dtypeKeys {
		if !f.Has(key) {
			continue
		}
		var name string
		f.Decode(key, &name, "a string")
		for d, known := range dtypeNames {
			if known == name {
				return d
			}
		}
		f.Fail("%s %q is not supported, only float32, float16, bfloat16 and float64", key, name)
	}
	return Invalid
}

// withDType returns the text of config.json with the tensors' type, if stated, replaced by d, since transformers
// loads a model in the stated type, and without quantization_config, also in text_config. All else keeps its bytes.
func withDType(config []byte, d DType) ([]byte, error) {
	var out []byte
	done := 0 // how many bytes of config are in out or left out
	err := ordered.EachMember(config, func(key string, value []byte, at int) error {
		switch {
		case slices.Contains(dtypeKeys, key):
			out = append(out, config[done:at]...)
			out = strconv.AppendQuote(out, dtypeNames[d])
			done = at + len(value)
		case key == Quantized:
			before := bytes.TrimRight(config[done:bytes.LastIndexByte(config[:at], ':')], " \t\r\n")  // up to the colon
			before = bytes.TrimRight(bytes.TrimSuffix(before, []byte(strconv.Quote(key))), " \t\r\n") // up to the key
			rest := bytes.TrimLeft(config[at+len(value):], " \t\r\n")
			done = at + len(value)
			if !bytes.HasSuffix(before, []byte(",")) && bytes.HasPrefix(rest, []byte(",")) {
				done = len(config) - len(rest) + 1 // it was the first of several
			}
			out = append(out, bytes.TrimSuffix(before, []byte(","))...) // a comma before the member goes with it
		case key == "text_config" && bytes.HasPrefix(value, []byte("{")):
			text, err := withDType(value, d)
			out, done = append(append(out, config[done:at]...), text...), at+len(value)
			return err
		}
		return nil
	})
	return append(out, config[done:]...), err
}
