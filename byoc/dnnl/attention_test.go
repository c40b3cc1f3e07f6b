// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// heads is self-attention of two sequences of 5 tokens, 3 heads of 16, as front ends write it.
type heads struct {
	batch, tokens, heads, size int64
	// between changes the scores, which have the shape [batch, heads, tokens, tokens].
	between func(r maker, scores relay.NodeID) relay.NodeID
	// shared says that all heads read the same keys.
	shared bool
	// twice says that query and value are the same function of one tensor, each written by itself.
	twice bool
	// softmaxAxis is -1 unless it is set.
	softmaxAxis int64
	// escape is told the scores and the weights, which it may return beside the result.
	escape func(scores, weights relay.NodeID) []relay.NodeID
}

// graph makes [batch * tokens, heads * size] of three inputs of that shape.
func (h heads) graph() *relay.Graph {
	r := newRegion()
	units := h.heads * h.size
	flat := f(h.batch*h.tokens, units)
	count := h.batch * h.heads
	split := func(x relay.NodeID) relay.NodeID {
		apart := f(h.batch, h.tokens, h.heads, h.size)
		x = r.Call("reshape", apart, map[string]any{"newshape": apart.Shape}, x)
		turned := f(h.batch, h.heads, h.tokens, h.size)
		x = r.Call("transpose", turned, map[string]any{"axes": []int64{0, 2, 1, 3}}, x)
		return r.Call("reshape", f(count, h.tokens, h.size),
			map[string]any{"newshape": []int64{count, h.tokens, h.size}}, x)
	}
	a, b := r.Var(flat.Shape, f32), r.Var(flat.Shape, f32)
	if h.twice {
		b = r.Call("nn.relu", flat, nil, a)
		a = r.Call("nn.relu", flat, nil, a)
	}
	q, v := split(a), split(b)
	var k relay.NodeID
	if h.shared {
		one, all := f(h.batch, 1, h.tokens, h.size), f(h.batch, h.heads, h.tokens, h.size)
		k = r.Call("broadcast_to", all, map[string]any{"shape": all.Shape}, r.Var(one.Shape, f32))
		k = r.Call("reshape", f(count, h.tokens, h.size), map[string]any{"newshape": []int64{count, h.tokens, h.size}},
			k)
	} else {
		k = split(r.Var(flat.Shape, f32))
	}
	three := f(count, h.tokens, h.tokens)
	four := f(h.batch, h.heads, h.tokens, h.tokens)
	scores := r.Call("nn.batch_matmul", three, map[string]any{"transpose_a": false, "transpose_b": true}, q, k)
	scores = r.Call("reshape", four, map[string]any{"newshape": four.Shape}, scores)
	if h.between != nil {
		scores = h.between(r, scores)
	}
	axis := h.softmaxAxis
	if axis == 0 {
		axis = -1
	}
	weights := r.Call("nn.softmax", four, map[string]any{"axis": axis}, scores)
	rows := r.Call("reshape", three, map[string]any{"newshape": three.Shape}, weights)
	mixed := r.Call("nn.batch_matmul", f(count, h.tokens, h.size),
		map[string]any{"transpose_a": false, "transpose_b": false}, rows, v)
	apart := f(h.batch, h.heads, h.tokens, h.size)
	mixed = r.Call("reshape", apart, map[string]any{"newshape": apart.Shape}, mixed)
	mixed = r.Call("transpose", f(h.batch, h.tokens, h.heads, h.size), map[string]any{"axes": []int64{0, 2, 1, 3}},
		mixed)
	result := r.Call("reshape", flat, map[string]any{"newshape": flat.Shape}, mixed)
	if h.escape != nil {
		return r.Finish(r.Tuple(append(h.escape(scores, weights), result)...))
	}
	return r.Finish(result)
}

