// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/byoc"
)

// A bound must be true of what is computed narrowly, too: bfloat16 is at least twice as fast as the same in float32,
// bytes four times.
func TestWhatIsDoneNarrowlyIsBoundedByLess(t *testing.T) {
	t.Parallel()
	m := &Machine{Flops: 1e9, Reads: []Read{{Size: 1 << 30, Speed: 1e9}}}
	for _, w := range []Work{{Flops: 1e9}, {Bytes: 1e9}} {
		wide := m.Milliseconds(w)
		assert.InDelta(t, wide, m.Milliseconds(w.In(byoc.F32)), 1e-9)
		assert.GreaterOrEqual(t, wide, 2*m.Milliseconds(w.In(byoc.BF16)), "%+v", w)
		assert.GreaterOrEqual(t, wide, 4*m.Milliseconds(w.In(byoc.INT8)), "%+v", w)
	}
}
