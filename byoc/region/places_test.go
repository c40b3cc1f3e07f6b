// SPDX-License-Identifier: Apache-2.0

package region

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/relay"
)

func TestPlacesThatDiffer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		coordinates []int64
		depth       int
		shape       []int64
		why         string // part of the error; "" for none
	}{
		"rows":              {[]int64{3, 0, 2}, 1, []int64{4, 7}, ""},
		"a row twice":       {[]int64{3, 0, 3}, 1, []int64{4, 7}, "more than once"},
		"elements":          {[]int64{0, 1, 1, 2, 2, 3}, 2, []int64{2, 4}, ""},
		"an element twice":  {[]int64{0, 1, 1, 2, 3, 3}, 2, []int64{2, 4}, "more than once"},
		"beyond":            {[]int64{4}, 1, []int64{4}, "the index 4 into a dimension of 4"},
		"from the end":      {[]int64{-1}, 1, []int64{4}, "the index -1"},
		"too many":          {[]int64{1, 1}, 2, []int64{4}, "in 1 dimensions"},
		"not of all places": {[]int64{1, 1, 1}, 2, []int64{4, 4}, "3 coordinates"},
	} {
		err := apart(c.coordinates, c.depth, c.shape)
		if c.why == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.why, name)
		}
	}
}

func TestPlacesThatAreNotKnown(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	input, constant := m.Var([]int64{1, 3}, "int32"), m.Const([]int64{1, 3}, "int32")
	g := m.Finish(m.Tuple(input, constant))
	assert.ErrorContains(t, Apart(g, input, []int64{4}), "no constant")
	assert.ErrorContains(t, Apart(g, relay.NoNode, []int64{4}), "no constant")
	assert.ErrorContains(t, Apart(g, constant, []int64{4}), "no data", "what a constant holds is looked at")
}

func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []int64{5, -2}, wholeNumbers("int32", []byte{5, 0, 0, 0, 254, 255, 255, 255}))
	assert.Equal(t, []int64{-2}, wholeNumbers("int64", []byte{254, 255, 255, 255, 255, 255, 255, 255}))
	assert.Empty(t, wholeNumbers("uint8", []byte{1, 2}))
}
