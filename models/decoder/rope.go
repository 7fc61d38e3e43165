package decoder

import (
	"math"
	"slices"

	"onering/models"
)

// A rope is the rotary embedding as a config.json states it.
type rope struct {
	theta  float64
	llama3 *llama3 // nil without scaling
}

// readRope looks where transformers looks, in its order: rope_scaling, else
// rope_parameters; if neither has a base, it is rope_theta, else theta. An
// original_max_position_embeddings outside of the object overrides one in it.
func readRope(c *models.ConfigFile, theta float64) rope {
	stated := rope{theta: c.Number("rope_theta", theta)}
	found := stated
	for _, key := range []string{"rope_parameters", "rope_scaling"} { // if both exist, the second counts
		if r := c.Object(key); r != nil && len(r.Keys()) > 0 {
			found = stated.read(r)
		}
	}
	if found.llama3 != nil {
		if found.llama3.original = c.Number("original_max_position_embeddings", found.llama3.original); !(found.llama3.original >= 1) {
			c.Fail("original_max_position_embeddings (%g) must be at least 1", found.llama3.original)
		}
	}
	return found
}

// read returns the rotary embedding of one object. Members that would change the
// computation in another way are errors.
func (s rope) read(r *models.ConfigFile) rope {
	typeKey := "rope_type"
	if !r.Has(typeKey) {
		typeKey = "type"
	}
	kind := "default"
	r.Decode(typeKey, &kind, "a string")
	known := []string{"rope_type", "type", "rope_theta", "partial_rotary_factor"}
	switch kind {
	case "default":
	case "llama3":
		known = append(known, llama3Keys...)
	default:
		r.Fail(`%s %q is not supported, only the default rotary embedding and "llama3"`, typeKey, kind)
	}
	for _, key := range r.Keys() {
		if r.Has(key) && !slices.Contains(known, key) {
			r.Fail("%s %.60s is not supported with %q rotary embeddings", key, r.JSON(key), kind)
		}
	}
	r.Only("partial_rotary_factor", "1")
	s.theta = r.Number("rope_theta", s.theta)
	if kind == "llama3" {
		s.llama3 = readLlama3(r)
	}
	return s
}

// llama3Keys are the members that rope_type "llama3" needs.
var llama3Keys = []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}

// A llama3 stretches the slow turns of a rotary embedding, as Llama 3.1 and later do, so
// that more positions fit than the model saw at first. A turn that takes more than
// original/low positions becomes factor times slower, a turn that takes fewer than
// original/high is unchanged, and the others are blended.
type llama3 struct{ factor, low, high, original float64 }

func readLlama3(r *models.ConfigFile) *llama3 {
	var values [4]float64
	for i, key := range llama3Keys {
		if !r.Has(key) {
			r.Fail(`no %s, which rope_type "llama3" needs`, key)
		}
		values[i] = r.Number(key, 0)
	}
	l := &llama3{values[0], values[1], values[2], values[3]}
	switch {
	case r.Err() != nil:
	case !(l.factor >= 1):
		r.Fail("factor (%g) must be at least 1", l.factor)
	case !(l.low > 0), !(l.high > l.low):
		r.Fail("low_freq_factor (%g) must be positive and below high_freq_factor (%g)", l.low, l.high)
	case !(l.original >= 1):
		r.Fail("original_max_position_embeddings (%g) must be at least 1", l.original)
	}
	return l
}

// frequencies returns the angles by which each position turns the pairs of a
// head, in float32 as transformers has them.
func (s rope) frequencies(headDim int) []float32 {
	f := make([]float32, headDim/2)
	for i := range f {
		turn := 1 / math.Pow(s.theta, float64(2*i)/float64(headDim))
		if l := s.llama3; l != nil {
			turns := l.original * turn / (2 * math.Pi) // number of turns within the original positions
			keep := min(1, max(0, (turns-l.low)/(l.high-l.low)))
			turn = keep*turn + (1-keep)*turn/l.factor
		}
		f[i] = float32(turn)
	}
	return f
}
