package graph

// CausalConv is the convolution of each channel of rows x [B,T,C] with its own weights w [C,1,L]: y[t] is the
// sum over j of w[j] x[t-L+1+j]. before [B,L-1,C] stands in front of x; nil means zeros. It also returns x with
// that in front, [B,T+L-1,C], whose last L-1 tokens are what later tokens need.
func CausalConv(x, w, before *Node) (y, joined *Node) {
	const op = "CausalConv"
	floats(op, x, w)
	if len(x.shape) != 3 || len(w.shape) != 3 {
		fail("%s: rows %v and weights %v are not [B,T,C] and [C,1,L]", op, x.shape, w.shape)
	}
	channels, taps, g := x.fixed(op, "x", 2), w.fixed(op, "w", 2), x.g
	w.shaped(op, "w", Dims(channels, 1, taps))
	long := Dim{N: 1, Letters: "Tw"} // T+L-1, which takes a letter of its own unless T is a number
	if t := x.shape[1]; t.Letters == "" {
		long = Dim{N: t.N + taps - 1}
	}
	if before == nil {
		joined = Pad(x, g.Ints(int64(taps-1)), g.Ints(0), 1, long)
	} else {
		floats(op, x, before)
		before.shaped(op, "what stands before", Shape{x.shape[0], {N: taps - 1}, x.shape[2]})
		joined = concat(1, long, before, x)
	}
	columns := Transpose(Reshape(w, channels, taps), 1, 0) // [L,C]
	length := sizeOf(x, 1)
	for j := range taps {
		at := g.Ints(int64(j))
		moved := Slice(joined, at, Add(length, at), 1, x.shape[1])
		term := Mul(moved, Slice(columns, at, g.Ints(int64(j+1)), 0, 1))
		if y == nil {
			y = term
			continue
		}
		y = Add(y, term)
	}
	return y, joined
}
