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
		{"expand_dims", nil, shape(open, open), shape(open, open, 1), shape(0, 0, 1), false},
		{"expand_dims", nil, shape(open, open), shape(open, 1, open), shape(0, 1, -1), false},
		{"expand_dims", nil, shape(open, open), shape(1, open, open), nil, true},
		{"squeeze", map[string]any{"axis": []int{-1}}, shape(open, open, 1), shape(open, open), shape(0, 0), false},
		// The first size of the result is the second of the data.
		{"squeeze", map[string]any{"axis": []int{0}}, shape(open, open, open), shape(open, open), nil, true},
		{"squeeze", map[string]any{"axis": []int{1}}, shape(open, open, open), shape(open, open), shape(0, -1), false},
		{"reshape", map[string]any{"newshape": []int{0, -1, 4}}, shape(open, open, 8), shape(open, open, 4),
			shape(0, -1, 4), false},
		{"reshape", map[string]any{"newshape": []int{-3, 4}}, shape(open, open, 4), shape(open, open), nil, true},
	} {
		got, err := OpenTarget(c.op, relay.NewAttrs("", c.attrs), relay.Tensor("float32", c.from...),
			relay.Tensor("float32", c.to...))
		if c.wantRefuse {
			assert.ErrorContains(t, err, "would have to be told 2 sizes", "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, got, "%+v", c)
	}
}
