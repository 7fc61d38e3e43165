package export

import (
	"slices"

	"onering/models"
)

// A manifest describes an export.
type manifest struct {
	Version int               `json:"version"`
	DType   string            `json:"dtype"` // the type in which the layers compute
	Device  string            `json:"device"`
	Shape   map[string]any    `json:"shape"` // sizes by the keys of config.json, where it has them
	Letters map[string]string `json:"letters"`
	// LayerPrefix comes before the names of layer 0's weights. The layer graphs
	// name their weights without it, so that one graph serves all layers.
	LayerPrefix string `json:"layer_prefix"`
	// Weights are stacked along the first dimension of the tensors of the model folder.
	Weights []models.Fused `json:"weights"`
	Adapter *adapter       `json:"adapter,omitempty"`
	Graphs  []graphFile    `json:"graphs"`
}

// An adapter describes the products that graphs compute beside the model: y = W x + scale B (A x).
type adapter struct {
	Rank    int      `json:"rank"`
	Scale   float64  `json:"scale"`
	Modules []string `json:"modules"`
	// Prefix comes before the names of the adapter's tensors. The graphs leave it out.
	Prefix  string         `json:"prefix"`
	Weights []models.Fused `json:"weights"`
}

// A graphFile is a Program and the file that it is written to.
type graphFile struct {
	File    string            `json:"file"`
	Program string            `json:"program"`
	Doc     string            `json:"doc"`
	Inputs  []port            `json:"inputs"`
	Outputs []port            `json:"outputs"`
	Alias   map[string]string `json:"alias,omitempty"`   // from an output to the input onto which it may be bound
	Options map[string]string `json:"options,omitempty"` // session configuration entries
	onnx    []byte
}

// A port is an input or output of a graph, with its meaning.
type port struct {
	models.Port
	// Role is weight, gradient, kept, keys, values, window or memory; "" for an input that changes with each run.
	Role  string `json:"role,omitempty"`
	Of    string `json:"of,omitempty"`    // the weight to which a gradient belongs
	Layer *int   `json:"layer,omitempty"` // the layer of a part of the cache
	Doc   string `json:"doc"`
}

var roles = map[models.Role]string{
	models.Parameter: "weight", models.Gradient: "gradient", models.Kept: "kept", models.Keys: "keys", models.Values: "values",
	models.Window: "window", models.Memory: "memory",
}

// portsOf describes the inputs or the outputs of a Program.
func portsOf(p models.Program, list []models.Port, output bool) (out []port, err error) {
	for _, x := range list {
		d := port{Port: x, Role: roles[x.Role], Of: x.Of}
		if x.Role >= models.Keys { // a part of the cache
			d.Layer = &x.Layer
		}
		if d.Doc, err = describe(p.Name, x, output); err != nil {
			return nil, err
		}
		if onto := p.Alias[x.Name]; output && onto != "" {
			d.Doc += "; may be bound onto the memory of " + onto
		}
		out = append(out, d)
	}
	return out, nil
}

// letters explains the letters in the shapes of inputs and outputs.
var letters = map[string]string{
	"B": "rows in a batch", "T": "places of a row", "N": "packed tokens", "S": "cached length", "P": "positions of the rotary tables",
	"R": "rows that predict a response token", "v": "rows of a slice of the vocabulary",
	"m": "sums of rows in rows.pair", "k": "candidates of a row",
	"n": "elements of a slice of all weights in the graphs of the optimizer, rows that are looked up or added in rows",
	"M": "rows of a matrix; of copies, the packed tokens that rows share", "J": "the most rows that share a token",
	"K": "tokens of all sets of a slice, and one more",
}

// newManifest describes the graphs of an architecture. Where rope_frequencies do not say all about the layers, it adds
// no_rope_layers, if some layers do not turn, or else layer_kinds and kind_of_layers.
func newManifest(arch models.Architecture, graphs []graphFile, o Options) manifest {
	g := arch.Geometry()
	m := manifest{
		Version: 1, DType: g.Compute.String(), Device: o.Device, Letters: letters, LayerPrefix: arch.LayerPrefix(0), Graphs: graphs,
		Weights: arch.Layout().Fused(),
		Shape: map[string]any{
			"num_hidden_layers": g.Layers, "hidden_size": g.Hidden, "intermediate_size": g.FFN, "vocab_size": g.Vocab,
			"num_attention_heads": g.Heads, "num_key_value_heads": g.KVHeads, "head_dim": g.HeadDim,
			"max_position_embeddings": g.MaxPositions, "rope_theta": g.RopeTheta, "cache_width": g.CacheWidth,
			"embedding": g.Embedding, "head": g.Head, "norm": g.Norm,
			// The inputs cos and sin hold angles of position*frequency, which theta does not
			// determine alone.
			"rope_frequencies": g.Kinds[0].Frequencies,
		},
	}
	turned, kindOf := make([]int, g.Layers), make([]int, g.Layers)
	for i := range g.Layers {
		if kindOf[i] = g.Kind(i); g.Kinds[kindOf[i]].Turns() {
			turned[i] = 1
		}
	}
	if slices.Contains(turned, 0) { // the layer graphs of these layers get angles of 0
		m.Shape["no_rope_layers"] = turned // as in SmolLM3's config.json: 1 for a layer with rotary embedding
	} else if k := g.Kinds[0]; len(g.Kinds) > 1 || k.Window > 0 || k.Scale != 1 {
		m.Shape["layer_kinds"], m.Shape["kind_of_layers"] = g.Kinds, kindOf
	}
	if l := arch.AdapterLayout(); l != nil {
		m.Adapter = &adapter{Rank: o.Adapter.Rank, Scale: o.Adapter.Scale, Modules: o.Adapter.Modules, Prefix: models.AdapterPrefix, Weights: l.Fused()}
	}
	return m
}
