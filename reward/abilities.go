package reward

import (
	"io"
	"runtime"
)

// A Parallel reward says how many groups it can grade at once. It is for rewards
// that wait for something else, such as a server; the others are given a group for
// each core.
type Parallel interface {
	Groups() int
}

// A Varying reward says whether equal groups may get different scores, as those of
// a judge that samples its verdicts. A training run keeps the scores of such a
// reward in its folder as they come, so that a resumed run has the same ones.
// rewardtest does not compare them.
type Varying interface {
	Varies() bool
}

// Groups returns how many groups r should be given at once.
func Groups(r Reward) int {
	if p, ok := r.(Parallel); ok {
		return max(1, p.Groups())
	}
	return runtime.GOMAXPROCS(0)
}

// Varies says whether equal groups may get different scores from r.
func Varies(r Reward) bool {
	v, ok := r.(Varying)
	return ok && v.Varies()
}

// Close ends what r has started, such as processes, if it is an io.Closer. A reward
// that has been closed may be used again, and starts what it needs again.
func Close(r Reward) error {
	if c, ok := r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
