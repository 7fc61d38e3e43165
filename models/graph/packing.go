package graph

// A Packing says where packed tokens lie in rows of equal length.
type Packing struct {
	// Rows int64 [B,T] is the packed index of each place; any valid index
	// where a row is shorter than T.
	Rows *Node
	// Tokens int64 [N] is b*T+t for each packed token.
	Tokens *Node
	// Valid float32 [B,T,1] is 1 where a token is, 0 beyond the end of a row;
	// only gradients need it.
	Valid *Node
}

// Unpack lays packed tokens x [N,C] out in rows [B,T,C]. Places beyond the end
// of a row hold any token's values: what reads them must be masked.
func (p *Packing) Unpack(x *Node) *Node {
	operands("Unpack", x, p.Rows)
	if len(x.shape) != 2 || len(p.Rows.shape) != 2 {
		fail("Unpack: tokens %v and rows %v are not matrices", x.shape, p.Rows.shape)
	}
	return Gather(x, p.Rows).composite("Unpack", []*Node{x}, func(dy *Node) []*Node {
		return []*Node{p.Pack(dy)}
	})
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
		return []*Node{Mul(p.Unpack(dy), Cast(p.Valid, dy.elem))}
	})
}
