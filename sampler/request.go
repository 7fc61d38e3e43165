package sampler

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"onering/internal/settings"
)

// Options say how to sample and when a response ends. They hold for all requests of a call.
// There are no silent defaults: a Temperature, TopP or MaxNewTokens of 0 is an error.
type Options struct {
	// Sampling says how tokens are chosen. A response has at most MaxNewTokens tokens,
	// and at most as many as fit in its slot after the prompt.
	Sampling
	Steering
	// Kept makes log-probs and entropies those of the distribution over what the filters keep,
	// which responses then have.
	Kept bool
	// EOS lists the ids that end a response. Such a token is kept: it is part
	// of the response and has its log-prob.
	EOS []int32
	// Stops lists strings that end a response at the token that completes one of them. That token is kept, and
	// so are the whole stop string and what the token holds after it: a policy is trained on what it sampled.
	Stops []string
	// Text makes the decoder of one response's text; needed only for Stops.
	Text func() TextDecoder
	// Seed is the run's seed; see Uniform.
	Seed uint64
	// PrefillTokens bounds the prompt tokens of one Prefill call (a single longer prompt
	// is allowed), and so the memory of prefixes; 0 means 8192.
	PrefillTokens int
	// Token, if not nil, is called with each token as it is sampled, EOS included, between two steps and before
	// done is called with the response that the token ends. The tokens of one response come in their order.
	Token func(Token)
	// Turn, if not nil, makes a response an episode of several turns: it says what follows when an EOS id or a
	// stop string ends a turn. It is called between two steps with the response so far, whose slices it may
	// keep, and must not wait: it must make sure that answer is called once, at any time and from any
	// goroutine. The sequence keeps its slot until then, while others continue. MaxNewTokens bounds all tokens
	// after the prompt, and an observation that leaves no room for another token ends the response by Length.
	Turn func(r Response, answer func(Observation))
	// TurnTokens, if not 0, is the largest number of tokens of the first turn; a turn
	// that reaches it ends by Length.
	TurnTokens int
	// Constraint, if not nil, begins what says which tokens may follow in a turn. It concerns
	// the choice and nothing else, as a Steering does.
	Constraint func() Constraint
	// Top is how many of the likeliest tokens Token receives besides the sampled one. It
	// changes no bit of the samples.
	Top int
	// DropLong leaves out prompts that do not fit, counted in Stats.Dropped,
	// instead of refusing the whole call.
	DropLong bool
}

// A Constraint follows a turn, and says which tokens may come next. A turn of which nothing more
// may follow, and which no EOS id can end, ends by Stop.
type Constraint interface {
	// Next returns the ids that may follow, as a bit for each, nil for all of them, and whether
	// the turn may end: the EOS ids may follow then. An error ends the call.
	Next() (allowed []uint64, ends bool, err error)
	// Add adds the sampled token.
	Add(id int32)
}

// A Request is a prompt and how many responses to sample for it.
type Request struct {
	Prompt  []int32 // token ids, at least one
	ID      uint64  // the prompt id in the key of Uniform; requests with equal ids share their draws
	Samples int     // K, at least 1
	First   int     // the number of the first sample in the key of Uniform
	// LastGreedy makes the last sample greedy, whatever the Options say.
	LastGreedy bool
	// Uniforms, if not nil, holds for each sample the numbers in [0, 1) to use in place of Uniform, one per
	// token. A response that outlives its list is an error.
	Uniforms [][]float32
}

// A Token is one token of a response that is being sampled.
type Token struct {
	Request, Sample int // as in Response
	ID              int32
	LogProb         float32
	Likeliest       []Candidate // the likeliest tokens, as Options.Top asks, the likeliest first
}

// An Observation is the text that follows a turn.
type Observation struct {
	IDs []int32 // tokens that the policy reads before its next turn; may be empty
	End Finish  // the reason if the response ends here; "" if it continues
	Err error   // the call cannot be answered
	// TurnTokens is as in Options, for the next turn.
	TurnTokens int
}

// An Observed is a run of tokens in a response that were not sampled.
type Observed struct {
	At  int     `json:"at"`  // how many sampled tokens precede them
	IDs []int32 `json:"ids"` // empty if nothing was inserted between two turns
}

// Finish says why a response ended.
type Finish string

const (
	Stop   Finish = "stop"   // an EOS id or a stop string
	Length Finish = "length" // MaxNewTokens, or the slot is full
)

// A Response is one sampled continuation of a prompt.
type Response struct {
	Request int       // index into the requests
	Sample  int       // 0 .. Samples-1
	IDs     []int32   // the sampled tokens, EOS included
	LogProb []float32 // per token, at the sampling temperature, over the whole vocabulary
	Entropy []float32 // per token, in nats, of the distribution it was drawn from, before the filters
	// Kept has with Options.Kept for each token the ids that the filters kept, in ascending
	// order, and none where that is the whole vocabulary. LogProb and Entropy are then of the
	// distribution over these. It is nil if no token has any.
	Kept   [][]int32
	Finish Finish
	Stop   string // the stop string that ended it, if one did
	// Observed are the tokens that were not sampled, between those of IDs, in order; nil
	// for a response of one turn.
	Observed []Observed
}