// proposed is a region function with the attentions that native proposes in it as composites; there must be so many.
func proposed(t *testing.T, g *relay.Graph, count int) *region.Program {
	t.Helper()
	p, err := region.FromGraph(g, "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	found := native.New(nil).(byoc.Proposer).Propose(g, nil)
	require.Len(t, found, count)
	others := len(p.Composites)
	for i, proposal := range found {
		i += others
		require.True(t, g.OneExit(proposal.Nodes), "%v", proposal.Nodes)
		p.Composites = append(p.Composites, proposal.Composite)
		last := 0
		for k := range p.Ops {
			if slices.Contains(proposal.Nodes, p.Ops[k].Node) {
				p.Ops[k].CompositeIndex = i
				last = k
			}
		}
		// A composite function's operators stand together.
		slices.SortStableFunc(p.Ops[:last+1], func(a, b region.Op) int {
			return cmp.Compare(min(a.CompositeIndex-i, 0), min(b.CompositeIndex-i, 0))
		})
	}
	for i := range p.Ops {
		for _, v := range p.Ops[i].Results {
			p.Values[v].Producer = i
		}
	}
	return p
}

// attended is what is emitted for a region with one attention.
func attended(t *testing.T, g *relay.Graph) (string, []region.ValueID) {
	t.Helper()
	return emitted(t, proposed(t, g, 1))
}

func TestOneDNNsProductsStayApart(t *testing.T) {
	got, _ := text(t, heads{batch: 1, tokens: 6, heads: 2, size: 16}.graph())
	require.NotContains(t, got, "attention")
	require.Equal(t, 2, strings.Count(got, `"op": "matmul"`))
	require.NotContains(t, got, `"kernel"`)
}

func TestAttentionIsOneOperation(t *testing.T) {
	masked := heads{batch: 2, tokens: 5, heads: 3, size: 16, between: func(r maker, scores relay.NodeID) relay.NodeID {
		four := f(2, 3, 5, 5)
		scores = r.Call("divide", four, nil, scores, r.Scalar(3, f32))
		return r.Call("add", four, nil, r.Var([]int64{2, 1, 1, 5}, f32), scores)
	}}
	g := masked.graph()
	goldenOf(t, "attention.json", proposed(t, g, 1))

	// A tensor of truths, and keys that are those of two heads each.
	masked.between = func(r maker, scores relay.NodeID) relay.NodeID {
		four := f(2, 3, 5, 5)
		scores = r.Call("where", four, nil, r.Var([]int64{2, 1, 5, 5}, "bool"), scores, r.Scalar(-10000, f32))
		return r.Call("add", four, nil, scores, r.Var([]int64{5}, f32))
	}
	masked.shared = true
	goldenOf(t, "attention_masks.json", proposed(t, masked.graph(), 1))

	got, _ := attended(t, heads{batch: 1, tokens: 64, heads: 8, size: 32}.graph())
	require.Equal(t, 1, strings.Count(got, `"op"`), got)
	require.NotContains(t, got, "alpha\": 0", "a scale of 1")
}

// What is computed once for both is what both are read from.
func TestQueryAndValueThatAreEqual(t *testing.T) {
	got, _ := attended(t, heads{batch: 2, tokens: 5, heads: 3, size: 16, twice: true}.graph())
	requireRunnable(t, []byte(got))
	require.Equal(t, 1, strings.Count(got, `"op": "eltwise"`), got)
}

func TestWhatIsNotAttention(t *testing.T) {
	add := func(shape ...int64) func(r maker, scores relay.NodeID) relay.NodeID {
		return func(r maker, scores relay.NodeID) relay.NodeID {
			return r.Call("add", f(1, 2, 6, 6), nil, scores, r.Var(shape, f32))
		}
	}
	base := heads{batch: 1, tokens: 6, heads: 2, size: 16}
	for name, change := range map[string]func(h *heads){
		"softmax over queries": func(h *heads) { h.softmaxAxis = 2 },
		"scores read elsewhere": func(h *heads) {
			h.escape = func(scores, _ relay.NodeID) []relay.NodeID { return []relay.NodeID{scores} }
		},
		"weights read elsewhere": func(h *heads) {
			h.escape = func(_, weights relay.NodeID) []relay.NodeID { return []relay.NodeID{weights} }
		},
		"scale after the mask": func(h *heads) {
			h.between = func(r maker, scores relay.NodeID) relay.NodeID {
				return r.Call("multiply", f(1, 2, 6, 6), nil, add(6, 6)(r, scores), r.Scalar(0.5, f32))
			}
		},
		"three masks": func(h *heads) {
			h.between = func(r maker, scores relay.NodeID) relay.NodeID {
				return add(6, 1)(r, add(6, 6)(r, add(1, 6)(r, scores)))
			}
		},
		"a function between": func(h *heads) {
			h.between = func(r maker, scores relay.NodeID) relay.NodeID {
				return r.Call("tanh", f(1, 2, 6, 6), nil,
					scores)
			}
		},
		"a number is added": func(h *heads) {
			h.between = func(r maker, scores relay.NodeID) relay.NodeID {
				return r.Call("add", f(1, 2, 6, 6), nil, scores, r.Scalar(2, f32))
			}
		},
		"scores times scores": func(h *heads) {
			h.between = func(r maker, scores relay.NodeID) relay.NodeID {
				return r.Call("multiply", f(1, 2, 6, 6), nil, scores, scores)
			}
		},
	} {
		h := base
		change(&h)
		proposed(t, h.graph(), 0)
		// Nor where somebody calls it attention all the same.
		p, err := region.FromGraph(h.graph(), "s")
		require.NoError(t, err)
		p.Composites = []string{native.Attention}
		for k := range p.Ops {
			p.Ops[k].CompositeIndex = 0
		}
		_, _, err = emit(p)
		require.ErrorContains(t, err, "native.attention: its body is not what the name says", name)
	}

	// Masks that are attention: of each broadcast.
	for _, shape := range [][]int64{{6, 6}, {1, 6}, {6}, {2, 6, 6}, {2, 1, 6}, {2, 6, 1}, {1, 2, 6, 6}, {1, 1, 1, 1}} {
		h := base
		h.between = add(shape...)
		got, _ := attended(t, h.graph())
		require.Contains(t, got, "attention", relay.ShapeText(shape))
	}
}

func TestTheRestOfAttentionStays(t *testing.T) {
	// The transposed keys are a result, too: they are made as they were, and attention reads what they are made of.
	r := newRegion()
	x := r.Var([]int64{6, 32}, f32)
	split := func() relay.NodeID {
		y := r.Call("reshape", f(6, 2, 16), map[string]any{"newshape": []int64{6, 2, 16}}, x)
		return r.Call("transpose", f(2, 6, 16), map[string]any{"axes": []int64{1, 0, 2}}, y)
	}
	keys := split()
	scores := r.Call("nn.batch_matmul", f(2, 6, 6), map[string]any{"transpose_a": false, "transpose_b": true}, split(),
		keys)
	weights := r.Call("nn.softmax", f(2, 6, 6), map[string]any{"axis": -1}, scores)
	mixed := r.Call("nn.batch_matmul", f(2, 6, 16), map[string]any{"transpose_a": false, "transpose_b": false}, weights,
		split())
	got, _ := attended(t, r.Finish(r.Tuple(mixed, keys)))
	require.Equal(t, 1, strings.Count(got, `"op": "attention"`))
	require.Equal(t, 1, strings.Count(got, `"op": "transpose"`))
	require.Contains(t, got, `"in": [0, 0, 0]`)
}
