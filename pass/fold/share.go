// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/collage-tvm/collage/bridge"
)

// worthSharing is how many bytes a constant has at least that is put in the place of equal ones: small ones are not
// what fills memory, and patterns look at them one by one.
const worthSharing = 1 << 10

// shelf has the constants of a graph by their content: a recurrent network that was unrolled has the same weights in
// each step, computed anew by each.
type shelf struct {
	seed  maphash.Seed
	known map[uint64][]shelved
}

// shelved is a constant, and how one gets its expression.
type shelved struct {
	tensor *Tensor
	expr   func() (*bridge.Object, error)
}

func newShelf() shelf { return shelf{maphash.MakeSeed(), map[uint64][]shelved{}} }

// equal gives the constant of the same type, shape and bytes that came first; where there is none, this one is kept,
// unless it is too small to be worth it.
func (s shelf) equal(t *Tensor, expr func() (*bridge.Object, error)) (shelved, bool) {
	if len(t.data) < worthSharing {
		return shelved{}, false
	}
	key := maphash.Bytes(s.seed, t.data)
	for _, one := range s.known[key] {
		if one.tensor.DType == t.DType && slices.Equal(one.tensor.Shape, t.Shape) &&
			bytes.Equal(one.tensor.data, t.data) {
			return one, true
		}
	}
	s.known[key] = append(s.known[key], shelved{t, expr})
	return shelved{}, false
}
