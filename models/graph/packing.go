package graph

// A Packing says where packed tokens lie in rows of equal length. Rows that begin with
// the same tokens may share them: a shared token is packed once.
type Packing struct {
	// Rows int64 [B,T] is the packed index of each place; any valid index where a row is shorter than T.
	Rows *Node
	// Tokens int64 [N] is b*T+t for each packed token: its place, or the one of several
	// places from which Pack takes it.
	Tokens *Node
	// Valid float32 [B,T,1] is 1 at the places of Tokens, 0 at all others; only gradients need it.
	Valid *Node
	// Copies int64 [M,J] are the places of the first M packed tokens, and Copied float32
	// [M,1,J] is 1 for each, 0 where a token has fewer than J. The other tokens have one
	// place. Only gradients need Copies and Copied; M is from 1 to N.
	Copies, Copied *Node
}

// Unpack lays packed tokens x [N,C] out in rows [B,T,C]. Places beyond the end of a row
// hold any token's values: they must be masked when read.
func (p *Packing) Unpack(x *Node) *Node {
	return p.unpack(x).composite("Unpack", []*Node{x}, func(dy *Node) []*Node {
		return []*Node{p.sum(dy)}
	})
}

// UnpackOnce is Unpack for a result that counts only at the places of Tokens: the
// gradient is taken from there, and has to be 0 elsewhere.
func (p *Packing) UnpackOnce(x *Node) *Node {
	return p.unpack(x).composite("UnpackOnce", []*Node{x}, func(dy *Node) []*Node {
		return []*Node{p.Pack(dy)}
	})
}

func (p *Packing) unpack(x *Node) *Node {
	operands("Unpack", x, p.Rows)
	if len(x.shape) != 2 || len(p.Rows.shape) != 2 {
		fail("Unpack: tokens %v and rows %v are not matrices", x.shape, p.Rows.shape)
	}
	return Gather(x, p.Rows)
}

// sum adds up the rows at the places of each token: rows [B,T,C] to packed tokens [N,C]. The first M
// tokens have several, summed by a product with Copied in its type, float32; the others have one.
func (p *Packing) sum(x *Node) *Node {
	if p.Copies == nil || p.Copied == nil {
		fail("Unpack: the gradient needs Copies and Copied")
	}
	operands("Unpack", x, p.Copies, p.Copied)
	if m := p.Copies.shape; len(m) != 2 || !p.Copied.shape.equal(Shape{m[0], Dim{N: 1}, m[1]}) {
		fail("Unpack: copies %v and copied %v are not [M,J] and [M,1,J]", p.Copies.shape, p.Copied.shape)
	}
	width := x.fixed("Unpack", "the operand", 2)
	flat := Reshape(x, -1, width)
	first := MatMul(p.Copied, Cast(Gather(flat, p.Copies), p.Copied.elem), plain, plain, 1)
	first = Cast(Reshape(first, -1, width), x.elem)
	own := Slice(p.Tokens, sizeOf(p.Copies, 0), sizeOf(p.Tokens, 0), 0, "O") // the places of the tokens behind the first M
	return concat(0, p.Tokens.shape[0], first, Gather(flat, own))
}

// Pack is the inverse of Unpack: rows [B,T,C] to packed tokens [N,C].
func (p *Packing) Pack(x *Node) *Node {
	operands("Pack", x, p.Rows, p.Tokens)
	if len(x.shape) != 3 || !x.shape[:2].equal(p.Rows.shape) || len(p.Tokens.shape) != 1 {
		fail("Pack: %v is not laid out as rows %v of tokens %v", x.shape, p.Rows.shape, p.Tokens.shape)
	}
	n := Gather(Reshape(x, -1, x.fixed("Pack", "the operand", 2)), p.Tokens)
	return n.composite("Pack", []*Node{x}, func(dy *Node) []*Node {
		if p.Valid == nil {
			fail("Pack: the gradient needs Valid")
		}
		return []*Node{Mul(Gather(dy, p.Rows), Cast(p.Valid, dy.elem))}
	})
}
