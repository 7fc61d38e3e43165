package decoder

import (
	"math"
	"slices"

	"onering/models"
)

// A rope is the rotary embedding as a config.json states it.
type rope struct {
	theta       float64
	turnedShare float64 // the part of a head that is turned; 0 stands for all of it
	// scaleFrequencies changes the frequencies of the first n elements of a head; nil without scaling.
	scaleFrequencies func(n int, frequencies []float64)
	scale            float64 // multiplies cosines and sines; 0 stands for 1
	// trainedLength is the length of the longest row that the frequencies are for; 0 if they are for all.
	trainedLength int
	positions     float64 // max_position_embeddings
}

// readRope looks where transformers looks, in its order: rope_scaling, else rope_parameters; if neither has a base,
// it is rope_theta, else s.RopeTheta. An original_max_position_embeddings outside of the object overrides one in it.
// kind is the layers' name in layer_types, for which the object may have an object of its own.
func readRope(c *models.ConfigFile, s Shape, kind string) rope {
	stated := rope{theta: c.Number("rope_theta", s.RopeTheta), turnedShare: s.PartialRotary, positions: float64(s.MaxPositions)}
	if s.PartialRotary != 0 {
		stated.turnedShare = c.Number("partial_rotary_factor", s.PartialRotary)
	} else {
		c.Only("partial_rotary_factor", "1")
	}
	found := stated
	for _, key := range []string{"rope_parameters", "rope_scaling"} { // if both exist, the second counts
		r := c.Object(key)
		if r != nil && s.hasWindowRope() && slices.ContainsFunc(layerTypes, r.Has) {
			if r = r.Object(kind); r == nil { // it has one for other layers only
				found = stated
				continue
			}
		}
		if r != nil && len(r.Keys()) > 0 {
			found = stated.readObject(c, r)
		}
	}
	if found.turnedShare < 0 || found.turnedShare > 1 {
		c.Fail("partial_rotary_factor (%g) must be above 0 and at most 1", found.turnedShare)
	}
	return found
}

// RopeObject returns the object of a config.json with the rotary embedding's settings; nil if there is none.
func RopeObject(c *models.ConfigFile) *models.ConfigFile {
	if c.Has("rope_scaling") {
		return c.Object("rope_scaling")
	}
	return c.Object("rope_parameters")
}

// readObject returns the rotary embedding that r, an object in the config.json c, states; s has what holds without
// it. A turnedShare of 0 says that the family has only heads that turn as a whole. Members that would change the
// computation in another way are errors.
func (s rope) readObject(c, r *models.ConfigFile) rope {
	typeKey := "rope_type"
	if !r.Has(typeKey) {
		typeKey = "type"
	}
	kind := "default"
	r.Decode(typeKey, &kind, "a string")
	if s.turnedShare != 0 && slices.Contains([]string{"su", "yarn"}, kind) && r.Has("short_factor") {
		kind = "longrope" // as Phi-3 and later models spell it
	}
	known, ok := scalings[kind]
	if !ok {
		r.Fail(`%s %q is not supported, only the default rotary embedding, "linear", "llama3", "longrope" and "yarn"`, typeKey, kind)
		return s
	}
	for _, key := range r.Keys() {
		if !r.Seen(key) && r.Has(key) && !slices.Contains(ropeKeys, key) && !slices.Contains(known.keys, key) {
			r.Fail("%s %.60s is not supported with %q rotary embeddings", key, r.JSON(key), kind)
		}
	}
	if s.turnedShare == 0 {
		r.Only("partial_rotary_factor", "1")
	} else {
		s.turnedShare = r.Number("partial_rotary_factor", s.turnedShare)
	}
	s.theta = r.Number("rope_theta", s.theta)
	if known.read != nil {
		known.read(c, r, &s)
	}
	return s
}

// ropeKeys are the members that every rotary embedding may have.
var ropeKeys = []string{"rope_type", "type", "rope_theta", "partial_rotary_factor"}

