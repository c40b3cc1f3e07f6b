// SPDX-License-Identifier: Apache-2.0

package region

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func TestOpenTarget(t *testing.T) {
	const open = relay.AnyDim
	shape := func(sizes ...int64) []int64 { return sizes }
	for _, c := range []struct {
		op         string
		attrs      map[string]any
		from, to   []int64
		want       []int64
		wantRefuse bool
	}{
		{"nn.batch_flatten", nil, shape(open, 7, 4), shape(open, 28), shape(open, 28), false},
		// What is made of the open sizes behind the batch is none of them.
		{"nn.batch_flatten", nil, shape(open, open, 4), shape(open, open), shape(0, -1), false},
		{"expand_dims", map[string]any{"axis": 2}, shape(open, open), shape(open, open, 1), shape(0, 0, 1), false},
		{"squeeze", map[string]any{"axis": []int{-1}}, shape(open, open, 1), shape(open, open), shape(0, 0), false},
		{"squeeze", map[string]any{}, shape(open, open, open), shape(open, open), nil, true},
		{"reshape", map[string]any{"newshape": []int{0, -1, 4}}, shape(open, open, 8), shape(open, open, 4),
			shape(0, -1, 4), false},
		{"reshape", map[string]any{"newshape": []int{-3, 4}}, shape(open, open, 4), shape(open, open), nil, true},
	} {
		got, err := OpenTarget(c.op, relay.NewAttrs("", c.attrs), []*relay.Type{relay.Tensor("float32", c.from...)},
			relay.Tensor("float32", c.to...))
		if c.wantRefuse {
			assert.ErrorContains(t, err, "would have to be told 2 sizes", "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, Numbers(got), "%+v", c)
		assert.True(t, InPlace(got), "%+v", c)
	}
}

// TestOpenTargetElsewhere has dimensions that stand at another place in the data, or in another tensor.
func TestOpenTargetElsewhere(t *testing.T) {
	const open = relay.AnyDim
	data := func(axis int) Extent { return Extent{Axis: axis} }
	like := func(axis int) Extent { return Extent{Of: 1, Axis: axis} }
	number := func(n int64) Extent { return Extent{Number: n} }
	shape := func(sizes ...int64) []int64 { return sizes }
	spans := func(lhsBegin, lhsEnd, rhsBegin, rhsEnd any) map[string]any {
		return map[string]any{"lhs_begin": lhsBegin, "lhs_end": lhsEnd, "rhs_begin": rhsBegin, "rhs_end": rhsEnd}
	}
	for _, c := range []struct {
		op             string
		attrs          map[string]any
		from, like, to []int64
		want           []Extent
	}{
		{"expand_dims", map[string]any{"axis": 1}, shape(open, open), nil, shape(open, 1, open),
			[]Extent{data(0), number(1), data(1)}},
		{"expand_dims", map[string]any{"axis": -3}, shape(open, open), nil, shape(1, open, open),
			[]Extent{number(1), data(0), data(1)}},
		{"squeeze", map[string]any{"axis": []int{0}}, shape(1, open, open), nil, shape(open, open), []Extent{data(1), data(2)}},
		{"reshape", map[string]any{"newshape": []int{-3, 0, 64}}, shape(open, 4, open, 64), nil, shape(open, open, 64),
			[]Extent{number(LeftOver), data(2), number(64)}},
		{"reshape", map[string]any{"newshape": []int{-4, -1, 4, -2}}, shape(open, open, 64), nil, shape(open, 4, open, 64),
			[]Extent{number(LeftOver), number(4), data(1), number(64)}},
		{"reshape_like", spans(0, 1, 0, 2), shape(open, 768), shape(open, open, 32), shape(open, open, 768),
			[]Extent{like(0), like(1), number(768)}},
		{"reshape_like", spans(1, nil, -2, nil), shape(open, open), shape(7, open, open), shape(open, open, open),
			[]Extent{data(0), like(1), like(2)}},
	} {
		args := []*relay.Type{relay.Tensor("float32", c.from...), relay.Tensor("float32", c.like...)}
		got, err := OpenTarget(c.op, relay.NewAttrs("", c.attrs), args, relay.Tensor("float32", c.to...))
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, got, "%+v", c)
	}
	_, err := OpenTarget("reshape", relay.NewAttrs("", map[string]any{"newshape": []int{-4, -1, -1}}),
		[]*relay.Type{relay.Tensor("float32", open)}, relay.Tensor("float32", open, open))
	assert.ErrorContains(t, err, "would have to be told 2 sizes")
	_, err = OpenTarget("reshape", relay.NewAttrs("", map[string]any{"newshape": []int{-1, 0}}),
		[]*relay.Type{relay.Tensor("float32", open, 0)}, relay.Tensor("float32", open, 0))
	assert.ErrorContains(t, err, "which nothing is in")
}
