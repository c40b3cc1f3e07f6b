// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
)

func TestGroupsOfOperationsThatAreGone(t *testing.T) {
	// relu -> exp -> tanh, made one operation by somebody who says nothing of groups.
	one := func(in, out region.ValueID, group int) *operation {
		return &operation{kind: "eltwise", in: []region.ValueID{in}, out: out, of: []int{group}}
	}
	l := &lowering{ops: []*operation{one(0, 1, 0), one(1, 2, 1), one(2, 3, 2), one(3, 4, 3)}}
	done := l.follow()
	l.ops = []*operation{{kind: "three at once", in: []region.ValueID{0}, out: 3}, l.ops[3]}
	done()
	require.Equal(t, []int{0, 1, 2}, l.ops[0].of)
	require.Equal(t, []int{3}, l.ops[1].of)

	// One whose value is not made any more belongs to the next that is.
	l = &lowering{ops: []*operation{one(0, 1, 0), one(1, 2, 1), one(2, 3, 2)}}
	done = l.follow()
	l.ops = []*operation{l.ops[0], {kind: "the rest", in: []region.ValueID{1}, out: 3, of: []int{2}}}
	done()
	require.Equal(t, []int{0}, l.ops[0].of)
	require.Equal(t, []int{1, 2}, l.ops[1].of)
}
