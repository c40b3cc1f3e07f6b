// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A bound must be true of what is computed narrowly, too: at least twice as fast as the same in float32.
func TestWhatIsDoneInBfloat16IsBoundedByLess(t *testing.T) {
	t.Parallel()
	m := &Machine{Flops: 1e9, Reads: []Read{{Size: 1 << 30, Speed: 1e9}}}
	for _, w := range []Work{{Flops: 1e9}, {Bytes: 1e9}} {
		assert.GreaterOrEqual(t, m.Milliseconds(w), 2*m.Milliseconds(w.InBF16()), "%+v", w)
	}
}
