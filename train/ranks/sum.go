package ranks

import "unsafe"

// bucket is how many elements are summed at once, by all ranks together. Their copies
// of other ranks take as much memory again.
const bucket = 4 << 20

// bytesOf is the memory of floats.
func bytesOf[F float32 | float64](x []F) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(F(0))))
}

// Share implements learn.Ranks.
func (g *Group) Share(owner []int, rows ...[][]float64) error {
	if g.Size() == 1 {
		return nil
	}
	flat := make([][]float64, g.Size())
	each := func(f func(rank int, row []float64)) {
		for _, table := range rows {
			for i, row := range table {
				f(owner[i], row)
			}
		}
	}
	sizes := make([]int, g.Size())
	each(func(r int, row []float64) { sizes[r] += len(row) })
	for r := range flat {
		flat[r] = make([]float64, 0, sizes[r])
	}
	each(func(r int, row []float64) { flat[r] = append(flat[r], row...) })
	own := bytesOf(flat[g.Rank()])
	if err := g.exchange(tagRows, func(int) []byte { return own }, func(r int) []byte { return bytesOf(flat[r]) }); err != nil {
		return err
	}
	each(func(r int, row []float64) { flat[r] = flat[r][copy(row, flat[r]):] })
	return nil
}

// Sum implements learn.Ranks. Each rank adds the elements of its part of a bucket, and
// gives the sums to the others.
func (g *Group) Sum(x []float32) error {
	for first := 0; first < len(x) && g.Size() > 1; first += bucket {
		part := x[first:min(first+bucket, len(x))]
		bounds := even(len(part), g.Size())
		if err := g.addOwn(part, bounds); err != nil {
			return err
		}
		if err := g.Spread(part, bounds); err != nil {
			return err
		}
	}
	return nil
}

// even cuts n elements into parts of about the same size.
func even(n, parts int) []int {
	bounds := make([]int, parts+1)
	for i := range bounds {
		bounds[i] = int(int64(n) * int64(i) / int64(parts))
	}
	return bounds
}

// SumParts implements learn.Ranks.
func (g *Group) SumParts(x []float32, bounds []int) error {
	longest := 0
	for r := range g.Size() {
		longest = max(longest, bounds[r+1]-bounds[r])
	}
	step := max(1, bucket/g.Size())
	for first := 0; first < longest && g.Size() > 1; first += step {
		// The same share of each rank's part at a time.
		from, to := make([]int, g.Size()), make([]int, g.Size())
		for r := range from {
			from[r], to[r] = min(bounds[r]+first, bounds[r+1]), min(bounds[r]+first+step, bounds[r+1])
		}
		if err := g.add(x, from, to); err != nil {
			return err
		}
	}
	return nil
}

// addOwn sums the elements of this rank's part over all ranks.
func (g *Group) addOwn(x []float32, bounds []int) error {
	return g.add(x, bounds[:len(bounds)-1], bounds[1:])
}

// add sums the elements from[r] to to[r]-1 of rank r at that rank, in the order of the
// ranks: ((x0 + x1) + x2) + ...
func (g *Group) add(x []float32, from, to []int) error {
	rank := g.Rank()
	own := x[from[rank]:to[rank]]
	others := make([][]float32, g.Size())
	if need := len(own) * (g.Size() - 1); len(g.received) < need {
		g.received = make([]float32, need)
	}
	free := g.received
	for r := range others {
		others[r] = own
		if r != rank {
			others[r], free = free[:len(own)], free[len(own):]
			g.sent.Add(int64(4 * (to[r] - from[r])))
		}
	}
	err := g.exchange(tagReduce,
		func(r int) []byte { return bytesOf(x[from[r]:to[r]]) },
		func(r int) []byte { return bytesOf(others[r]) })
	if err != nil {
		return err
	}
	sum := others[0]
	for _, other := range others[1:] {
		for i, v := range other {
			sum[i] += v
		}
	}
	copy(own, sum)
	return nil
}

// Spread implements learn.Ranks.
func (g *Group) Spread(x []float32, bounds []int) error {
	if g.Size() == 1 {
		return nil
	}
	own := bytesOf(x[bounds[g.Rank()]:bounds[g.Rank()+1]])
	g.sent.Add(int64(len(own) * (g.Size() - 1)))
	return g.exchange(tagSpread, func(int) []byte { return own }, func(r int) []byte { return bytesOf(x[bounds[r]:bounds[r+1]]) })
}

// Collect implements learn.Ranks.
func (g *Group) Collect(x []float32, bounds []int) error {
	none := []byte(nil)
	return g.exchange(tagSpread,
		func(r int) []byte {
			if r > 0 {
				return none
			}
			return bytesOf(x[bounds[g.Rank()]:bounds[g.Rank()+1]])
		},
		func(r int) []byte {
			if g.Rank() > 0 {
				return none
			}
			return bytesOf(x[bounds[r]:bounds[r+1]])
		})
}

// Scatter implements learn.Ranks.
func (g *Group) Scatter(x []float32, bounds []int) error {
	none := []byte(nil)
	return g.exchange(tagSpread,
		func(r int) []byte {
			if g.Rank() > 0 {
				return none
			}
			return bytesOf(x[bounds[r]:bounds[r+1]])
		},
		func(r int) []byte {
			if r > 0 {
				return none
			}
			return bytesOf(x[bounds[g.Rank()]:bounds[g.Rank()+1]])
		})
}

// Volume returns how many bytes of gradients and weights this rank sends in a step that
// changes so many elements; bounds are the ranks' parts, nil without parts.
func (g *Group) Volume(elements int, bounds []int) (bytes int64) {
	return Volume(g.Rank(), g.Size(), elements, bounds)
}

// Volume is Group.Volume of a rank of n.
func Volume(rank, n, elements int, bounds []int) (bytes int64) {
	send := func(size int, bounds []int) {
		own := bounds[rank+1] - bounds[rank]
		bytes += 4 * int64(size-own+own*(n-1))
	}
	switch {
	case n == 1:
	case bounds != nil:
		send(elements, bounds)
	default:
		for first := 0; first < elements; first += bucket {
			size := min(bucket, elements-first)
			send(size, even(size, n))
		}
	}
	return bytes
}

// Buffers returns how many bytes the sum of so many elements takes beside them in each of
// n ranks: what the others have sent, and messages on their way to and from each.
func Buffers(n, elements int) int64 {
	share := 4 * int64((min(bucket, elements)+n-1)/n) // of a bucket
	return int64(n-1) * (share + 2*min(part, share))
}
