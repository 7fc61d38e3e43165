package qwen2

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"onering/models"
)

// A Config is the shape of one Qwen2 model, as config.json and
// generation_config.json of a Hugging Face folder state it.
type Config struct {
	HiddenSize   int // D, hidden_size
	Layers       int // L, num_hidden_layers
	Heads        int // H, num_attention_heads
	KVHeads      int // G, num_key_value_heads
	HeadDim      int // K, head_dim, or D/H where it is not stated
	FFN          int // F, intermediate_size
	Vocab        int // V, vocab_size
	MaxPositions int // max_position_embeddings
	RopeTheta    float64
	RMSEps       float64
	Tied         bool // tie_word_embeddings: no lm_head.weight
	// EOS are the ids that end a response: generation_config.json's
	// eos_token_id, else config.json's. It may be empty.
	EOS []int32
	// Pad is pad_token_id, nil if there is none. Init zeroes its embedding.
	Pad *int32
	// InitRange is initializer_range, the standard deviation Init draws with.
	InitRange float64
	// DType is dtype or torch_dtype; Invalid if neither is stated.
	DType models.DType
	// Compute is what graphs compute in: F32 (also Invalid), BF16 or F16. No
	// file states it; see precision.go for what stays float32.
	Compute models.DType
	// CUDA builds Programs for ONNX Runtime's CUDA provider: of operators that
	// it has kernels for alone. No file states it. Those of 16 bits always are,
	// whatever it says; see cuda.go for which ports it changes.
	CUDA bool

	// The files' text, so that Save writes the same keys in the same order.
	config, generation []byte
}

const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
)

// ReadConfig reads a model folder's config.json, or the file that path names,
// and the generation_config.json beside it if there is one.
func ReadConfig(path string) (Config, error) {
	named := path
	if info, err := os.Stat(path); err != nil {
		return Config{}, fmt.Errorf("qwen2: model: %w; name a folder with config.json and *.safetensors, such as onering init makes, or ORG/NAME on a hub", err)
	} else if info.IsDir() {
		path = filepath.Join(path, configFile)
	}
	config, err := readSmall(path)
	if err != nil {
		return Config{}, fmt.Errorf("qwen2: a model folder needs its config: %w; fetch the folder whole", err)
	}
	beside := filepath.Join(filepath.Dir(path), generationFile)
	generation, err := readSmall(beside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("qwen2: %w", err)
	}
	c, err := ParseConfig(config, generation)
	if err != nil {
		return Config{}, fmt.Errorf("%w (in %s)", err, named)
	}
	return c, nil
}

// readSmall reads a regular file of at most 1 MB.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > 1<<20:
		return nil, fmt.Errorf("%s has %d bytes, too many for a config", path, info.Size())
	}
	return os.ReadFile(path)
}

