package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"onering/models"
)

// A Learner computes log-probs and their gradients layer by layer, with one session
// for all layers. Backward adds to Gradients.
type Learner struct {
	Gradients *models.Weights // nil with ScoreOnly

	env       *Env
	ring      *Ring
	geometry  models.Geometry
	options   LearnerOptions
	gradients *arena // holds Gradients; nil with ScoreOnly
	oneBlock  bool   // whether one kernel computes attention without storing scores, so that one block has all queries
	rows      rowPrograms
	embedding *Value // as passes read it
	layers    map[layerForm]*layerSessions
	norm      *normSessions
	head      *headSessions
	tables    tables
	spare     spare
	back      backward
}

// LearnerOptions tune the memory and speed of a Learner. They change results by rounding only.
type LearnerOptions struct {
	// StashBytes is how many bytes the passes that are kept may store together for their
	// backward passes: as many layers as fit store everything, and then the head its logits.
	// Each stores the inputs of its layers in any case. It changes no bits.
	StashBytes int
	// HeadRows is how many rows of the vocabulary are multiplied at once; 0 means 8176.
	HeadRows int
	// BlockTokens is the number of queries in a block of attention, about. Shorter rows are one block, and all rows
	// are if the device has a kernel that stores no scores. 0 means 512.
	BlockTokens int
	// EntropyGradient lets Backward take dL/dentropy.
	EntropyGradient bool
	// Squares has passes that are not kept sum the squares of probabilities.
	Squares bool
	// ScoreOnly leaves out everything that only Backward needs, such as the gradients.
	ScoreOnly bool
	// Base leaves the ring's adapter out: log-probs are those of the weights alone. Such a Learner only scores.
	Base bool
	// Final, if not nil, is called during Backward with the first element of Gradients from which on this Backward
	// adds nothing more: after the head, after each layer from the last to the first, and at the end. On a device the
	// work may not be done yet; a download waits for it.
	Final func(first int)
	// Unshared computes the prefix of each sequence, even if several neighbouring sequences share it.
	Unshared bool
}

const (
	// Not a power of two: otherwise the rows of the logits would map to the same places
	// of the CPU's cache, and products with them would wait for memory.
	defaultHeadRows    = 8176
	defaultBlockTokens = 512
)

// backward has what only backward passes need.
type backward struct {
	dx        [2]buffer // the gradients of a layer's output and input, in turn
	failed    error     // the error of ZeroGradients, which Backward returns
	finalFrom []int     // the argument of Final after layer i; after the head for i = Layers
}

// A layerForm has what the two Programs of a layer depend on.
type layerForm struct {
	programKind int  // the first kind of layers that has the Programs
	blocks      int  // number of blocks of queries
	full        bool // forward stores what backward reads
}

// layerSessions are the bindings of layers to the two layer Programs of their kind.
type layerSessions struct {
	forward, backward []*Binding    // bindings by layer, nil for layers of other kinds; backward is empty with ScoreOnly
	stash             []models.Port // outputs of forward that backward reads
}

