// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/view"
	"github.com/collage-tvm/collage/relay"
)

// scored is attention of 2 heads, 4 queries, 6 keys and 8 numbers, with something done to the scores [2, 4, 6].
type scored struct {
	m *relay.GraphMaker
	// data are the elements of constants.
	data map[relay.NodeID][]byte
}

var scores = f(2, 4, 6)

func newScored() scored { return scored{relay.NewGraph("main"), map[relay.NodeID][]byte{}} }

// tensor makes a constant with these elements.
func (s scored) tensor(t *testing.T, shape []int64, dtype string, elements any) relay.NodeID {
	t.Helper()
	var data bytes.Buffer
	require.NoError(t, binary.Write(&data, binary.LittleEndian, elements))
	id := s.m.Const(shape, dtype)
	s.data[id] = data.Bytes()
	return id
}

// find is what is found where the softmax is of what between makes of the scores.
func (s scored) find(between func(scores relay.NodeID) relay.NodeID) *AttentionLayer {
	m := s.m
	q, k, v := m.Var([]int64{2, 4, 8}, f32), m.Var([]int64{2, 6, 8}, f32), m.Var([]int64{2, 6, 8}, f32)
	product := m.Call("nn.batch_matmul", scores, map[string]any{"transpose_a": false, "transpose_b": true}, q, k)
	softmax := m.Call("nn.softmax", scores, map[string]any{"axis": -1}, between(product))
	g := m.Finish(m.Call("nn.batch_matmul", f(2, 4, 8), map[string]any{"transpose_a": false, "transpose_b": false},
		softmax, v))
	c := constantsOf(g)
	c.data = func(id relay.NodeID) ([]byte, error) {
		if data, ok := s.data[id]; ok {
			return data, nil
		}
		return nil, errors.New("no data")
	}
	return attentionAt(g, softmax, c)
}

// stairs is a mask of 4 queries and 6 keys: kept for those that a query sees, beyond for the others.
func stairs[T any](sees int, kept, beyond T) []T {
	var all []T
	for q := range 4 {
		for k := range 6 {
			if k < q+sees {
				all = append(all, kept)
			} else {
				all = append(all, beyond)
			}
		}
	}
	return all
}

func TestTriangles(t *testing.T) {
	infinite := float32(math.Inf(-1))
	odd := stairs[float32](3, 0, -1e9)
	odd[7] = -1e8
	hole := stairs[float32](3, 0, -1e9)
	hole[0] = -1e9
	for name, c := range map[string]struct {
		added    []float32
		triangle bool
		sees     int64
		beyond   float64
	}{
		"a decoder's":         {stairs(3, 0, infinite), true, 3, math.Inf(-1)},
		"of the first key":    {stairs[float32](1, 0, -1e4), true, 1, -1e4},
		"queries without any": {stairs[float32](-1, 0, -1e9), true, -1, -1e9},
		"not much":            {stairs[float32](3, 0, -10), false, 0, 0},
		"one is another":      {odd, false, 0, 0},
		"a hole":              {hole, false, 0, 0},
		"all":                 {stairs[float32](-9, 0, -1e9), false, 0, 0},
		"something is added":  {stairs[float32](3, 1, -1e9), false, 0, 0},
	} {
		for _, shape := range [][]int64{{4, 6}, {1, 4, 6}} {
			s := newScored()
			mask := s.tensor(t, shape, f32, c.added)
			layer := s.find(func(x relay.NodeID) relay.NodeID { return s.m.Call("add", scores, nil, mask, x) })
			require.NotNil(t, layer, name)
			require.Len(t, layer.Masks, 1, name)
			got := layer.Masks[0]
			require.Equal(t, []any{c.triangle, c.sees, c.beyond}, []any{got.Triangle, got.Sees, got.Beyond}, name)
		}
	}

	// Of truths, either way.
	for _, keeps := range []bool{true, false} {
		s := newScored()
		truths := s.tensor(t, []int64{4, 6}, "bool", stairs(3, keeps, !keeps))
		layer := s.find(func(x relay.NodeID) relay.NodeID {
			sides := []relay.NodeID{x, s.m.Scalar(-1e9, f32)}
			if !keeps {
				sides[0], sides[1] = sides[1], sides[0]
			}
			return s.m.Call("where", scores, nil, truths, sides[0], sides[1])
		})
		require.NotNil(t, layer)
		mask := layer.Masks[0]
		mask.moves = nil
		require.Equal(t, Mask{Side: Side{Of: truths}, Chooses: true, Keeps: keeps, Fill: -1e9, Triangle: true, Sees: 3,
			Beyond: -1e9}, mask)
	}

	// One for each head is none, though its elements are stairs; nor one whose elements cannot be read.
	s := newScored()
	each := s.tensor(t, []int64{2, 4, 6}, f32, append(stairs[float32](3, 0, -1e9), stairs[float32](3, 0, -1e9)...))
	layer := s.find(func(x relay.NodeID) relay.NodeID { return s.m.Call("add", scores, nil, each, x) })
	require.False(t, layer.Masks[0].Triangle)
	s = newScored()
	unknown := s.m.Const([]int64{4, 6}, f32)
	layer = s.find(func(x relay.NodeID) relay.NodeID { return s.m.Call("add", scores, nil, unknown, x) })
	require.False(t, layer.Masks[0].Triangle)
}

