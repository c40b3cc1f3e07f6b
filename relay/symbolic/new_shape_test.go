// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func TestNewShape(t *testing.T) {
	batch, length := Symbol("batch", 1, Unbounded), Symbol("len", 1, Unbounded)
	n := Constant
	for _, c := range []struct {
		from, to Extents
		want     []any
	}{
		{Extents{batch, length, n(8)}, Extents{batch, length, n(2), n(4)}, []any{int64(0), int64(0), int64(2), int64(4)}},
		{Extents{batch, length, n(8)}, Extents{batch.Times(length), n(8)}, []any{int64(-1), int64(8)}},
		{Extents{batch, n(2), length, n(4)}, Extents{batch.Times(n(2)), length, n(4)}, []any{int64(-3), int64(0), int64(4)}},
		{Extents{batch.Times(n(2)), length, length}, Extents{batch, n(2), length, length},
			[]any{int64(-4), int64(-1), int64(2), int64(0), int64(0)}},
		{Extents{n(6), batch, length}, Extents{n(2), n(3), batch, length}, nil}, // the numbers would take the batch
		{Extents{n(2), n(3), batch, length}, Extents{n(6), length, batch}, []any{int64(6), int64(-1), int64(0)}},
		{Extents{batch.Times(length), n(8)}, Extents{batch, length, n(8)}, nil},
		{Extents{batch, length}, Extents{batch, length, n(0)}, nil},
	} {
		got, ok := newShape(c.from, c.to)
		assert.Equal(t, c.want != nil, ok, "%v to %v", c.from, c.to)
		if ok {
			assert.Equal(t, c.want, got, "%v to %v", c.from, c.to)
		}
	}
}

// TestNewShapeIsWhatReshapeMakes has random shapes put together and taken apart: what newShape writes is read as that.
func TestNewShapeIsWhatReshapeMakes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	written := 0
	for range 2000 {
		from, to := Extents{}, Extents{}
		for range 1 + r.IntN(4) {
			a, b := randomSize(r), randomSize(r)
			switch r.IntN(3) {
			case 0:
				from, to = append(from, a), append(to, a)
			case 1:
				from, to = append(from, a, b), append(to, a.Times(b))
			default:
				from, to = append(from, a.Times(b)), append(to, a, b)
			}
		}
		wanted, ok := newShape(from, to)
		if !ok {
			continue
		}
		written++
		numbers := make([]int64, len(wanted))
		for i, one := range wanted {
			numbers[i] = one.(int64)
		}
		got := reshape(arguments{in: []Value{sized(from)}, attrs: relay.NewAttrs("", map[string]any{"newshape": numbers})})
		require.True(t, got.Shape.Equal(to), "%v to %v by %v is %v", from, to, wanted, got.Shape)
	}
	assert.Greater(t, written, 1000)
}

func randomSize(r *rand.Rand) Expression {
	if r.IntN(2) == 0 {
		return Constant(1 + r.Int64N(4))
	}
	return variable(r.IntN(len(variables)))
}

// TestReshapeLike finds the tensor that has what no number says, and what it makes is what was wanted.
func TestReshapeLike(t *testing.T) {
	g := newGraph(t, open, open, 8)
	x := g.x
	rows := g.Call("reshape", float(open, 8), map[string]any{"newshape": axes(-1, 8)}, x)
	made := g.Call("nn.relu", float(open, 8), nil, rows)
	a, err := Analyse(g.Finish(made), nil)
	require.NoError(t, err)
	from := a.Of(made).Shape
	batch, length := a.Of(x).Shape[0], a.Of(x).Shape[1]
	for _, c := range []struct {
		to    Extents
		rest  []any
		found bool
	}{
		{Extents{batch, length, Constant(8)}, nil, true},
		{Extents{batch, length, Constant(2), Constant(4)}, []any{int64(0), int64(0), int64(2), int64(4)}, true},
		{Extents{length, batch, Constant(8)}, nil, false},
		{Extents{batch, length, Constant(4)}, nil, false},
	} {
		steps, rest, ok := a.reshapeLike(made, from, c.to)
		require.Equal(t, c.found, ok, "%v", c.to)
		assert.Equal(t, c.rest, rest, "%v", c.to)
		if !ok {
			continue
		}
		require.Len(t, steps, 1)
		assert.Equal(t, x, steps[0].like)
		got := reshapedLike(arguments{in: []Value{a.Of(made), a.Of(x)}, attrs: relay.NewAttrs("", map[string]any{
			"lhs_begin": steps[0].lhs.Begin, "lhs_end": steps[0].lhs.End,
			"rhs_begin": steps[0].rhs.Begin, "rhs_end": steps[0].rhs.End})})
		assert.True(t, got.Shape.Equal(Extents{batch, length, Constant(8)}), "%v", got.Shape)
	}
}