// Tokens returns all tokens after the prompt, sampled or not, and for each of IDs its place among them.
func (r Response) Tokens() (all []int32, places []int) {
	from := 0
	add := func(to int) {
		for ; from < to; from++ {
			places = append(places, len(all))
			all = append(all, r.IDs[from])
		}
	}
	for _, o := range r.Observed {
		add(min(o.At, len(r.IDs)))
		all = append(all, o.IDs...)
	}
	add(len(r.IDs))
	return all, places
}

// Turns returns the sampled tokens of each turn, of which there is at least one.
func (r Response) Turns() (turns [][]int32) {
	from := 0
	for _, o := range r.Observed {
		turns, from = append(turns, r.IDs[from:o.At]), o.At
	}
	return append(turns, r.IDs[from:])
}

// LastTurn returns the sampled tokens of the newest turn.
func (r Response) LastTurn() []int32 {
	turns := r.Turns()
	return turns[len(turns)-1]
}

// Stats count the work of a call.
type Stats struct {
	Responses     int // responses that ended
	Tokens        int // tokens sampled, those of unfinished responses included
	Steps         int // Step calls
	Prefills      int // Prefill calls
	Prompts       int // prompts computed
	PrefillTokens int // tokens of those prompts
	Dropped       int // requests left out by DropLong
	Slots         int // the decoder's slots
	SlotSteps     int // sequences that got a token from Step, summed over the steps
}

// Add adds the counts of another call, on another decoder. Slots becomes the larger
// number, so that Occupancy is that of an average decoder.
func (s *Stats) Add(x Stats) {
	s.Responses += x.Responses
	s.Tokens += x.Tokens
	s.Steps += x.Steps
	s.Prefills += x.Prefills
	s.Prompts += x.Prompts
	s.PrefillTokens += x.PrefillTokens
	s.Dropped += x.Dropped
	s.Slots = max(s.Slots, x.Slots)
	s.SlotSteps += x.SlotSteps
}

// Occupancy returns the share of the decoder's slots that were in use,
// averaged over the steps, in [0, 1]; 0 without steps.
func (s Stats) Occupancy() float64 {
	if s.Steps == 0 {
		return 0
	}
	return float64(s.SlotSteps) / (float64(s.Steps) * float64(s.Slots))
}

const defaultPrefillTokens = 8192

// validate returns an error if the options are out of range or exclude each other.
func (o Options) validate() error {
	if err := errors.Join(settings.Check(&o.Sampling), settings.Check(&o.Steering)); err != nil {
		return fmt.Errorf("sampler: %w", err)
	}
	switch {
	case o.Top < 0:
		return fmt.Errorf("sampler: %d likeliest tokens are asked for", o.Top)
	case o.PrefillTokens < 0:
		return fmt.Errorf("sampler: prefill tokens %d is negative", o.PrefillTokens)
	case o.Kept && o.Steering.On():
		return errors.New("sampler: a bias or a penalty changes which tokens are kept, and log-probs over these are those of the model: leave one of the two out")
	case o.Constraint != nil && (o.Kept || o.MinTokens > 0):
		return errors.New("sampler: a constraint says where a turn ends and which tokens are kept: leave out min_tokens and log-probs over the kept tokens")
	case len(o.Stops) > 0 && o.Text == nil:
		return fmt.Errorf("sampler: stop string %q needs a text decoder, and none was given", o.Stops[0])
	}
	if i := slices.Index(o.Stops, ""); i >= 0 {
		return fmt.Errorf("sampler: stop string %d is empty", i)
	}
	return nil
}

// samplingOf returns how sample number k of the call chooses its tokens.
func (c *Call) samplingOf(k int) Sampling {
	if c.LastGreedy && k == c.Samples-1 {
		return Sampling{Greedy: true, Temperature: c.Temperature, TopP: 1, MaxNewTokens: c.MaxNewTokens}
	}
	return c.Sampling
}

// checkFits returns an error if a slot of maxTokens cannot hold the prompt and one token more.
func (r Request) checkFits(index, maxTokens int) error {
	if len(r.Prompt) < maxTokens {
		return nil
	}
	return fmt.Errorf("sampler: request %d (id %d): the prompt has %d tokens, and a slot holds %d with at least "+
		"one of response: shorten it or drop long prompts", index, r.ID, len(r.Prompt), maxTokens)
}

// validate returns an error if request number index has no prompt or no sample, or uniforms that its samples
// cannot use.
func (r Request) validate(index int, greedy bool) error {
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("sampler: request %d (id %d): the prompt is empty", index, r.ID)
	case r.Samples < 1 || r.Samples > math.MaxInt32:
		return fmt.Errorf("sampler: request %d (id %d): samples %d is not at least 1", index, r.ID, r.Samples)
	case r.Uniforms == nil || greedy:
		return nil
	case len(r.Uniforms) != r.Samples:
		return fmt.Errorf("sampler: request %d (id %d): %d lists of uniforms for %d samples", index, r.ID, len(r.Uniforms), r.Samples)
	}
	for k, us := range r.Uniforms {
		if len(us) == 0 {
			return fmt.Errorf("sampler: request %d (id %d), sample %d: the list of uniforms is empty", index, r.ID, k)
		}
		for t, u := range us {
			if !(u >= 0 && u < 1) {
				return fmt.Errorf("sampler: request %d (id %d), sample %d: uniform %d is %v, not in [0, 1)", index, r.ID, k, t, u)
			}
		}
	}
	return nil
}