func TestMasksThatAreNone(t *testing.T) {
	s := newScored()
	zeros := s.tensor(t, []int64{4, 6}, f32, make([]float32, 24))
	layer := s.find(func(x relay.NodeID) relay.NodeID {
		half := s.m.Scalar(0.5, f32)
		return s.m.Call("multiply", scores, nil, s.m.Call("add", scores, nil, zeros, x), half)
	})
	require.NotNil(t, layer)
	require.Empty(t, layer.Masks)
	require.InDelta(t, 0.5, layer.Scale, 0)

	for name, between := range map[string]func(s scored, x relay.NodeID) relay.NodeID{
		"a choice of integers": func(s scored, x relay.NodeID) relay.NodeID {
			return s.m.Call("where", scores, nil, s.m.Var([]int64{4, 6}, "int32"), x, s.m.Scalar(-1, f32))
		},
		"a choice between tensors": func(s scored, x relay.NodeID) relay.NodeID {
			return s.m.Call("where", scores, nil, s.m.Var([]int64{4, 6}, "bool"), x, s.m.Var([]int64{4, 6}, f32))
		},
		"replaced by what is no number": func(s scored, x relay.NodeID) relay.NodeID {
			return s.m.Call("where", scores, nil, s.m.Var([]int64{4, 6}, "bool"), x, s.m.Scalar(math.NaN(), f32))
		},
		"an infinite scale": func(s scored, x relay.NodeID) relay.NodeID {
			return s.m.Call("multiply", scores, nil, x, s.m.Scalar(math.Inf(1), f32))
		},
		"divided by nothing": func(s scored, x relay.NodeID) relay.NodeID {
			return s.m.Call("divide", scores, nil, x, s.m.Scalar(0, f32))
		},
		"a number divided": func(s scored, x relay.NodeID) relay.NodeID {
			return s.m.Call("divide", scores, nil, s.m.Scalar(2, f32), x)
		},
	} {
		s := newScored()
		require.Nil(t, s.find(func(x relay.NodeID) relay.NodeID { return between(s, x) }), name)
	}
}

func TestPlaces(t *testing.T) {
	seen := func(shape []int64, axes []int64, to ...int64) view.View {
		v, ok := view.Plain(shape).Permuted(axes).Reshaped(to)
		require.True(t, ok)
		return v
	}
	// Two sequences of 5 tokens, 3 groups of 2 heads of 8 numbers: keys and values are those of the groups.
	query := seen([]int64{2, 5, 6, 8}, []int64{0, 2, 1, 3}, 12, 5, 8)
	shared, ok := seen([]int64{2, 5, 3, 8}, []int64{0, 2, 1, 3}, 2, 3, 5, 8).Repeated(1, 2).Reshaped([]int64{12, 5, 8})
	require.True(t, ok)
	placed, ok := Place([]view.View{query, shared, shared, query})
	require.True(t, ok)
	require.Equal(t, Placement{Dims: []int64{2, 3, 2, 5, 8}, Strides: []int64{240, 16, 8, 48, 1}}, placed[0])
	require.Equal(t, Placement{Dims: []int64{2, 3, 2, 5, 8}, Strides: []int64{120, 8, 0, 24, 1}}, placed[1])

	// The columns of keys may lie anyhow, those of queries may not.
	turned := seen([]int64{12, 8, 5}, []int64{0, 2, 1}, 12, 5, 8)
	_, ok = Place([]view.View{query, turned, turned, query})
	require.True(t, ok)
	_, ok = Place([]view.View{turned, shared, shared, query})
	require.False(t, ok)
	// Strides that change after 4 products and after 6 have no axes in common; four axes are too many.
	fours := seen([]int64{4, 3, 5, 8}, []int64{1, 0, 2, 3}, 12, 5, 8)
	_, ok = Place([]view.View{query, fours, shared, query})
	require.False(t, ok)
	many := seen([]int64{2, 2, 2, 2, 5, 8}, []int64{3, 2, 1, 0, 4, 5}, 16, 5, 8)
	_, ok = Place([]view.View{many, many, many, many})
	require.False(t, ok)
}
