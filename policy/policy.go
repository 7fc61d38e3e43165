// Package policy opens a model for programs that sample from it, score with it or train it: its
// folder, weights, ring (see runtime.Ring), tokenizer and adapters. It knows nothing of training.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"onering/data"
	"onering/internal/files"
	"onering/models"
	_ "onering/models/all" // the families and optimizers that a folder may name
	"onering/models/lora"
	"onering/runtime"
	"onering/tokenize"
)

// A Policy is a model folder opened for sampling and learning.
type Policy struct {
	Env *runtime.Env
	// Dir is the folder that the policy was read from.
	Dir     string
	Model   models.Model
	Weights *models.Weights
	Ring    *runtime.Ring
	// Tokenizer is nil if the folder has none; then only token ids can be used.
	Tokenizer *tokenize.Tokenizer
	// Adapter is the adapter that the Ring computes beside the Weights; nil for the model alone.
	Adapter *lora.Adapter

	base    *lora.Base         // see Base
	named   map[string]*Policy // see With
	compute models.Compute
	release []func() // functions that Close calls, the last one first
	missing string   // why there is no Tokenizer

	tokenizerOf string // the folder of an adapter with its own tokenizer
}

// Options say which model a Policy is and how it computes.
type Options struct {
	// Path is a Hugging Face folder, or data.Arithmetic for the embedded model.
	Path string
	// DType is the type to compute in, a value of model.dtype, and Base the type that
	// holds the layers, a value of lora.base_dtype. "" is float32.
	DType, Base string
	// Sampled says that the policy is only sampled with, so that Base holds its head, too. Beside
	// adapters it does not: they were trained with another head.
	Sampled bool
	// Adapter is the folder of an adapter beside the model, "" for the model alone. Named
	// are folders of further adapters by their names; see With.
	Adapter string
	Named   map[string]string
	// OwnEnv makes Close, and an Open that fails, close the Env.
	OwnEnv bool
	// Shared, if not nil, is the result of ShareBase for the model. Name is the model's
	// name in the files of a trained adapter.
	Shared *os.File
	Name   string
}

