// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// sizedLibrary is a backend that is asked about fixed sizes.
type sizedLibrary struct{ library }

func (sizedLibrary) TakesSized() bool { return true }

// A backend that knows sizes is asked at several, and has what it takes at all of them and what no running decides.
func TestBackendsThatKnowSizes(t *testing.T) {
	open := relay.AnyDim
	m := relay.NewGraph("main")
	x := m.Var([]int64{open, 8}, "float32")
	exp := m.Call("exp", relay.Tensor("float32", open, 8), nil, x)
	relu := m.Call("nn.relu", relay.Tensor("float32", open, 8), nil, exp)
	found := m.Call("argwhere", relay.Tensor("int64", open, 2), nil, relu)
	again := m.Call("exp", relay.Tensor("int64", open, 2), nil, found)
	tanh := m.Call("tanh", relay.Tensor("float32", open, 8), nil, relu)
	some := m.Call("strided_slice", relay.Tensor("float32", open, 8), map[string]any{"begin": []int64{0},
		"end": []int64{100}, "strides": []int64{1}, "axes": []int64{0}, "slice_mode": "end"}, tanh)
	g := m.Finish(m.Tuple(again, tanh, some))
	g.Attrs = map[string]string{symbolic.SizesAttr: symbolic.Inputs{"v0": {{Name: "len", Least: 1, Most: 512}, {}}}.Text()}

	var asked []int64
	any := relay.Wildcard
	b := sizedLibrary{library{"dnnl", []byoc.Pattern{
		{Composite: "dnnl.exp", Shape: relay.Op("exp", any()), Limits: func(g *relay.Graph, m *relay.Match) error {
			shape := g.Nodes[m.Root].Type.Shape
			if shape[0] == relay.AnyDim {
				return errors.New("a size is open")
			}
			asked = append(asked, shape[0])
			return nil
		}},
		{Composite: "dnnl.relu", Shape: relay.Op("nn.relu", any()), Limits: func(g *relay.Graph, m *relay.Match) error {
			if g.Nodes[m.Root].Type.Shape[0] == 1 {
				return errors.New("one row")
			}
			return nil
		}},
		{Composite: "dnnl.argwhere", Shape: relay.Op("argwhere", any())},
		{Composite: "dnnl.slice", Shape: relay.Op("strided_slice", any())},
		{Composite: "dnnl.tanh", Shape: relay.Op("tanh", any()), Limits: func(*relay.Graph, *relay.Match) error {
			return errors.New("never")
		}},
	}}}
	set, err := Propose(g, []byoc.Backend{tvm, b}, Options{OpPattern: patterns})
	require.NoError(t, err)
	var taken []string
	for _, c := range set.Candidates {
		if c.Backend == "dnnl" {
			require.True(t, c.Open)
			require.False(t, c.Free)
			taken = append(taken, c.Label(g))
		}
	}
	require.Equal(t, []string{"dnnl.exp %1 on dnnl", "dnnl.exp %4 on dnnl"}, taken)
	require.Contains(t, asked, int64(1))
	reasons := map[string]string{}
	for _, r := range set.Refusals {
		reasons[r.Composite] = r.Reason
	}
	require.Equal(t, map[string]string{"dnnl.relu": "the backend takes it at some sizes of the open dimensions alone",
		"dnnl.argwhere": "a dimension is known only when it has been computed", "dnnl.tanh": "never",
		"dnnl.slice": "a size of its result is neither a polynomial of the open ones nor a quotient of such by a number"}, reasons)
}

// What reads another tensor for its sizes is a reshape where these are fixed, and reads that tensor where they are open.
func TestReshapesLikeOtherTensors(t *testing.T) {
	open := relay.AnyDim
	like := map[string]any{"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 0, "rhs_end": 2}
	float := func(shape ...int64) *relay.Type { return relay.Tensor("float32", shape...) }
	m := relay.NewGraph("main")
	x, ids := m.Var([]int64{open, open, 8}, "float32"), m.Var([]int64{open, open}, "int64")
	rows := m.Call("reshape", float(open, 8), map[string]any{"newshape": []int64{-1, 8}}, x)
	back := m.Call("reshape_like", float(open, open, 8), like, m.Call("exp", float(open, 8), nil, rows), x)
	ofIDs := m.Call("reshape_like", float(open, open, 8), like, m.Call("erf", float(open, 8), nil, rows), ids)
	within := m.Call("nn.relu", float(open, open, 8), nil, x)
	tanh := m.Call("tanh", float(open, open, 8), nil, within)
	ofWithin := m.Call("reshape_like", float(open, open, 8), like, m.Call("sqrt", float(open, 8), nil, rows), within)
	g := m.Finish(m.Tuple(back, ofIDs, tanh, ofWithin))
	sizes := []symbolic.Dimension{{Name: "batch", Least: 1, Most: 8}, {Name: "len", Least: 1, Most: 64}}
	g.Attrs = map[string]string{symbolic.SizesAttr: symbolic.Inputs{
		"v0": append(slices.Clone(sizes), symbolic.Dimension{}), "v1": sizes}.Text()}

	reshaped := func(op string) relay.Pattern { return relay.Op("reshape", relay.Op(op, relay.Wildcard())) }
	b := sizedLibrary{library{"dnnl", []byoc.Pattern{
		{Composite: "dnnl.exp", Shape: reshaped("exp")}, {Composite: "dnnl.erf", Shape: reshaped("erf")},
		{Composite: "dnnl.tanh", Shape: relay.Op("tanh", relay.Op("nn.relu", relay.Wildcard()))},
	}}}
	set, err := Propose(g, []byoc.Backend{tvm, b}, Options{OpPattern: patterns})
	require.NoError(t, err)
	for _, c := range set.Candidates {
		if c.Backend == "dnnl" {
			require.Equal(t, "dnnl.exp", c.Composite)
			require.Contains(t, c.Nodes, back)
		}
	}
	reasons := map[string]string{}
	for _, r := range set.Refusals {
		reasons[r.Composite] = r.Reason
	}
	require.Equal(t, map[string]string{
		"dnnl.erf":  fmt.Sprintf("it has sizes of %%%d, which is int64", ids),
		"dnnl.tanh": fmt.Sprintf("%%%d escapes: %%%d uses it outside", within, ofWithin),
	}, reasons)
}
