package sampler

// A Decoder turns token ids into sampled next tokens; it owns the keys and
// values. The sampler needs nothing else from a model. It is satisfied by a
// type of package runtime, and by fakes in tests.
//
// A prefix is a prompt computed once, a slot holds one growing sequence.
// Slots are numbered from 0 to Slots()-1, and a call names them in ascending
// order. All slices of one call have the same length and belong to the caller.
// A Prefill that fails leaves no prefix, a Start that fails takes no slot, and
// slots whose Step failed still have to be freed.
// A Decoder is used by one goroutine at a time.
type Decoder interface {
	// Slots returns how many sequences can be decoded at once.
	Slots() int
	// MaxTokens returns the most tokens, prompt and response together, that a
	// slot can hold.
	MaxTokens() int
	// SetSampling fixes how the following calls choose tokens. The caller sees to
	// MaxNewTokens. Greedy takes the first of the largest logits.
	SetSampling(Sampling) error
	// Prefill computes the prompts, which must not be empty, and returns a
	// handle for each. The handles stay valid until Drop.
	Prefill(prompts [][]int32) (prefixes []int, err error)
	// Start begins a sequence in each of the free slots from the prefix named
	// beside it and samples its first token: the first id, in vocabulary
	// order, whose cumulative probability exceeds uniforms[i] in [0, 1).
	// Several slots may start from one prefix.
	Start(prefixes, slots []int, uniforms []float32, next []int32, logp, entropy []float32) error
	// Step appends ids[i] to the sequence in slots[i] and samples the next token.
	Step(slots []int, ids []int32, uniforms []float32, next []int32, logp, entropy []float32) error
	// Free gives a slot back.
	Free(slot int)
	// Drop forgets a prefix.
	Drop(prefix int)
}
