package sampler

// A Row is one sequence in a call of a Decoder.
type Row struct {
	Slot    int
	Prefix  int      // for Begin: the handle of the prompt with which the sequence begins
	ID      int32    // for Step: the token to append
	Uniform float32  // in [0, 1), decides the next token
	Way     Sampling // how the next token is chosen; the caller enforces MaxNewTokens
	Idle    bool     // for Step: the sequence waits and does not change; ID and Out are ignored
	Top     int      // how many of the likeliest tokens Out should have
	// Kept asks for the log-prob and the entropy of the distribution over the tokens that the
	// filters keep, which Out then lists.
	Kept bool
	// Score, if not nil, gives candidates other log-probs to choose by; see Draw. With Masked it
	// only forbids some, by minus infinity.
	Score  func(Candidate) float32
	Masked bool
	Out    Drawn // the next token, set by the call
}

// A Drawn is a sampled token with its log-prob, and the entropy of the distribution that
// it was drawn from: before the filters, unless Row.Kept asks for the one after them.
type Drawn struct {
	ID               int32
	LogProb, Entropy float32
	Kept             []int32     // with Row.Kept, what the filters kept, by id; empty if that is the whole vocabulary
	Likeliest        []Candidate // the likeliest tokens, as Row.Top asks; a Decoder may have none
}

// A Decoder turns token ids into sampled next tokens; it owns the keys and values. The sampler needs nothing
// else from a model. It is satisfied by a type of package runtime, and by fakes in tests.
//
// A prefix is a prompt computed once, a slot holds one growing sequence. Slots are numbered from 0 to
// Slots()-1, and a call names them in ascending order. Rows belong to the caller.
//
// Greedy rows take the first of the largest logits, others the first id, in vocabulary order, at which the
// cumulative probability of the ids that the filters keep exceeds the uniform; see Row.Draw.
//
// A Prefill that fails leaves no prefix, a Begin that fails takes no slot, and slots whose Step failed still
// have to be freed. A Decoder is used by one goroutine at a time.
type Decoder interface {
	// Slots returns how many sequences it can hold at once.
	Slots() int
	// MaxTokens returns the most tokens, prompt and response together, that a slot can hold.
	MaxTokens() int
	// Prefill computes the prompts, which must not be empty, and returns a
	// handle for each. The handles stay valid until Drop.
	Prefill(prompts [][]int32) (prefixes []int, err error)
	// Begin begins a sequence in the free slot of each row and samples its first token.
	// Several rows may begin from one prefix.
	Begin(rows []Row) error
	// Step appends a token to the sequence of each row that is not idle, and samples the
	// next one. The rows are all existing sequences.
	Step(rows []Row) error
	// Free gives a slot back.
	Free(slot int)
	// Drop forgets a prefix.
	Drop(prefix int)
}