// Open reads a model for computing on the device of env. The weights are held once, in the
// Ring that sampler and learner share.
func Open(env *runtime.Env, o Options) (*Policy, error) {
	p := &Policy{Env: env, Dir: o.Path}
	if o.OwnEnv {
		p.release = append(p.release, func() { env.Close() })
	}
	if err := p.open(o); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// open loads the model, its tokenizer and its adapters, into p. After an error Close frees what was loaded.
func (p *Policy) open(o Options) error {
	compute, err := ComputeOn(p.Env, cmp.Or(o.DType, "float32"))
	if err != nil {
		return err
	}
	compute.Base = BaseTypes[cmp.Or(o.Base, "float32")] // the type that holds the layers
	// With Sampled the head is held in Base, too; but adapters were trained with another head, and shared weights have that.
	compute.Sampled = o.Sampled && o.Adapter == "" && len(o.Named) == 0 && o.Shared == nil
	load := models.LoadHeld
	if o.Shared != nil {
		load = func(dir string, compute models.Compute) (models.Model, *models.Weights, error) {
			return models.LoadShared(o.Shared, dir, sharedKey(o.Name, compute), compute)
		}
	}
	if err := p.load(o.Path, compute, load); err != nil {
		return err
	}
	if o.Adapter == "" && models.IsAdapter(p.Dir) {
		slog.Warn("the model's folder has an adapter beside it, which is not used: give the folder as --adapter, too, or take its adapter_config.json out",
			"model", p.Dir)
	}
	if o.Adapter != "" {
		if err := p.LoadAdapter(o.Adapter); err != nil {
			return fmt.Errorf("--adapter: %w", err)
		}
		if p.base == nil && o.Name != "" {
			p.base = baseOf(p.Weights, o.Name) // the adapter's folder does not state its base model
		}
	}
	p.named = make(map[string]*Policy) // by name, a policy that shares the weights; see With
	for _, name := range slices.Sorted(maps.Keys(o.Named)) {
		other, err := p.WithAdapter(o.Named[name])
		if err != nil {
			return fmt.Errorf("--adapter: %w", err)
		}
		p.named[name] = other
	}
	return nil
}

// A loader reads a model's folder for a way of computing.
type loader func(dir string, c models.Compute) (models.Model, *models.Weights, error)

// load reads the model and its tokenizer from a folder or a packed file, and makes the Ring. A folder without a
// tokenizer is fine: p.missing then says why there is none.
func (p *Policy) load(path string, compute models.Compute, load loader) error {
	dir, remove, err := Unpacked(path)
	if err != nil {
		return err
	}
	p.Dir, p.release = dir, append(p.release, remove) // what Close calls
	if p.Model, p.Weights, err = load(dir, compute); err != nil {
		return err
	}
	p.release = append(p.release, func() { p.Weights.Close() })
	if err = p.bind(compute); err != nil {
		return err
	}
	t, err := tokenize.Load(dir)
	if missing := tokenize.MissingError(""); errors.As(err, &missing) {
		p.missing = string(missing)
		return nil
	}
	if err == nil {
		p.Tokenizer, err = t, matchTokenizer(&p.Model, t, dir)
	}
	return err
}

// matchTokenizer refuses the tokenizer of the folder dir if it does not fit the model. The tokenizer's end-of-sequence
// token ends responses, too: a chat template often uses another one than generation_config.json.
func matchTokenizer(m *models.Model, t *tokenize.Tokenizer, dir string) error {
	if t.VocabSize() > m.Vocab {
		return fmt.Errorf("policy: %s: the tokenizer has %d tokens, the model's vocab_size is %d: they do not belong "+
			"together; copy the files of the model's own tokenizer into the folder", dir, t.VocabSize(), m.Vocab)
	}
	if id, ok := t.EOS(); ok && !slices.Contains(m.EOS, id) {
		m.EOS = append(slices.Clip(m.EOS), id)
	}
	return nil
}

// bind makes the Ring from the weights for a way of computing.
func (p *Policy) bind(compute models.Compute) error {
	arch, err := p.Model.Architecture(compute)
	if err != nil {
		return err
	}
	p.compute = compute
	p.Ring = runtime.NewRing(arch, p.Weights)
	return nil
}

// NewAdapter adds a new adapter to the model, as LoadAdapter adds an existing one. base
// is the model's name in the adapter's files.
func (p *Policy) NewAdapter(s lora.Settings, base string, seed uint64) error {
	a, err := lora.New(s, p.Model, base)
	if err != nil {
		return err
	}
	w, err := a.Init(s, seed)
	if err != nil {
		return err
	}
	p.base = baseOf(p.Weights, base)
	return p.adapt(a, w)
}

// baseOf describes the weights w, named name, as the base of an adapter.
func baseOf(w *models.Weights, name string) *lora.Base {
	return &lora.Base{Model: name, Digest: w.Checksum(), HeldAs: heldAs(w)}
}

// CheckBase refuses a checkpoint of an adapter to other weights than the policy's, and a checkpoint with an adapter if
// the policy has none or the reverse. base is the base that the checkpoint states.
func (p *Policy) CheckBase(base *lora.Base, dir string) error {
	switch {
	case base == nil && p.Adapter == nil:
		return nil
	case base == nil:
		return fmt.Errorf("policy: resume: %s holds a whole model, and lora.on says that an adapter is trained: set it back", dir)
	case p.Adapter == nil:
		return fmt.Errorf("policy: resume: %s holds an adapter of %s, and lora.on is not set: set it back", dir, base.Model)
	case base.Digest != p.base.Digest:
		return fmt.Errorf("policy: resume: %s holds an adapter of the weights %s (%s), and those of %s are %s: put the model back that the run began with",
			dir, base.Digest, base.Model, p.base.Model, p.base.Digest)
	}
	return nil
}

// LoadAdapter adds the adapter of a folder to the model, and takes the folder's tokenizer, if it has one. Decoders and
// learners that are made of the Ring later compute with it, and optimizer steps change only the adapter. Call it before
// making any. If the folder states the weights beside which the adapter was trained, LoadAdapter refuses others.
func (p *Policy) LoadAdapter(dir string) error {
	a, err := lora.Read(dir, p.Model)
	if err != nil {
		return err
	}
	if p.base, err = trainedBeside(p.Weights, p.Env, dir, p.Dir); err != nil {
		return err
	}
	t, err := adapterTokenizer(dir, p.Dir) // nil without an error: the model's stays
	if err == nil && t != nil {
		p.Tokenizer, p.tokenizerOf, err = t, dir, matchTokenizer(&p.Model, t, dir)
	}
	if err != nil {
		return err
	}
	w, err := a.Load(dir)
	if err != nil {
		return err
	}
	return p.adapt(a, w)
}

// digesting is held while weights that a device has, or halves, are fetched to the host for a checksum.
var digesting sync.Mutex

// trainedBeside returns the base that an adapter's folder dir states, the model weights beside which it was trained; nil
// if it states none. It refuses a base other than w, the weights of the folder model, which env may have on a device. If
// the base was held in another type, so that checksums cannot be compared, it only warns, and returns nil.
func trainedBeside(w *models.Weights, env *runtime.Env, dir, model string) (*lora.Base, error) {
	base, err := lora.ReadBase(dir)
	if err != nil || base == nil {
		return nil, err
	}
	digesting.Lock() // policies that share w may load adapters at the same time
	err = env.Download(w)
	is := w.Checksum()
	env.Forget(w) // only the host's copy of what a device has
	digesting.Unlock()
	switch {
	case err != nil:
		return nil, err
	case base.Digest == is:
		return base, nil
	case base.HeldAs != heldAs(w):
		slog.Warn("the adapter was trained beside a model held in another type, so it cannot be told whether this is that model", "adapter", dir, "model", base.Model,
			"trained_beside", cmp.Or(base.HeldAs, "float32"), "held_in", cmp.Or(heldAs(w), "float32"))
		return nil, nil
	}
	return nil, fmt.Errorf("policy: %s holds an adapter of the weights %s (%s), and those of %s are %s: name the model that the run began with",
		dir, base.Digest, base.Model, model, is)
}

// heldAs returns the type that holds the layers of w, in the form of Base.HeldAs.
func heldAs(w *models.Weights) string {
	for name, d := range BaseTypes {
		if n := w.Narrow; n != nil && n.DType == d {
			return name
		}
	}
	return ""
}

// With returns the policy with the adapter that Options.Named calls name, and p itself
// for "". The result shares p's weights; p closes it.
func (p *Policy) With(name string) (*Policy, error) {
	if name == "" {
		return p, nil
	}
	if other, ok := p.named[name]; ok {
		return other, nil
	}
	return nil, fmt.Errorf("there is no adapter %q, only %q: give it as --adapter %s=DIR", name, p.Names(), name)
}

// Names lists the names that With knows, sorted.
func (p *Policy) Names() []string { return slices.Sorted(maps.Keys(p.named)) }

// WithAdapter returns a policy of the same model with the adapter of a folder. It shares
// the weights, so close it before p.
func (p *Policy) WithAdapter(dir string) (*Policy, error) {
	if p.compute.Sampled && p.compute.Narrow() {
		return nil, fmt.Errorf("policy: %s: the model's head is held in fewer bits than adapters were trained with: open the model for adapters", dir)
	}
	other := *p
	other.Ring, other.Adapter, other.base, other.named, other.release = p.Ring.SharedWeights(), nil, nil, nil, nil
	if err := other.LoadAdapter(dir); err != nil {
		other.Close()
		return nil, err
	}
	return &other, nil
}

// adapt adds an adapter with the tensors w to the model, and lets Close close w.
func (p *Policy) adapt(a *lora.Adapter, w *models.Weights) error {
	compute := p.compute
	compute.Adapter = &a.Adapter
	arch, err := p.Model.Architecture(compute)
	if err == nil {
		err = p.Ring.Adapt(arch, w)
	}
	if err != nil {
		w.Close()
		return err
	}
	p.Adapter = a
	return nil
}

// CheckAdapter returns a description of an adapter in one folder to the model in another,
// and the error that LoadAdapter would return, except for errors in the tensors' values.
func CheckAdapter(model, adapter string) (lora.Settings, error) {
	m, err := ReadModel(model)
	if err != nil {
		return lora.Settings{}, err
	}
	a, err := lora.Read(adapter, m)
	if err != nil {
		return lora.Settings{}, err
	}
	return a.Settings(), a.Check(adapter)
}

// Base returns what checkpoints of an adapter state about its model; nil if the model's
// weights are trained, and for an adapter whose folder does not state it.
func (p *Policy) Base() *lora.Base { return p.base }

// Save writes w, the trained weights of the policy, to the folder dir: the model's with tensors of a type, or the
// adapter's. extra may be nil; else it writes more files into the folder before it appears.
func (p *Policy) Save(dir string, w *models.Weights, dtype models.DType, extra func(d *files.Draft) error) error {
	if p.Adapter != nil {
		rest := extra
		if p.tokenizerOf != "" {
			rest = func(d *files.Draft) error {
				if err := models.CopyTokenizer(d.WriteFile, p.tokenizerOf); err != nil || extra == nil {
					return err
				}
				return extra(d)
			}
		}
		return p.Adapter.Save(dir, w, rest)
	}
	return p.Model.Save(dir, w, models.SaveOptions{DType: dtype, Tokenizer: p.Dir, Extra: extra})
}

// Geometry returns the sizes of the model as its Programs compute it.
func (p *Policy) Geometry() models.Geometry { return p.Ring.Arch.Geometry() }

// Random makes a policy of a model's shape with random weights, in memory, held in fewer bits where compute says so. It has
// no folder and no tokenizer.
func Random(env *runtime.Env, model models.Model, compute models.Compute, seed uint64) (*Policy, error) {
	weights, err := model.Init(seed)
	if err != nil {
		return nil, err
	}
	p := &Policy{Env: env, Model: model, Weights: weights}
	p.release = append(p.release, func() { p.Weights.Close() })
	if compute.Narrow() {
		err = p.narrow(compute)
	}
	if err == nil {
		err = p.bind(compute)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// narrow replaces the policy's weights by weights with layers in 16 bits.
func (p *Policy) narrow(compute models.Compute) error {
	arch, err := p.Model.Architecture(compute)
	if err != nil {
		return err
	}
	from, to := arch.Held()
	w, err := p.Weights.Narrowed(compute.Base, from, to)
	if err != nil {
		return err
	}
	err = p.Weights.Close()
	p.Weights = w
	return err
}

// ReadModel reads the shape of a model without its weights.
func ReadModel(path string) (models.Model, error) {
	dir, remove, err := Unpacked(path)
	if err != nil {
		return models.Model{}, err
	}
	defer remove()
	return models.ReadConfig(dir)
}

// Unpacked returns the folder of a model. For the embedded model the folder is temporary:
// remove deletes it, and does nothing for others.
func Unpacked(path string) (dir string, remove func(), err error) {
	if path != data.Arithmetic {
		return path, func() {}, nil
	}
	if dir, err = unpack(data.ArithmeticModel()); err != nil {
		return "", nil, err
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// unpack writes an embedded folder to the disk.
func unpack(files fs.FS) (string, error) {
	dir, err := os.MkdirTemp("", "onering-")
	if err == nil {
		if err = os.CopyFS(dir, files); err == nil {
			return dir, nil
		}
		os.RemoveAll(dir)
	}
	return "", fmt.Errorf("policy: unpacking the embedded model: %w; set TMPDIR to a folder that can be written", err)
}

// NeedTokenizer returns an error if the folder has no tokenizer.
func (p *Policy) NeedTokenizer() error {
	if p.Tokenizer == nil {
		return fmt.Errorf("policy: %s has no tokenizer, and text needs one: add it, or give ids (there is %s)", p.Dir, p.missing)
	}
	return nil
}

// Prompter makes prompts for the policy in a template. It needs a tokenizer and, for the
// tokenizer's chat template, one that has such a template.
func (p *Policy) Prompter(template tokenize.Template) (*data.Prompter, error) {
	if err := p.NeedTokenizer(); err != nil {
		return nil, err
	}
	prompter, err := data.NewPrompter(p.Tokenizer, template)
	if err != nil {
		return nil, fmt.Errorf("policy: template \"chat\" with the tokenizer of %s: %w", p.Dir, err)
	}
	return prompter, nil
}

// MaxTokens returns how many tokens of prompt and response a sequence may have:
// want, or as many as the model has positions.
func (p *Policy) MaxTokens(want int) int {
	if m := p.Model.MaxPositions; m > 0 {
		return min(want, m)
	}
	return want
}

// Fingerprint returns a checksum over all weights, including the adapter's.
func (p *Policy) Fingerprint() string {
	text := p.Weights.Checksum() // the ring has not moved yet
	if p.Adapter != nil {
		text += " with adapter " + p.Ring.Adapter.Checksum()
	}
	return text
}

// Close frees the weights, and the policies that With returns.
func (p *Policy) Close() {
	// Named adapters are closed before p's own adapter, and the weights last.
	for _, other := range p.named {
		other.Close()
	}
	if p.Ring != nil {
		p.Ring.Close()
		if p.Ring.Adapter != nil {
			p.Ring.Adapter.Close()
		}
	}
	for _, f := range slices.Backward(p.release) {
		f()
	}
}