// scalings are the known values of rope_type, with their members and how they are read.
var scalings = map[string]struct {
	keys []string
	read func(c, r *models.ConfigFile, s *rope)
}{
	"default":  {},
	"llama3":   {llama3Keys, readLlama3},
	"linear":   {[]string{"factor"}, readLinear},
	"yarn":     {yarnKeys, readYarn},
	"longrope": {longropeKeys, readLongrope},
}

// requiredNumber reads a number that an object must have for a rope_type.
func requiredNumber(r *models.ConfigFile, kind, key string) float64 {
	if !r.Has(key) {
		r.Fail("no %s, which rope_type %q needs", key, kind)
	}
	return r.Number(key, 0)
}

// originalOf reads original_max_position_embeddings, which counts more outside of the object.
func originalOf(c, r *models.ConfigFile, otherwise float64) float64 {
	const key = "original_max_position_embeddings"
	n := c.Number(key, r.Number(key, otherwise))
	if c.Err() == nil && !(n >= 1) {
		c.Fail("%s (%g) must be at least 1", key, n)
	}
	return n
}

// factorOf reads factor, which must be at least 1.
func factorOf(r *models.ConfigFile, kind string) float64 {
	factor := requiredNumber(r, kind, "factor")
	if r.Err() == nil && !(factor >= 1) {
		r.Fail("factor (%g) must be at least 1", factor)
	}
	return factor
}

// readLinear reads "linear", in which all turns are factor times slower.
func readLinear(_, r *models.ConfigFile, s *rope) {
	factor := factorOf(r, "linear")
	s.scaleFrequencies = func(_ int, f []float64) {
		for i := range f {
			f[i] /= factor
		}
	}
}

// llama3Keys are the members that rope_type "llama3" needs.
var llama3Keys = []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}

// readLlama3 reads "llama3", which stretches the slow turns of a rotary embedding, as Llama 3.1 and later do, so that
// more positions fit than the model saw at first. A turn that takes more than original/low positions becomes factor
// times slower, a turn that takes fewer than original/high is unchanged, and the others are blended.
func readLlama3(c, r *models.ConfigFile, s *rope) {
	for _, key := range llama3Keys {
		requiredNumber(r, "llama3", key)
	}
	factor, low, high := factorOf(r, "llama3"), r.Number(llama3Keys[1], 0), r.Number(llama3Keys[2], 0)
	if r.Err() == nil && (!(low > 0) || !(high > low)) {
		r.Fail("low_freq_factor (%g) must be positive and below high_freq_factor (%g)", low, high)
	}
	original := originalOf(c, r, 0) // 0 only after an error: the key was required above
	s.scaleFrequencies = func(_ int, f []float64) {
		for i, turn := range f {
			turns := original * turn / (2 * math.Pi) // number of turns within the original positions
			keep := min(1, max(0, (turns-low)/(high-low)))
			f[i] = keep*turn + (1-keep)*turn/factor
		}
	}
}

