package ranks

import (
	"onering/models"
	"onering/runtime"
)

// atOnce is how many elements are summed at once, by all ranks together. The copies of
// other ranks' elements take as much memory again.
const atOnce = 4 << 20

// Share implements learn.Ranks: row i of each table is filled on all ranks with what the rank owner[i] has in it. Every
// rank sends all of its rows as one message.
func (g *Group) Share(owner []int, tables ...[][]float64) error {
	if g.Size() == 1 {
		return nil
	}
	flat := make([][]float64, g.Size()) // by rank, all of its rows, one behind the other
	eachRow := func(f func(rank int, row []float64)) {
		for _, table := range tables {
			for i, row := range table {
				f(owner[i], row)
			}
		}
	}
	sizes := make([]int, g.Size())
	eachRow(func(r int, row []float64) { sizes[r] += len(row) })
	for r := range flat {
		flat[r] = make([]float64, 0, sizes[r])
	}
	eachRow(func(r int, row []float64) { flat[r] = append(flat[r], row...) })
	own := models.Bytes(flat[g.Rank()])
	if err := g.exchange(tagRows, func(int) []byte { return own }, func(r int) []byte { return models.Bytes(flat[r]) }); err != nil {
		return err
	}
	eachRow(func(r int, row []float64) { flat[r] = flat[r][copy(row, flat[r]):] }) // copies and steps to the next row
	return nil
}

// SumParts implements learn.Ranks.
func (g *Group) SumParts(x []float32, bounds []int) error {
	return g.inPortions(bounds, func(from, to []int) error { return g.add(x, from, to) })
}

// inPortions calls add, one time after the other, with portions of all ranks' parts of a bucket: those from from[r] to
// to[r]-1 of rank r, about atOnce elements together. It counts what this rank sends of them.
func (g *wire) inPortions(bounds []int, add func(from, to []int) error) error {
	longest := 0
	for r := range g.Size() {
		longest = max(longest, bounds[r+1]-bounds[r])
	}
	step := max(1, atOnce/g.Size())
	for first := 0; first < longest && g.Size() > 1; first += step {
		from, to := make([]int, g.Size()), make([]int, g.Size())
		for r := range from {
			from[r], to[r] = min(bounds[r]+first, bounds[r+1]), min(bounds[r]+first+step, bounds[r+1])
			if r != g.Rank() {
				g.sent.Add(int64(4 * (to[r] - from[r])))
			}
		}
		if err := add(from, to); err != nil {
			return err
		}
	}
	return nil
}

// add replaces the elements from[r] to to[r]-1 of x, where r is this rank, by their sums over the ranks, in the order of
// the ranks: ((x0 + x1) + x2) + ... It sends the elements of every other rank's range to that rank.
func (g *Group) add(x []float32, from, to []int) error {
	rank := g.Rank()
	own := x[from[rank]:to[rank]]
	terms := make([][]float32, g.Size()) // by rank, its values of these elements
	if need := len(own) * (g.Size() - 1); len(g.received) < need {
		g.received = make([]float32, need)
	}
	free := g.received
	for r := range terms {
		terms[r] = own
		if r != rank {
			terms[r], free = free[:len(own)], free[len(own):]
		}
	}
	err := g.exchange(tagReduce,
		func(r int) []byte { return models.Bytes(x[from[r]:to[r]]) },
		func(r int) []byte { return models.Bytes(terms[r]) })
	if err != nil {
		return err
	}
	sum := terms[0] // adding in place: on rank 0 this is own
	for _, term := range terms[1:] {
		for i, v := range term {
			sum[i] += v
		}
	}
	copy(own, sum)
	return nil
}

// Spread implements learn.Ranks.
func (g *Group) Spread(x []byte, at []int) error {
	if g.Size() == 1 {
		return nil
	}
	own := x[at[g.Rank()]:at[g.Rank()+1]]
	g.sent.Add(int64(len(own) * (g.Size() - 1)))
	return g.exchange(tagSpread, func(int) []byte { return own }, func(r int) []byte { return x[at[r]:at[r+1]] })
}

// Collect implements learn.Ranks.
func (g *Group) Collect(x []float32, bounds []int) error { return g.withFirst(x, bounds, true) }

// Scatter implements learn.Ranks.
func (g *Group) Scatter(x []float32, bounds []int) error { return g.withFirst(x, bounds, false) }

// withFirst moves the elements of each other rank between it and the first: to the first, or from there.
func (g *Group) withFirst(x []float32, bounds []int, toFirst bool) error {
	part := func(of, with int) []byte {
		if with > 0 {
			return nil
		}
		return models.Bytes(x[bounds[of]:bounds[of+1]])
	}
	own := func(r int) []byte { return part(g.Rank(), r) }    // passes between the first and this rank
	others := func(r int) []byte { return part(r, g.Rank()) } // between the first rank and the others
	if toFirst {
		return g.exchange(tagSpread, own, others)
	}
	return g.exchange(tagSpread, others, own)
}

// Volume returns how many bytes of gradients and weights rank of n ranks sends in a step whose elements are in
// such buckets (see learn.Stepper.Buckets): its sums, or weights, to all others (bytes gives the size of a
// range), and to each other rank the gradients of that rank's share. With even shares in float32, that is 4
// bytes a gradient times 2 (n-1)/n.
func Volume(rank, n int, buckets [][]int, gathered func(from, to int) int64) (bytes int64) {
	for _, b := range buckets {
		bytes += 4*int64(b[n]-b[0]-(b[rank+1]-b[rank])) + gathered(b[rank], b[rank+1])*int64(n-1)
	}
	return bytes
}

// messageBytes is how much of a message a transport holds at most.
const messageBytes = 4 << 20

// Needs returns the memory that each of n ranks needs to sum so many gradients: received elements, messages to
// and from each rank for one bucket to sum and one to spread; and on the CPU the measured needs of Open MPI.
// With a GPU this is the host's memory, plus a copy of the gradients.
func Needs(n, gradients int, gpu bool) []runtime.Need {
	share := 4 * int64((min(atOnce, gradients)+n-1)/n) // elements of a bucket
	sums := int64(n-1) * (share + 4*min(messageBytes, share))
	if gpu {
		return []runtime.Need{{What: "reduction", Host: sums + 4*int64(gradients)}}
	}
	return []runtime.Need{{What: "reduction", Device: sums}, {What: "other", Device: 12e6}}
}
