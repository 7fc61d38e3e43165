package sampler

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// fakeVocab is the vocabulary of the hash language model: id 0 is EOS, and the
// others are written as letters.
const fakeVocab = 12

// distribution is the hash language model: the next-token probabilities after
// tokens are a hash of all of them.
func distribution(tokens []int32, temperature float64) [fakeVocab]float64 {
	h := uint64(len(tokens))
	for _, id := range tokens {
		h = (h ^ uint64(id)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	var p [fakeVocab]float64
	sum := 0.0
	for j := range p {
		x := (h + uint64(j)*0xBF58476D1CE4E5B9) * 0x94D049BB133111EB
		p[j] = math.Exp(3 * float64(x>>40) / (1 << 24) / temperature)
		sum += p[j]
	}
	for j := range p {
		p[j] /= sum
	}
	return p
}

// draw samples from the model, and returns the log-prob and the entropy too.
func draw(tokens []int32, temperature float64, greedy bool, u float32) (int32, float32, float32) {
	p := distribution(tokens, temperature)
	id, sum, entropy := fakeVocab-1, 0.0, 0.0
	for _, x := range p {
		entropy -= x * math.Log(x)
	}
	if greedy {
		id = 0
		for j := range p {
			if p[j] > p[id] {
				id = j
			}
		}
	} else {
		for j := range p {
			if sum += p[j]; sum > float64(u) {
				id = j
				break
			}
		}
	}
	return int32(id), float32(math.Log(p[id])), float32(entropy)
}

type letters struct{}

func (letters) Pending() string { return "" }

func (letters) Add(id int32) string {
	if id == 0 {
		panic("an EOS token was decoded")
	}
	return string(rune('a' + id - 1))
}

// A fakeDecoder runs the hash language model and holds its caller to the rules of
// Decoder: it records each breach, which makes the call fail.
type fakeDecoder struct {
	slots, maxTokens int

	prefixes  map[int][]int32
	handle    int
	sequences [][]int32 // per slot, nil where free
	last      []int32   // for each slot, the token that Step returned and has not yet received back

	fed bool // Step also receives the tokens of a prompt.

	maxPrefixes int
	breaches    []string
	fail        func(call string) error          // an error to return, or nil
	spoil       func(tokens []int32, out *Drawn) // changes the distribution after some tokens, if not nil
}

func newFake(slots, maxTokens int) *fakeDecoder {
	return &fakeDecoder{
		slots: slots, maxTokens: maxTokens, prefixes: map[int][]int32{},
		sequences: make([][]int32, slots), last: make([]int32, slots),
	}
}

func (d *fakeDecoder) breach(format string, args ...any) error {
	d.breaches = append(d.breaches, fmt.Sprintf(format, args...))
	return fmt.Errorf(format, args...)
}

// clean reports breaches of d's rules, and slots or prefixes that were not freed.
func (d *fakeDecoder) clean() error {
	for s, q := range d.sequences {
		if q != nil {
			d.breach("slot %d was not freed", s)
		}
	}
	for p := range d.prefixes {
		d.breach("prefix %d was not dropped", p)
	}
	if d.breaches != nil {
		return fmt.Errorf("the decoder was misused: %s", strings.Join(d.breaches, "; "))
	}
	return nil
}

func (d *fakeDecoder) failing(call string) error {
	if d.fail == nil {
		return nil
	}
	return d.fail(call)
}

func (d *fakeDecoder) Slots() int     { return d.slots }
func (d *fakeDecoder) MaxTokens() int { return d.maxTokens }

func (d *fakeDecoder) Prefill(prompts [][]int32) ([]int, error) {
	if err := d.failing("prefill"); err != nil {
		return nil, err
	}
	if len(prompts) == 0 {
		return nil, d.breach("prefill of nothing")
	}
	var handles []int
	for _, p := range prompts {
		if len(p) == 0 || len(p) >= d.maxTokens {
			return nil, d.breach("prefill of a prompt of %d tokens", len(p))
		}
		d.handle += 7
		d.prefixes[d.handle] = slices.Clone(p)
		handles = append(handles, d.handle)
	}
	d.maxPrefixes = max(d.maxPrefixes, len(d.prefixes))
	return handles, nil
}

func (d *fakeDecoder) check(rows []Row) error {
	if len(rows) == 0 {
		return d.breach("a call without rows")
	}
	for i, r := range rows {
		if r.Slot < 0 || r.Slot >= d.slots || i > 0 && rows[i-1].Slot >= r.Slot {
			return d.breach("rows %v", rows)
		}
	}
	return nil
}

func (d *fakeDecoder) sample(r *Row) error {
	if !(r.Uniform >= 0 && r.Uniform < 1) {
		return d.breach("uniform %v", r.Uniform)
	}
	if r.Way.Temperature == 0 {
		return d.breach("way %v", r.Way)
	}
	r.Out.ID, r.Out.LogProb, r.Out.Entropy = draw(d.sequences[r.Slot], r.Way.Temperature, r.Way.Greedy, r.Uniform)
	if r.Score != nil {
		p := distribution(d.sequences[r.Slot], r.Way.Temperature)
		var all []Candidate
		for id, x := range p {
			all = append(all, Candidate{ID: int32(id), LogProb: float32(math.Log(x))})
		}
		all = descending(all)
		if r.Draw(all[:fakeVocab-1], false, 0) && r.NeedsAllScores() {
			return d.breach("a part of the vocabulary is enough for scores")
		}
		r.Draw(all, true, r.Out.Entropy)
	}
	d.last[r.Slot] = r.Out.ID
	if d.spoil != nil {
		d.spoil(d.sequences[r.Slot], &r.Out)
	}
	return nil
}

func (d *fakeDecoder) Begin(rows []Row) error {
	if err := d.failing("begin"); err != nil {
		return err
	}
	if err := d.check(rows); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		prompt, ok := d.prefixes[r.Prefix]
		if !ok {
			return d.breach("begin from prefix %d, which is not there", r.Prefix)
		}
		if d.sequences[r.Slot] != nil {
			return d.breach("begin in slot %d, which is not free", r.Slot)
		}
		d.sequences[r.Slot] = slices.Clone(prompt)
		if err := d.sample(r); err != nil {
			return err
		}
	}
	return nil
}

func (d *fakeDecoder) Step(rows []Row) error {
	if err := d.failing("step"); err != nil {
		return err
	}
	if err := d.check(rows); err != nil {
		return err
	}
	used := 0
	for _, q := range d.sequences {
		if q != nil {
			used++
		}
	}
	if used != len(rows) {
		return d.breach("a step over %d of %d sequences", len(rows), used)
	}
	for i := range rows {
		r := &rows[i]
		switch s := r.Slot; {
		case d.sequences[s] == nil:
			return d.breach("step of slot %d, which is free", s)
		case r.Idle:
			r.Out = Drawn{ID: -1}
			continue
		case r.ID != d.last[s] && !d.fed:
			return d.breach("slot %d gave %d and was handed %d", s, d.last[s], r.ID)
		case len(d.sequences[s])+1 >= d.maxTokens:
			// With the token to be sampled the sequence would be longer than maxTokens.
			return d.breach("slot %d outgrows its %d tokens", s, d.maxTokens)
		}
		d.sequences[r.Slot] = append(d.sequences[r.Slot], r.ID)
		if err := d.sample(r); err != nil {
			return err
		}
	}
	return nil
}

func (d *fakeDecoder) Free(slot int) {
	if d.sequences[slot] == nil {
		d.breach("slot %d was freed twice", slot)
	}
	d.sequences[slot] = nil
}

func (d *fakeDecoder) Drop(prefix int) {
	if _, ok := d.prefixes[prefix]; !ok {
		d.breach("prefix %d was dropped twice", prefix)
	}
	delete(d.prefixes, prefix)
}

// oracle samples one response of the model alone, without slots.
func oracle(q Request, k int, opts Options, maxTokens int) Response {
	tokens := slices.Clone(q.Prompt)
	p := Response{Sample: k, Finish: Length}
	text := ""
	for t := 0; t < opts.MaxNewTokens && len(tokens) < maxTokens; t++ {
		u := Uniform(opts.Seed, q.ID, k, t)
		if q.Uniforms != nil {
			u = q.Uniforms[k][t]
		}
		id, logp, entropy := draw(tokens, opts.Temperature, opts.Greedy, u)
		tokens = append(tokens, id)
		p.IDs, p.LogProb, p.Entropy = append(p.IDs, id), append(p.LogProb, logp), append(p.Entropy, entropy)
		if slices.Contains(opts.EOS, id) {
			p.Finish = Stop
			return p
		}
		if len(opts.Stops) == 0 {
			continue
		}
		text += letters{}.Add(id)
		at := -1
		for _, stop := range opts.Stops {
			if i := strings.Index(text, stop); i >= 0 && (at < 0 || i < at) {
				at, p.Finish, p.Stop = i, Stop, stop
			}
		}
		if at >= 0 {
			return p
		}
	}
	return p
}