// yarnKeys are the members that rope_type "yarn" may have.
var yarnKeys = []string{"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}

// readYarn reads "yarn" (Peng et al. 2023, arXiv 2309.00071): pairs that turn more than
// beta_fast times within the original positions are unchanged, those that turn fewer than
// beta_slow times become factor times slower, and between them is a ramp over the pairs.
func readYarn(c, r *models.ConfigFile, s *rope) {
	factor, original := factorOf(r, "yarn"), originalOf(c, r, s.positions)
	positive := func(key string, otherwise float64) float64 { // 0 counts as absent
		if x := r.Number(key, otherwise); x != 0 {
			return x
		}
		return otherwise
	}
	fast, slow, truncate, theta := positive("beta_fast", 32), positive("beta_slow", 1), true, s.theta
	r.Decode("truncate", &truncate, "true or false")
	if r.Err() == nil && !(slow > 0 && fast >= slow) {
		r.Fail("beta_slow (%g) must be positive and at most beta_fast (%g)", slow, fast)
	}
	grown := func(k float64) float64 { // the paper's factor of cosines and sines, by the logarithm of factor
		if factor <= 1 {
			return 1
		}
		return 0.1*k*math.Log(factor) + 1
	}
	s.scale = grown(1)
	if m, all := r.Number("mscale", 0), r.Number("mscale_all_dim", 0); m != 0 && all != 0 {
		s.scale = grown(m) / grown(all)
	}
	s.scale = r.Number("attention_factor", s.scale)
	s.scaleFrequencies = func(n int, f []float64) {
		at := func(turns float64) float64 { // the pair that turns so often
			return float64(n) * math.Log(original/(turns*2*math.Pi)) / (2 * math.Log(theta))
		}
		low, high := at(fast), at(slow)
		if truncate {
			low, high = math.Floor(low), math.Ceil(high)
		}
		low, high = max(low, 0), min(high, float64(n-1))
		if low == high { // nothing divides by 0
			high += 0.001
		}
		for i := range f {
			slower := min(1, max(0, (float64(i)-low)/(high-low)))
			f[i] = f[i]/factor*slower + f[i]*(1-slower)
		}
	}
}

// longropeKeys are the members that rope_type "longrope" may have.
var longropeKeys = []string{"short_factor", "long_factor", "factor", "original_max_position_embeddings", "attention_factor"}

// readLongrope reads "longrope" (Ding et al. 2024, arXiv 2402.13753): each pair is slower by a number of its own.
// transformers takes those of short_factor for a batch of rows within the original positions and else those of
// long_factor, so a token's log-prob depends on its neighbours. Here one list counts for all rows: the short one, for
// rows up to that length, which are all rows if both lists are equal.
func readLongrope(c, r *models.ConfigFile, s *rope) {
	var lists [2][]float64
	for i, key := range longropeKeys[:2] {
		r.Decode(key, &lists[i], "a list of numbers")
		if lists[i] == nil || slices.ContainsFunc(lists[i], func(x float64) bool { return !(x > 0) }) {
			r.Fail(`no %s, which rope_type "longrope" needs, or not all of it is positive`, key)
		}
	}
	short, original := lists[0], originalOf(c, r, 0)  // 0, which it refuses, if neither c nor r states it
	if factor := s.positions / original; factor > 1 { // so many times more positions than at first
		s.scale = math.Sqrt(1 + math.Log(factor)/math.Log(original))
	}
	s.scale = r.Number("attention_factor", s.scale)
	if !slices.Equal(short, lists[1]) { // the long list, which would count for longer rows, is not used
		s.trainedLength = int(original)
	}
	s.scaleFrequencies = func(n int, f []float64) {
		if len(short) != n/2 {
			r.Fail("short_factor has %d numbers, %d elements of each head are turned (partial_rotary_factor): it takes half as many", len(short), n)
			return
		}
		for i := range f {
			f[i] /= short[i]
		}
	}
}

// frequencyTable returns the angles by which each position turns the pairs of a head, in float32 as
// transformers has them, and the factor of their cosines and sines.
func (s rope) frequencyTable(headDim int) (frequencies []float32, scale float32) {
	n := headDim
	if s.turnedShare != 0 {
		n = int(float64(headDim)*s.turnedShare) / 2 * 2
	}
	f := make([]float64, n/2)
	for i := range f {
		f[i] = 1 / math.Pow(s.theta, float64(2*i)/float64(n))
	}
	if s.scaleFrequencies != nil {
		s.scaleFrequencies(n, f)
	}
	for _, x := range f {
		frequencies = append(frequencies, float32(x))
	}
	if scale = float32(s.scale); scale == 0 {
		scale = 1
	}
	return frequencies, scale
}

// fullAttention and slidingAttention are the names that layer_types has for layers with attention.
const fullAttention, slidingAttention = "full_attention", "sliding_attention"

var layerTypes = []string{fullAttention, slidingAttention}

// A Sliding says which layers of a family may have a window.
type Sliding struct {
	Default int // sliding_window if the key is absent; null is not a window
	// Every is n if without layer_types every n-th layer has no window; 0 if all have one, and
	// layer_types does not count.
	Every int
	// Plain gives the layers with a window a rotary embedding without scaling, of the base
	// Theta; 0 is that of the other layers.
	Plain bool
	Theta float64
}

// readKinds reads which layers have a window or no attention and which rotary embeddings they have. It sets Kinds, one
// for each name of layer_types that occurs, KindOf, which is nil for a single kind, RopeTheta, and MaxPositions with Short
// where the frequencies are for shorter rows.
func readKinds(c *models.ConfigFile, s Shape) Shape {
	fullRope := readRope(c, s, fullAttention)
	s.RopeTheta = fullRope.theta
	if fullRope.trainedLength > 0 && fullRope.trainedLength < s.MaxPositions {
		s.MaxPositions, s.Short = fullRope.trainedLength, true
	}
	types, window := readLayerTypes(c, s)
	if c.Err() != nil {
		return s
	}
	windowRope := fullRope
	if s.hasWindowRope() {
		windowShape := s // with the base of layers with a window
		if s.Sliding.Theta != 0 {
			windowShape.RopeTheta = s.Sliding.Theta
		}
		windowRope = readWindowRope(c, windowShape)
	}
	s.KindOf = nil
	kindNumbers := map[string]int{}
	for _, name := range types {
		if _, ok := kindNumbers[name]; !ok {
			kindNumbers[name] = len(s.Kinds)
			k, angles := models.Kind{}, fullRope
			if name == slidingAttention {
				k.Window, angles = window, windowRope
				if window >= s.MaxPositions { // no row is longer
					k.Window = 0
				}
			}
			if s.Other != nil && name == s.Other.Type {
				k.Mixer = s.Other.Mixer
			}
			k.Frequencies, k.Scale = angles.frequencyTable(s.HeadDim)
			s.Kinds = append(s.Kinds, k)
		}
		s.KindOf = append(s.KindOf, kindNumbers[name])
	}
	if len(s.Kinds) == 1 {
		s.KindOf = nil
	}
	return s
}

// hasWindowRope says whether layers with a window have a rotary embedding of their own.
func (s Shape) hasWindowRope() bool { return s.Sliding != nil && s.Sliding.Plain }

// readWindowRope reads the rotary embedding of layers with a window.
func readWindowRope(c *models.ConfigFile, s Shape) rope {
	plain := rope{theta: s.RopeTheta, turnedShare: s.PartialRotary, positions: float64(s.MaxPositions)}
	if r := c.Object("rope_parameters"); r != nil {
		if own := r.Object(slidingAttention); own != nil {
			return plain.readObject(c, own)
		}
	}
	return plain
}

// readLayerTypes returns the type of each layer, as layer_types states it or else by the family's rule (s.Other and
// s.Sliding), and the window of the sliding ones; 0 is none.
func readLayerTypes(c *models.ConfigFile, s Shape) (types []string, window int) {
	if s.Sliding != nil && c.JSON("sliding_window") == nil { // the key is absent
		window = s.Sliding.Default
	} else if s.Sliding != nil {
		window = c.SizeOr("sliding_window", 0) // null is no window
	}
	for i := range s.Layers {
		types = append(types, fullAttention)
		if s.Other != nil && s.Other.At(i) {
			types[i] = s.Other.Type
		}
		if window > 0 && (s.Sliding.Every == 0 || (i+1)%s.Sliding.Every != 0) {
			types[i] = slidingAttention
		}
	}
	if !c.Has("layer_types") {
		return types, window
	}
	var stated []string
	c.Decode("layer_types", &stated, "a list of strings")
	if c.Err() == nil && len(stated) != s.Layers {
		c.Fail("layer_types names %d layers, num_hidden_layers is %d", len(stated), s.Layers)
		return types, window
	}
	for i, t := range stated {
		switch {
		case !slices.Contains(supported(s), t):
			c.Fail("layer_types: layer %d is %q, which is not supported in this family, only %q", i, t, supported(s))
		case t == slidingAttention && window == 0:
			c.Fail("layer_types: layer %d is %q, and there is no sliding_window", i, t)
		case s.Sliding != nil && s.Sliding.Every == 0 && t != types[i]:
			c.Fail("layer_types: layer %d is %q, but sliding_window counts for all layers of this family", i, t)
		}
	}
	return stated, window
}

// supported lists the layer types of a family.
func supported(s Shape) []string {
	switch {
	case s.Other != nil:
		return []string{fullAttention, s.Other.Type}
	case s.Sliding == nil:
		return layerTypes[:1]
	}
	return layerTypes
}
