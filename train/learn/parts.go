package learn

import (
	"errors"
	"maps"
	"slices"

	"onering/models"
	"onering/runtime"
	"onering/train/metrics"
)

// A crew is the state that the ranks of a run share: a model's weights, their gradients and the optimizer.
type crew struct {
	env       *runtime.Env
	learner   *runtime.Learner
	ring      *runtime.Ring
	optimizer *runtime.Optimizer // nil if there is no Options.Optimizer
	ranks     Ranks
	watch     func(metrics.Phase) // nil if there is no Options.Observe
}

// Ranks returns the processes that take the steps.
func (c *crew) Ranks() Ranks { return c.ranks }

func (c *crew) observe(p metrics.Phase) {
	if c.watch != nil {
		c.watch(p)
	}
}

// owners distributes the sequences of a batch so that each rank has about equal work, and returns the rank of each.
// Every rank gets the same result. Sequences with one prefix, which is computed once, stay together unless a rank would
// have a tenth more than its share.
func (c *crew) owners(b Batch) []int {
	n := c.ranks.Size()
	if n == 1 {
		return make([]int, len(b.Sequences))
	}
	const backward = 2 // a live sequence costs three times as much: its backward pass costs twice the forward pass
	costs := make([]int, len(b.Sequences))
	for i, x := range b.Sequences {
		costs[i] = len(x.Tokens)
		switch {
		case b.live(i):
			costs[i] *= 1 + backward
		case b.LiveOnly:
			costs[i] = 0
		}
	}
	groups := prefixGroups(b.Sequences, numbers(len(costs)), b.live)
	together := make([]int, len(costs)) // the costs of each group, at its first sequence; 0 elsewhere
	for i, g := range groups {
		together[g.first] += costs[i]
	}
	owner, sums, sum := assign(together, n), make([]int, n), 0
	for i, g := range groups {
		owner[i] = owner[g.first]
		sums[owner[i]] += costs[i]
		sum += costs[i]
	}
	if float64(slices.Max(sums)*n) <= 1.1*float64(sum) {
		return owner
	}
	return assign(costs, n)
}

// assign distributes parts of a work among n ranks with about equal costs: the most
// expensive remaining part goes to the rank with the least; ties go to the first.
func assign(costs []int, n int) (owner []int) {
	owner = make([]int, len(costs))
	if n == 1 {
		return owner
	}
	order := numbers(len(costs))
	slices.SortStableFunc(order, func(a, b int) int { return costs[b] - costs[a] })
	sums := make([]int, n)
	for _, i := range order {
		least := slices.Index(sums, slices.Min(sums))
		owner[i] = least
		sums[least] += costs[i]
	}
	return owner
}

// numbers are those from 0 to n-1.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// own lists the sequences that are this rank's.
func (c *crew) own(owner []int) (list []int) {
	for i, rank := range owner {
		if rank == c.ranks.Rank() {
			list = append(list, i)
		}
	}
	return list
}

// share fills x with the scores that other ranks have computed: owner says which rank has each
// sequence's. Sequences that the batch leaves out keep nil.
func (c *crew) share(owner []int, b Batch, x Scores) error {
	if c.ranks.Size() == 1 {
		return nil
	}
	for i, q := range b.Sequences {
		if owner[i] != c.ranks.Rank() && !b.leavesOut(i) { // Ranks.Share needs rows of the right length
			n := q.Count()
			x.LogProb[i], x.Entropy[i] = make([]float64, n), make([]float64, n)
			if x.SumSquares != nil {
				x.SumSquares[i] = make([]float64, n)
			}
		}
	}
	rows := [][][]float64{x.LogProb, x.Entropy}
	if x.SumSquares != nil {
		rows = append(rows, x.SumSquares)
	}
	return c.ranks.Share(owner, rows...)
}

// sharded says whether each rank updates a part of the weights.
func (c *crew) sharded() bool {
	return c.optimizer != nil && c.optimizer.Buckets() != nil
}

// shareWeights gives all ranks the weights that each has updated, as Programs read them (some as 16-bit copies), by their
// devices where these are linked, else through the host. If all ranks update all weights, there is nothing to do.
func (c *crew) shareWeights() error {
	if !c.sharded() {
		return nil
	}
	w, d := c.ring.Trained(), c.ranks.Device() // d is nil where elements pass through the host
	c.observe(metrics.PhaseReduce)
	for _, b := range c.optimizer.Buckets() {
		err := error(nil)
		if d != nil {
			err = d.Spread(w, b)
		} else {
			err = c.env.Spread(w, c.ranks.Rank(), b, c.ranks.Spread)
		}
		if err != nil {
			return err
		}
	}
	if d != nil {
		return d.Wait()
	}
	return nil
}

