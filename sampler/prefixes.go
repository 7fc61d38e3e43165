package sampler

import "slices"

// Parts compute prompts of a Decoder in parts, behind tokens of earlier ones. A Decoder that can
// do so has a method PromptParts, which may return nil.
//
// The last bits of a token's numbers depend in general on how many tokens are computed with it.
// So the parts of a prompt begin at multiples of Part, and are as long if another follows: then a
// prompt has the same bits whatever was kept of others.
type Parts interface {
	// Part returns the largest number of tokens of a part. anywhere says that a token has the
	// same bits in parts of any length, and in steps.
	Part() (tokens int, anywhere bool)
	// Open makes a prefix with room for a prompt of so many tokens. It begins with the first n
	// tokens of another prefix, if n is not 0.
	Open(from, n, room int) (prefix int, err error)
	// Append computes the next tokens of an open prefix. Rows can begin from the prefix only
	// after it. After an error the prefix has to be dropped.
	Append(prefix int, ids []int32) error
	// Save copies the tokens that a slot holds to a prefix.
	Save(slot int) (prefix, tokens int, err error)
}

// leastKept is the least number of tokens that a prompt takes from another.
const leastKept = 32

// keptPrefixes are the prefixes that a Scheduler keeps when their calls have begun or ended.
type keptPrefixes struct {
	Parts
	drop          func(prefix int)
	partTokens    int
	anyParts      bool
	maxIdleTokens int           // number of tokens for which idle prefixes may have room
	prefixes      []*keptPrefix // the least recently used one comes first
}

// A keptPrefix is a prompt, or its computed parts, or a prompt and its answer.
type keptPrefix struct {
	owner       string
	handle      int
	ids         []int32
	room        int
	activeCalls int // number of calls that compute it or have samples to start
}

// KeepPrefixes makes the Scheduler keep computed prompts for later calls of the same Owner, the newest with
// room for so many tokens together, and compute prompts in parts, between the steps of others. The decoder's
// weights must not change. It does nothing with a decoder that cannot continue prompts.
func (s *Scheduler) KeepPrefixes(tokens int) {
	d := s.d
	if x, is := d.(*Invariant); is {
		d = x.Decoder
	}
	if d, is := d.(interface{ PromptParts() Parts }); is {
		if p := d.PromptParts(); p != nil {
			part, anywhere := p.Part()
			s.promptTokensAtOnce = manyPromptTokens
			s.keptPrefixes = &keptPrefixes{Parts: p, drop: s.d.Drop, partTokens: part, anyParts: anywhere, maxIdleTokens: tokens}
		}
	}
}

// computePart computes the next part of a call's prompt, at most partTokens. The first begins behind the tokens that the
// call takes from a kept prefix. After the last part the call is computed and can be sampled.
func (s *Scheduler) computePart(c *Call) error {
	k := s.keptPrefixes
	if c.keptPrefix == nil {
		var err error
		if c.keptPrefix, err = k.openFor(c); err != nil {
			return err
		}
		c.Cached = len(c.keptPrefix.ids)
	}
	x := c.keptPrefix
	from := len(x.ids)
	next := c.Prompt[from:min(from+k.partTokens, len(c.Prompt))]
	if err := k.Append(x.handle, next); err != nil {
		k.remove(x)
		c.keptPrefix = nil
		return err
	}
	s.stats.PrefillTokens += len(next)
	if x.ids = c.Prompt[:from+len(next)]; len(x.ids) == len(c.Prompt) {
		c.prefix, c.computed = x.handle, true
		s.stats.Prefills++
		s.stats.Prompts++
	}
	return nil
}

// openFor opens a prefix with room for a call's prompt. It begins with the n tokens that it can take from a kept one.
// To make room it evicts prefixes that no call uses.
func (k *keptPrefixes) openFor(c *Call) (*keptPrefix, error) {
	from, n := k.longestShared(c)
	handle := 0
	if from != nil {
		handle = from.handle
		from.activeCalls++ // evict must leave it until it is copied
		k.markUsed(from)
	}
	k.evict(len(c.Prompt))
	opened, err := k.Open(handle, n, len(c.Prompt))
	if err != nil && len(k.prefixes) > 0 { // perhaps memory is short
		k.evict(k.maxIdleTokens) // room for all: removes each that no call uses
		opened, err = k.Open(handle, n, len(c.Prompt))
	}
	if from != nil {
		from.activeCalls--
	}
	if err != nil {
		return nil, err
	}
	x := &keptPrefix{owner: c.Owner, handle: opened, ids: c.Prompt[:n], room: len(c.Prompt), activeCalls: 1}
	k.prefixes = append(k.prefixes, x)
	return x, nil
}

