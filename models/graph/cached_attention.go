package graph

import (
	"onering/models"
	"onering/models/onnx"
)

// A Cache holds the keys and values of one layer: [B,G,S,K] each.
type Cache struct{ K, V *Node }

// GroupQueryAttention is the contrib operator over cached keys and values: qkv [B,T,(H+2G)*K] packed, seqlens
// int32 [B] and total int32 [] as its documentation asks (a first prompt: length-1 and T; one more token:
// tokens cached before it, and the largest of those plus 1), cos and sin [P,K/2]. It turns queries and keys,
// appends to the cache and returns [B,T,H*K] and the cache, which shares past's buffers. Without cos and sin
// queries and keys are not turned. K must be a multiple of 16.
func GroupQueryAttention(qkv *Node, past Cache, seqlens, total, cos, sin *Node, form Attention) (*Node, Cache) {
	const op = "GroupQueryAttention"
	heads, kvHeads := form.Heads, form.KVHeads
	floats(op, qkv, past.K, past.V)
	operands(op, qkv, seqlens, total)
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 {
		fail("%s: %d heads, %d key heads", op, heads, kvHeads)
	}
	if len(qkv.shape) != 3 || len(past.K.shape) != 4 {
		fail("%s: qkv %v and cache %v are not [B,T,(H+2G)*K] and [B,G,S,K]", op, qkv.shape, past.K.shape)
	}
	width := qkv.fixed(op, "qkv", 2) / (heads + 2*kvHeads)
	qkv.shaped(op, "qkv", Shape{qkv.shape[0], qkv.shape[1], {N: (heads + 2*kvHeads) * width}})
	past.K.shaped(op, "the cache", Shape{qkv.shape[0], {N: kvHeads}, past.K.shape[2], {N: width}})
	past.V.shaped(op, "the cache of values", past.K.shape)
	seqlens.typed(op, "seqlens", models.I32)
	seqlens.shaped(op, "seqlens", qkv.shape[:1])
	total.typed(op, "total", models.I32)
	total.shaped(op, "total", Shape{})
	if cos != nil || sin != nil {
		floats(op, qkv, cos, sin)
		if len(cos.shape) != 2 {
			fail("%s: cos of shape %v is not [P,K/2]", op, cos.shape)
		}
		cos.shaped(op, "cos", Shape{cos.shape[0], {N: width / 2}})
		sin.shaped(op, "sin", cos.shape)
	}
	s := Shape{qkv.shape[0], qkv.shape[1], Dim{N: heads * width}}
	rotary := 0
	if cos != nil {
		rotary = 1
	}
	attrs := []onnx.Attr{attr("num_heads", heads), attr("kv_num_heads", kvHeads), attr("do_rotary", rotary), attr("scale", float32(form.scale(width)))}
	if form.Window > 0 {
		attrs = append(attrs, attr("local_window_size", form.Window))
	}
	if form.Cap > 0 {
		attrs = append(attrs, attr("softcap", float32(form.Cap)))
	}
	// Inputs 1 and 2 would be keys and values, which are packed in qkv here.
	out := qkv.g.calls("GroupQueryAttention", onnx.Microsoft,
		[]models.DType{qkv.elem, past.K.elem, past.V.elem}, []Shape{s, past.K.shape, past.V.shape},
		[]*Node{qkv, nil, nil, past.K, past.V, seqlens, total, cos, sin}, attrs...)
	return out[0], Cache{out[1], out[2]}
}

// Rows reshapes x [B*T,C] to [B,T,C], by the ids [B,T] from which x was computed.
func Rows(x, ids *Node) *Node {
	operands("Rows", x, ids)
	if len(x.shape) != 2 || len(ids.shape) != 2 || x.shape[0] != ids.shape.size() {
		fail("Rows: %v has no row for each of ids %v", x.shape, ids.shape)
	}
	x.fixed("Rows", "the operand", 1)
	if tokens := ids.shape[1]; tokens.Letters == "" {
		return Reshape(x, -1, tokens.N, x.shape[1].N)
	}
	shape := Concat(0, sizeOf(ids, 0), sizeOf(ids, 1), x.g.Ints(int64(x.shape[1].N))) // Reshape infers only one letter
	return x.g.call("Reshape", "", x.elem, append(append(Shape{}, ids.shape...), x.shape[1]), []*Node{x, shape})
}