// spreadFloats is Ranks.Spread for elements.
func (c *crew) spreadFloats(x []float32, bounds []int) error {
	at := make([]int, len(bounds))
	for i, b := range bounds {
		at[i] = 4 * (b - bounds[0])
	}
	return c.ranks.Spread(models.Bytes(x[bounds[0]:bounds[len(bounds)-1]]), at)
}

// each calls move with the data of w for each bucket, one after the other; bounds are where the ranks' parts of
// a bucket begin and end.
func each(buckets [][]int, w *models.Weights, move func(x []float32, bounds []int) error) error {
	for _, b := range buckets {
		if err := move(w.Data, b); err != nil {
			return err
		}
	}
	return nil
}

// gradNorm returns the 2-norm of the summed gradients.
func (c *crew) gradNorm() (float64, error) {
	if !c.sharded() {
		return c.optimizer.GradNorm()
	}
	return c.optimizer.GradNormWith(func(sums []float64, owner []int) error {
		rows := make([][]float64, len(sums))
		for i := range sums {
			rows[i] = sums[i : i+1]
		}
		return c.ranks.Share(owner, rows)
	})
}

// state lists the optimizer's state in the order of the names.
func (c *crew) state() (list []*models.Weights) {
	for _, name := range slices.Sorted(maps.Keys(c.optimizer.State)) {
		list = append(list, c.optimizer.State[name])
	}
	return list
}

// Collect gathers all weights on the first rank and, if state is true, the optimizer's state,
// in the host's memory, for a checkpoint. Drop frees the parts of other ranks there. All ranks
// must call it; unless each of them updates a part, only the first does anything.
func (c *crew) Collect(state bool) error {
	w, first := c.ring.Trained(), c.ranks.Rank() == 0
	var parts []*models.Weights
	if state {
		parts = c.state()
	}
	switch {
	case !c.sharded() && first:
		return c.env.Download(append(parts, w)...)
	case !c.sharded():
		return nil
	case c.ranks.Size() == 1: // sharded before the other ranks were lost
		return errors.New("learn: the parts of what the optimizer updates that other ranks keep are gone with them: resume from the last checkpoint")
	}
	var err error
	if c.ring.Divided() { // each rank has only its part of the float32 weights
		parts = append(parts, w)
	} else if first {
		err = c.env.Download(w)
	}
	for _, x := range parts { // the others wait for this rank's part, even after an error
		err = errors.Join(err, c.env.DownloadPart(x, 0, len(x.Data))) // from the device, what this rank has of it
		if failed := each(c.optimizer.Buckets(), x, c.ranks.Collect); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err
}

// Drop frees the host's copies of what Collect has got.
func (c *crew) Drop() { c.env.Forget(append(c.state(), c.ring.Trained())...) }

// Give gives every rank the weights w, all of which each one has, as the first has them in the
// host's memory, and to all their devices.
func (c *crew) Give(w *models.Weights) error {
	if err := c.spreadFloats(w.Data, c.boundsOfFirst(w)); err != nil {
		return err
	}
	defer c.env.Forget(w)
	return c.env.Upload(w)
}

// boundsOfFirst are bounds by which the first rank has all elements.
func (c *crew) boundsOfFirst(w *models.Weights) []int {
	bounds := make([]int, c.ranks.Size()+1)
	for i := range bounds[1:] {
		bounds[1+i] = len(w.Data)
	}
	return bounds
}

// Follow gives every rank the weights that the first has in the host's memory, and the optimizer's state or its own
// part of it, and all of them to their devices: after the first has read a checkpoint.
func (c *crew) Follow() error {
	w, ranks := c.ring.Trained(), c.ranks
	all := c.boundsOfFirst(w)
	buckets, move := [][]int{all}, c.spreadFloats // every rank gets all of the state from the first
	if c.sharded() {
		buckets, move = c.optimizer.Buckets(), ranks.Scatter // each rank gets its part of it
	}
	if err := c.spreadFloats(w.Data, all); err != nil {
		return err
	}
	for _, x := range c.state() {
		if err := each(buckets, x, move); err != nil {
			return err
		}
	}
	if err := c.env.Upload(append(c.state(), w)...); err != nil {
		return err
	}
	c.Drop()
	return nil
}