// longestShared returns the kept prefix with which a prompt has most in common, and how many tokens
// it can take from that.
func (k *keptPrefixes) longestShared(c *Call) (from *keptPrefix, n int) {
	for _, x := range k.prefixes {
		if x.owner != c.Owner {
			continue
		}
		same := k.reusable(commonStart(x.ids, c.Prompt[:len(c.Prompt)-1])) // the last token's state has to be computed
		if same >= leastKept && same >= n {
			from, n = x, same
		}
	}
	return from, n
}

// reusable is how many of n tokens a prompt can take from another.
func (k *keptPrefixes) reusable(n int) int {
	if k.anyParts {
		return n
	}
	return n / k.partTokens * k.partTokens
}

// commonStart is how many ids two texts have in common at their beginnings.
func commonStart(x, y []int32) int {
	n := min(len(x), len(y))
	for i := range n {
		if x[i] != y[i] {
			return i
		}
	}
	return n
}

// markUsed makes a prefix the most recently used.
func (k *keptPrefixes) markUsed(x *keptPrefix) {
	i := slices.Index(k.prefixes, x)
	k.prefixes = append(slices.Delete(k.prefixes, i, i+1), x)
}

// release ends a call's use of its prefix x. After its last use x is removed if it is too short for later prompts or
// another prefix has all of it, too; otherwise idle prefixes are removed of which x has all.
func (k *keptPrefixes) release(x *keptPrefix) {
	if x.activeCalls--; x.activeCalls > 0 {
		return
	}
	k.markUsed(x)
	if k.reusable(len(x.ids)) < leastKept || k.isCovered(x) {
		k.remove(x)
		return
	}
	for _, y := range slices.Clone(k.prefixes) {
		if y != x && y.activeCalls == 0 && y.owner == x.owner && commonStart(y.ids, x.ids) >= k.reusable(len(y.ids)) {
			k.remove(y)
		}
	}
	k.evict(0) // no room is needed, but with x there may be more idle tokens than are kept
}

// isCovered reports whether another prefix has all that a later prompt could take from x.
func (k *keptPrefixes) isCovered(x *keptPrefix) bool {
	return slices.ContainsFunc(k.prefixes, func(y *keptPrefix) bool {
		return y != x && y.owner == x.owner && k.reusable(commonStart(x.ids, y.ids)) == k.reusable(len(x.ids)) && len(y.ids) > len(x.ids)
	})
}

// evict removes the idle prefixes that were used least recently, until there is room for so many tokens.
func (k *keptPrefixes) evict(room int) {
	for _, x := range k.prefixes {
		room += x.room
	}
	for _, x := range slices.Clone(k.prefixes) {
		if room > k.maxIdleTokens && x.activeCalls == 0 {
			k.remove(x)
			room -= x.room
		}
	}
}

func (k *keptPrefixes) remove(x *keptPrefix) {
	k.drop(x.handle)
	k.prefixes = slices.DeleteFunc(k.prefixes, func(y *keptPrefix) bool { return y == x })
}

// saveSlot keeps the sequence of a slot whose only response has ended, where its steps have the bits of a
// prompt. An error leaves it out.
func (k *keptPrefixes) saveSlot(slot int, q *sequence) {
	if !k.anyParts || q.call.Samples > 1 {
		return
	}
	handle, n, err := k.Save(slot)
	if err != nil {
		return
	}
	x := &keptPrefix{owner: q.call.Owner, handle: handle, ids: q.tokens()[:n], room: n, activeCalls: 1}
	k.prefixes = append(k.prefixes, x)
	k.release(x)
}

// close drops all prefixes.
func (k *keptPrefixes) close() {
	for _, x := range k.prefixes {
		k.drop(x.handle)
	}
	k.prefixes = nil
}