// ParseConfig reads the text of config.json in either style: rope_theta and
// torch_dtype at the top, as published Qwen2.5 models have it, or
// rope_parameters and dtype, as transformers 5 writes. generation is the text
// of generation_config.json or nil. What the graphs do not compute
// (sliding windows, scaled rotary embeddings, quantized weights ...) is an error
// that names the key.
func ParseConfig(config, generation []byte) (Config, error) {
	c := Config{config: bytes.Clone(config), generation: bytes.Clone(generation)}
	o, err := parseObject(configFile, config)
	if err != nil {
		return Config{}, err
	}
	c.checkArchitecture(o)
	c.Vocab = o.size("vocab_size")
	c.HiddenSize = o.size("hidden_size")
	c.FFN = o.size("intermediate_size")
	c.Layers = o.size("num_hidden_layers")
	c.Heads = o.size("num_attention_heads")
	if o.null("num_key_value_heads") {
		c.KVHeads = c.Heads
	} else {
		c.KVHeads = o.size("num_key_value_heads")
	}
	if o.has("head_dim") {
		c.HeadDim = o.size("head_dim")
	} else if o.err == nil && c.HiddenSize%c.Heads != 0 {
		o.fail("hidden_size (%d) must be divisible by num_attention_heads (%d)", c.HiddenSize, c.Heads)
	} else if o.err == nil {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	// The defaults are those of transformers' Qwen2Config.
	c.MaxPositions = 32768
	if o.has("max_position_embeddings") {
		c.MaxPositions = o.size("max_position_embeddings")
	}
	c.RMSEps = o.number("rms_norm_eps", 1e-6)
	c.InitRange = o.number("initializer_range", 0.02)
	o.decode("tie_word_embeddings", &c.Tied, "true or false")
	c.RopeTheta = ropeTheta(o)
	c.DType = o.dtype()
	if pad := o.ids("pad_token_id"); len(pad) == 1 {
		c.Pad = &pad[0]
	}
	c.EOS = o.ids("eos_token_id")
	if o.err != nil {
		return Config{}, o.err
	}
	if generation != nil {
		g, err := parseObject(generationFile, generation)
		if err != nil {
			return Config{}, err
		}
		if eos := g.ids("eos_token_id"); eos != nil {
			c.EOS = eos
		}
		if g.err != nil {
			return Config{}, g.err
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// checkArchitecture refuses other models, and what of Qwen2 is not built here.
func (c *Config) checkArchitecture(o *object) {
	var kind string
	var names []string
	o.decode("model_type", &kind, "a string")
	o.decode("architectures", &names, "a list of strings")
	switch {
	case o.err != nil:
		return
	case kind == "" && names == nil:
		o.fail(`neither model_type nor architectures; want "qwen2" and ["Qwen2ForCausalLM"]`)
	case kind != "" && kind != "qwen2":
		o.fail(`model_type %q is not supported, only "qwen2"`, kind)
	case names != nil && !slices.Contains(names, "Qwen2ForCausalLM"):
		o.fail(`architectures %q is not supported, only "Qwen2ForCausalLM"`, names)
	}
	// Of these keys only one value is what the graphs compute.
	for _, want := range []struct{ key, value string }{
		{"hidden_act", `"silu"`},
		{"use_sliding_window", "false"},
		{"use_mrope", "false"},
		{"attention_dropout", "0"},
		{"partial_rotary_factor", "1"},
		{"quantization_config", "null"},
	} {
		if v, ok := o.values[want.key]; ok && !o.null(want.key) && !sameScalar(v, want.value) {
			o.fail("%s %.60s is not supported, only %s", want.key, v, want.value)
		}
	}
	var layerTypes []string
	o.decode("layer_types", &layerTypes, "a list of strings")
	for i, t := range layerTypes {
		if t != "full_attention" {
			o.fail(`layer_types: layer %d is %q, which is not supported, only "full_attention"`, i, t)
		}
	}
	if layers := o.values["num_hidden_layers"]; layerTypes != nil && string(layers) != strconv.Itoa(len(layerTypes)) {
		o.fail("layer_types names %d layers, num_hidden_layers is %s", len(layerTypes), layers)
	}
}

// sameScalar compares JSON scalars; 0 and 0.0 are the same.
func sameScalar(a []byte, b string) bool {
	if string(a) == b {
		return true
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// ropeTheta looks where transformers looks, in its order: rope_scaling or
// rope_parameters, rope_theta, the default.
func ropeTheta(o *object) float64 {
	theta := o.number("rope_theta", 10000)
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		if !o.has(key) || o.err != nil {
			continue
		}
		r, err := parseObject(o.file+": "+key, o.values[key])
		if err != nil {
			o.err = err
			return 0
		}
		// The type says more than what goes with it.
		for _, name := range append([]string{"rope_type", "type"}, slices.Sorted(maps.Keys(r.values))...) {
			value, there := r.values[name]
			switch {
			case !there:
			case r.null(name), name == "rope_theta":
			case (name == "rope_type" || name == "type") && string(value) == `"default"`:
			case name == "partial_rotary_factor" && sameScalar(value, "1"):
			default:
				o.fail("%s: %s %.60s is not supported, only the default rotary embedding", key, name, value)
			}
		}
		theta = r.number("rope_theta", theta)
		if r.err != nil && o.err == nil {
			o.err = r.err
		}
	}
	return theta
}

// Validate reports what is impossible in c, by the keys' names in config.json.
// ParseConfig's configs have passed it; one made by hand should.
func (c Config) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("qwen2: %s: %w", configFile, fmt.Errorf(format, args...))
	}
	for _, s := range []struct {
		key        string
		value, max int
	}{
		{"vocab_size", c.Vocab, maxSize}, {"hidden_size", c.HiddenSize, maxSize}, {"intermediate_size", c.FFN, maxSize},
		{"num_hidden_layers", c.Layers, 1 << 12}, {"num_attention_heads", c.Heads, 1 << 12}, {"num_key_value_heads", c.KVHeads, 1 << 12},
		{"head_dim", c.HeadDim, 1 << 12}, {"max_position_embeddings", c.MaxPositions, 1 << 30},
	} {
		if s.value < 1 || s.value > s.max {
			return fail("%s (%d) must be from 1 to %d", s.key, s.value, s.max)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fail("num_attention_heads (%d) must be divisible by num_key_value_heads (%d)", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return fail("head_dim (%d) must be even: the rotary embedding turns pairs", c.HeadDim)
	case !(c.RopeTheta > 0) || math.IsInf(c.RopeTheta, 0):
		return fail("rope_theta (%g) must be positive", c.RopeTheta)
	case !(c.RMSEps > 0) || c.RMSEps > 1:
		return fail("rms_norm_eps (%g) must be positive and at most 1", c.RMSEps)
	case !(c.InitRange >= 0) || math.IsInf(c.InitRange, 0):
		return fail("initializer_range (%g) must not be negative", c.InitRange)
	}
	for _, id := range c.EOS {
		if id < 0 || int(id) >= c.Vocab {
			return fail("eos_token_id (%d) is not in the vocabulary of %d (vocab_size)", id, c.Vocab)
		}
	}
	if c.Pad != nil && (*c.Pad < 0 || int(*c.Pad) >= c.Vocab) {
		return fail("pad_token_id (%d) is not in the vocabulary of %d (vocab_size)", *c.Pad, c.Vocab)
	}
	if _, err := models.NewLayout(c.fused()); err != nil {
		return fail("%w", err)
	}
	return c.checkCompute()
}

// maxSize bounds every width, so that products of two cannot overflow.
const maxSize = 1 << 24

// text returns config.json with its dtype, where it states one, set to d:
// transformers loads a model in the type that the config names.
func (c Config) text(d models.DType) ([]byte, error) {
	var out []byte
	done := 0
	err := models.EachMember(c.config, func(key string, value []byte, at int) error {
		if key == "dtype" || key == "torch_dtype" {
			out = append(out, c.config[done:at]...)
			out = strconv.AppendQuote(out, dtypeNames[d])
			done = at + len(value)
		}
		return nil
	})
	return append(out, c.config[done:]...), err
}

// dtypeNames are PyTorch's names, as config.json has them.
var dtypeNames = map[models.DType]string{
	models.F32: "float32", models.F16: "float16", models.BF16: "bfloat16", models.F64: "float64",
}

// An object is a JSON object of a file; its methods read members by key and
// keep the first error. Absent and null members are the same to all but null.
type object struct {
	file   string
	values map[string][]byte
	err    error
}

func parseObject(file string, text []byte) (*object, error) {
	o := &object{file: file, values: make(map[string][]byte)}
	err := models.EachMember(text, func(key string, value []byte, _ int) error {
		o.values[key] = value
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("qwen2: %s: %w", file, err)
	}
	return o, nil
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("qwen2: %s: %w", o.file, fmt.Errorf(format, args...))
	}
}

func (o *object) null(key string) bool { return string(o.values[key]) == "null" }

func (o *object) has(key string) bool { return o.values[key] != nil && !o.null(key) }

// decode reads the member into v, which stays as it is where there is none.
func (o *object) decode(key string, v any, want string) {
	if o.has(key) && json.Unmarshal(o.values[key], v) != nil {
		o.fail("%s: want %s, found %.60s", key, want, o.values[key])
	}
}

// size reads a positive whole number that must be there.
func (o *object) size(key string) int {
	if !o.has(key) {
		o.fail("no %s", key)
		return 0
	}
	n, err := strconv.Atoi(string(o.values[key]))
	if err != nil || n < 1 {
		o.fail("%s: want a positive whole number, found %.60s", key, o.values[key])
		return 0
	}
	return n
}

func (o *object) number(key string, otherwise float64) float64 {
	o.decode(key, &otherwise, "a number")
	return otherwise
}

// ids reads one token id or a list of them; nil if there is none.
func (o *object) ids(key string) []int32 {
	if !o.has(key) {
		return nil
	}
	var one int32
	if json.Unmarshal(o.values[key], &one) == nil {
		return []int32{one}
	}
	ids := []int32{}
	o.decode(key, &ids, "a token id or a list of token ids")
	return ids
}

func (o *object) dtype() models.DType {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if !o.has(key) {
			continue
		}
		var name string
		o.decode(key, &name, "a string")
		for d, n := range dtypeNames {
			if n == name {
				return d
			}
		}
		o.fail("%s %q is not supported, only float32, float16, bfloat16 and float64", key, name)
	}
	return models.Invalid
}
