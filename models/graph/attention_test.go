package graph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
)

// TestAttentionHoldsOneBlock: for any order in which a runtime runs the nodes of
// attention and its gradient, no value of the size of a block's scores outlives the block
// if InTurn is set. For 4,096 tokens, 12 heads and 8 blocks that is at most 100 MB for
// each such value, while all blocks are 452 MB and scores that are not cut into blocks
// 805 MB.
func TestAttentionHoldsOneBlock(t *testing.T) {
	const blocks, heads, tokens = 8, 12, 4096
	for _, elem := range []models.DType{models.F32, models.BF16, models.F16} {
		for _, stashed := range []bool{false, true} {
			for _, inTurn := range []bool{false, true} {
				var values []*graph.Node
				var together map[[2]*graph.Node]bool
				p, err := graph.Build("attention", func(g *graph.Graph) {
					in := func(name string, n int) *graph.Node { return g.Input(name, elem, graph.Dims("B", "T", n*16)) }
					q, k, v := in("q", heads), in("k", 2), in("v", 2)
					bounds := g.Input("bounds", models.I64, graph.Dims(blocks+1))
					o := graph.CausalAttention(q, k, v, g.Float("mask", "T", "T"), bounds,
						graph.Attention{Heads: heads, KVHeads: 2, Blocks: blocks, InTurn: inTurn})
					if stashed {
						o.Stash(in("o", heads))
					} else {
						g.Output("y", o)
					}
					for i, d := range graph.Gradient([]*graph.Node{o}, []*graph.Node{in("dy", heads)}, []*graph.Node{q, k, v}) {
						g.Output(fmt.Sprint("d", i), d)
					}
					values, together = g.Alive(func(op string, s graph.Shape) bool { return block(s) != "" })
				})
				graphtest.Loaded(t, p, err)
				kept := func() string {
					for pair := range together {
						a, b := pair[0], pair[1]
						if block(a.Shape()) != block(b.Shape()) || a.Op() == "Softmax" && b.Op() == "Softmax" {
							return fmt.Sprintf("%s %v and %s %v", a.Op(), a.Shape(), b.Op(), b.Shape())
						}
					}
					return ""
				}()
				name := fmt.Sprintf("%v, stashed %v, in turn %v", elem, stashed, inTurn)
				if inTurn && kept != "" {
					t.Errorf("%s: %s can be held at once", name, kept)
				}
				if !inTurn && kept == "" {
					t.Errorf("%s: the test finds nothing where all blocks are held", name)
				}
				// These values are the scores, the masked scores, the probabilities, dP, dP less
				// delta, dS, and the mask.
				if stashed && len(values) < 7*blocks {
					t.Errorf("%s: %d values of the size of scores, want at least %d", name, len(values), 7*blocks)
				}
			}
		}
	}
	one := 4 * heads * (tokens / blocks) * tokens
	all, whole := one*(blocks+1)/2, 4*heads*tokens*tokens
	if one/1e6 != 100 || all/1e6 != 452 || whole/1e6 != 805 {
		t.Errorf("a block's scores are %d MB, all %d MB, unblocked %d MB", one/1e6, all/1e6, whole/1e6)
	}
}

// block names the queries that a value of scores belongs to, "" for others.
func block(s graph.Shape) string {
	if len(s) < 2 {
		return ""
	}
	q, k := s[len(s)-2].Letters, s[len(s)-1].Letters
	i := slices.IndexFunc(strings.Split(q, "*"), func(l string) bool { return strings.HasPrefix(l, "Tq") })
	if i < 0 || !strings.HasPrefix(k, "Tk") && k != "T" {
		return ""
	}
	return q
}