// NewLearner moves the ring to e, makes an arena for the gradients and loads the Programs.
func (e *Env) NewLearner(r *Ring, o LearnerOptions) (*Learner, error) {
	o.HeadRows, o.BlockTokens = cmp.Or(max(0, o.HeadRows), defaultHeadRows), cmp.Or(max(0, o.BlockTokens), defaultBlockTokens)
	if err := r.moveTo(e); err != nil {
		return nil, err
	}
	if o.ScoreOnly = o.ScoreOnly || o.Base; o.ScoreOnly { // the weights without the ring's adapter are only scored
		o.StashBytes = 0 // no activations are stored
	}
	l := &Learner{env: e, ring: r, geometry: r.Arch.Geometry(), options: o, layers: make(map[layerForm]*layerSessions),
		tables: newTables(e, r.Arch.Geometry()), back: backward{dx: [2]buffer{e.buffer(models.F32), e.buffer(models.F32)}}}
	if err := l.open(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// open makes the memory of the gradients, unless it only scores, and loads all Programs except those of the
// layers, which Forward loads.
func (l *Learner) open() (err error) {
	if !l.options.ScoreOnly {
		if l.Gradients, err = models.NewWeights(l.ring.Trained().Layout); err != nil {
			return err
		}
		if l.gradients, err = l.env.newZeroArena(l.Gradients, l.env.memory, []piece{{0, len(l.Gradients.Data)}}); err == nil {
			err = l.gradients.makeValues()
		}
		if err != nil {
			return err
		}
		l.back.finalFrom = finalElements(l)
	}
	if k := l.env.memory.Kernels; k != nil {
		attends := func(k models.Kind) bool { return k.Mixer == models.Attention } // layers without it have no blocks; the first kind with it decides
		const full, blocks = false, 1
		forward, _, err := l.arch().Layer(max(0, slices.IndexFunc(l.geometry.Kinds, attends)), full, blocks)
		if err != nil {
			return err
		}
		l.oneBlock = k.Whole(forward) // one kernel then computes attention without storing scores
	}
	if err := l.openRows(); err != nil {
		return err
	}
	if err := l.openNorm(); err != nil {
		return err
	}
	return l.openHead()
}

// arch returns the ring's Architecture, or with Base that of its weights alone.
func (l *Learner) arch() models.Architecture {
	if l.options.Base {
		return l.ring.base
	}
	return l.ring.Arch
}

// trainsWeights reports whether Backward adds to gradients of the weights, not to those of an adapter.
func (l *Learner) trainsWeights() bool { return !l.options.ScoreOnly && l.ring.Adapter == nil }

// bindWeights binds the weights and, as inputs and outputs with the same memory, the
// gradients that the Program adds to.
func (l *Learner) bindWeights(b *Binding, prefix string) error {
	if err := l.ring.bind(b, prefix); err != nil {
		return err
	}
	return b.bindAll(models.Gradient, func(p models.Port) (*Value, error) {
		v := l.gradients.value(prefix+p.Of, models.F32)
		if v == nil {
			return nil, fmt.Errorf("runtime: program %q updates the gradient of %q, which the model lacks", b.s.name, prefix+p.Of)
		}
		return v, nil
	})
}

// sessions returns the layer Programs of a form. It loads them when they are first asked for.
func (l *Learner) sessions(f layerForm) (*layerSessions, error) {
	if s := l.layers[f]; s != nil {
		return s, nil
	}
	forward, backward, err := l.arch().Layer(f.programKind, f.full, f.blocks)
	if err != nil {
		return nil, err
	}
	s := &layerSessions{}
	for _, p := range forward.Outputs {
		if p.Role == models.Kept {
			s.stash = append(s.stash, p)
		}
	}
	if s.forward, err = l.bindLayers(f.programKind, forward); err != nil {
		return nil, err
	}
	if !l.options.ScoreOnly {
		if s.backward, err = l.bindLayers(f.programKind, backward); err != nil {
			closeSessions(firstOf(s.forward))
			return nil, err
		}
	}
	l.layers[f] = s
	return s, nil
}

// firstOf returns the first binding that there is.
func firstOf(layers []*Binding) *Binding {
	i := slices.IndexFunc(layers, func(b *Binding) bool { return b != nil })
	if i < 0 {
		return nil
	}
	return layers[i]
}

// bindLayers loads a layer Program and binds it to the weights of each layer that has it; layers with other Programs
// get nil. All bindings are of one session, which the Learner closes.
func (l *Learner) bindLayers(programKind int, p models.Program) (layers []*Binding, err error) {
	session, err := l.env.Load(p)
	if err != nil {
		return nil, err
	}
	for i := range l.geometry.Layers {
		if l.geometry.Kinds[l.geometry.Kind(i)].Program != programKind {
			layers = append(layers, nil)
			continue
		}
		b, err := session.NewBinding()
		if err == nil {
			err = l.bindWeights(b, l.arch().LayerPrefix(i))
		}
		if err != nil {
			session.Close()
			return nil, err
		}
		layers = append(layers, b)
	}
	return layers, nil
}

// finalElements returns the arguments of Final: element i for the call after layer i, and the last one for that after the
// head, with which Backward begins. Each is the end of the last tensor whose gradient is not final by then.
func finalElements(l *Learner) (first []int) {
	first = make([]int, l.geometry.Layers+1)
	for _, name := range l.Gradients.Layout.Names() {
		p, _ := l.Gradients.Layout.Find(name)
		openFrom := len(first) // from this call on it is not final yet; the head's and the norm's are final after the head
		if name == l.geometry.Embedding {
			openFrom = 0 // final only at the end
		}
		for i := range l.geometry.Layers {
			if strings.HasPrefix(strings.TrimPrefix(name, models.AdapterPrefix), l.arch().LayerPrefix(i)) {
				openFrom = i + 1 // final after its own layer
			}
		}
		for i := openFrom; i < len(first); i++ {
			first[i] = max(first[i], p.Offset+p.Size)
		}
	}
	return first
}

// reportFinal reports to Final that layer i is done, or the head if i is the number of layers.
func (l *Learner) reportFinal(i int) {
	if l.options.Final != nil {
		l.options.Final(l.back.finalFrom[i])
	}
}

// ZeroGradients clears Gradients. If it fails, the next Backward returns the error.
func (l *Learner) ZeroGradients() { l.back.failed = l.gradients.zero() }

// Release frees the buffers that later passes would reuse, and will allocate again; not
// on a device, where freeing waits.
func (l *Learner) Release() {
	if !l.env.memory.IsHost() {
		return
	}
	l.spare.close()
	l.spare = spare{stashBytes: l.spare.stashBytes}
}

// Close frees the sessions, the buffers and the gradients.
func (l *Learner) Close() {
	for _, s := range l.layers {
		closeSessions(firstOf(s.forward), firstOf(s.backward)) // all of forward are of one session, and so of backward
	}
	if l.norm != nil {
		l.norm.close()
	}
	if l.head != nil {
		l.head.close()
	}
	l.rows.close()
	l.spare.close()
	l.tables.close()
	closeBuffers(&l.back.dx[0], &l.back.dx[1])
	l.gradients.close() // the arena, which may be nil
	if l.Gradients != nil {
		l.Gradients.Close() // the host's elements
	}
}
