package runtime

// SpareActivations returns how many sets of activations the Learner has between
// two passes, and the bytes of all of them.
func (l *Learner) SpareActivations() (sets, bytes int) {
	for _, a := range l.spare {
		bytes += 4 * (cap(a.xr.data) + cap(a.h.data))
		for i := range a.x {
			bytes += 4 * cap(a.x[i].data)
		}
		for i := range a.stash {
			for j := range a.stash[i] {
				b := a.stash[i][j].block
				bytes += b.bytes(b.n)
			}
		}
	}
	return len(l.spare), bytes
}
