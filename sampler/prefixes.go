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
	drop     func(prefix int)
	part     int
	anywhere bool
	most     int           // number of tokens for which idle prefixes may have room
	list     []*keptPrefix // the least recently used first
}

// A keptPrefix is a prompt, or its computed parts, or a prompt and its answer.
type keptPrefix struct {
	owner  string
	handle int
	ids    []int32
	room   int
	users  int // number of calls that compute it or have samples to start
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
			s.together = manyPromptTokens
			s.kept = &keptPrefixes{Parts: p, drop: s.d.Drop, part: part, anywhere: anywhere, most: tokens}
		}
	}
}

// computePart computes the next part of a call's prompt. The first begins behind the longest beginning that a kept prefix
// has; after the last part the call has its prefix and can be sampled.
func (s *Scheduler) computePart(c *Call) error {
	k := s.kept
	if c.kept == nil {
		var err error
		if c.kept, err = k.open(c); err != nil {
			return err
		}
		c.Cached = len(c.kept.ids)
	}
	x := c.kept
	from := len(x.ids)
	next := c.Prompt[from:min(from+k.part, len(c.Prompt))]
	if err := k.Append(x.handle, next); err != nil {
		k.remove(x)
		c.kept = nil
		return err
	}
	s.stats.PrefillTokens += len(next)
	if x.ids = c.Prompt[:from+len(next)]; len(x.ids) == len(c.Prompt) {
		c.prefix, c.has = x.handle, true
		s.stats.Prefills++
		s.stats.Prompts++
	}
	return nil
}

// open opens a prefix for a call's prompt, behind what it has in common with one that is kept.
func (k *keptPrefixes) open(c *Call) (*keptPrefix, error) {
	from, n := k.longest(c)
	handle := 0
	if from != nil {
		handle = from.handle
		from.users++ // it is needed until it is copied
		k.use(from)
	}
	k.evict(len(c.Prompt))
	opened, err := k.Open(handle, n, len(c.Prompt))
	if err != nil && len(k.list) > 0 { // perhaps memory is short
		k.evict(k.most)
		opened, err = k.Open(handle, n, len(c.Prompt))
	}
	if from != nil {
		from.users--
	}
	if err != nil {
		return nil, err
	}
	x := &keptPrefix{owner: c.Owner, handle: opened, ids: c.Prompt[:n], room: len(c.Prompt), users: 1}
	k.list = append(k.list, x)
	return x, nil
}

// longest returns the kept prefix with which a prompt has most in common, and how many tokens
// it can take from that.
func (k *keptPrefixes) longest(c *Call) (from *keptPrefix, n int) {
	for _, x := range k.list {
		if x.owner != c.Owner {
			continue
		}
		same := k.usable(common(x.ids, c.Prompt[:len(c.Prompt)-1])) // the last token's state has to be computed
		if same >= leastKept && same >= n {
			from, n = x, same
		}
	}
	return from, n
}

// usable is how many of n tokens a prompt can take from another.
func (k *keptPrefixes) usable(n int) int {
	if k.anywhere {
		return n
	}
	return n / k.part * k.part
}

// common is how many ids two texts have in common at their beginnings.
func common(x, y []int32) int {
	n := min(len(x), len(y))
	for i := range n {
		if x[i] != y[i] {
			return i
		}
	}
	return n
}

// use makes a prefix the most recently used.
func (k *keptPrefixes) use(x *keptPrefix) {
	i := slices.Index(k.list, x)
	k.list = append(slices.Delete(k.list, i, i+1), x)
}

// release ends a call's use of its prefix, and forgets what another prefix has, too.
func (k *keptPrefixes) release(x *keptPrefix) {
	if x.users--; x.users > 0 {
		return
	}
	k.use(x)
	if k.usable(len(x.ids)) < leastKept || k.within(x) {
		k.remove(x)
		return
	}
	for _, y := range slices.Clone(k.list) {
		if y != x && y.users == 0 && y.owner == x.owner && common(y.ids, x.ids) >= k.usable(len(y.ids)) {
			k.remove(y)
		}
	}
	k.evict(0)
}

// within reports whether another prefix has all that a later prompt could take from x.
func (k *keptPrefixes) within(x *keptPrefix) bool {
	return slices.ContainsFunc(k.list, func(y *keptPrefix) bool {
		return y != x && y.owner == x.owner && k.usable(common(x.ids, y.ids)) == k.usable(len(x.ids)) && len(y.ids) > len(x.ids)
	})
}

// evict removes the idle prefixes that were used least recently, until there is room for so many tokens.
func (k *keptPrefixes) evict(room int) {
	for _, x := range k.list {
		room += x.room
	}
	for _, x := range slices.Clone(k.list) {
		if room > k.most && x.users == 0 {
			k.remove(x)
			room -= x.room
		}
	}
}

func (k *keptPrefixes) remove(x *keptPrefix) {
	k.drop(x.handle)
	k.list = slices.DeleteFunc(k.list, func(y *keptPrefix) bool { return y == x })
}

// save keeps the sequence of a slot whose only response has ended, where its steps have the bits of a
// prompt. An error leaves it out.
func (k *keptPrefixes) save(slot int, q *sequence) {
	if !k.anywhere || q.call.Samples > 1 {
		return
	}
	handle, n, err := k.Save(slot)
	if err != nil {
		return
	}
	x := &keptPrefix{owner: q.call.Owner, handle: handle, ids: q.tokens()[:n], room: n, users: 1}
	k.list = append(k.list, x)
	k.release(x)
}

// close drops all prefixes.
func (k *keptPrefixes) close() {
	for _, x := range k.list {
		k.drop(x.handle)
	}
	k.list = nil
}
