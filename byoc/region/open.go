// SPDX-License-Identifier: Apache-2.0

package region

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// OpenDimensions counts the dimensions of a tensor that are known only when it is there.
func OpenDimensions(t *relay.Type) (count int) {
	for _, extent := range t.Shape {
		if extent == relay.AnyDim {
			count++
		}
	}
	return count
}

// OpenBesideBatch is the first of some tensors that has an open dimension which is not its first; nil for none.
func OpenBesideBatch(tensors []*relay.Type) *relay.Type {
	at := slices.IndexFunc(tensors, func(t *relay.Type) bool {
		return len(t.Shape) > 0 && slices.Contains(t.Shape[1:], relay.AnyDim)
	})
	if at < 0 {
		return nil
	}
	return tensors[at]
}

// SlicesOpen says that a strided_slice with these attributes cuts data along an open dimension, on whose size its bounds
// depend.
func SlicesOpen(attrs *relay.Attrs, data *relay.Type) bool {
	begins, _ := attrs.Ints("begin")
	axes, given := attrs.Ints("axes")
	rank := int64(len(data.Shape))
	for i := range begins {
		at := int64(i)
		if given && i < len(axes) {
			at = axes[i]
		}
		if at < 0 {
			at += rank
		}
		if at < 0 || at >= rank || data.Shape[at] == relay.AnyDim {
			return true
		}
	}
	return false
}

// OpenTarget is the shape that a reshape of an engine's is given for a result with open dimensions: 0 for a dimension
// that is the data's at the same place, -1 for one more. op and attrs are Relay's operator. The error says what the
// engine would have to be told.
func OpenTarget(op string, attrs *relay.Attrs, data, result *relay.Type) ([]int64, error) {
	from, to := data.Shape, result.Shape
	open := OpenDimensions(result)
	target := slices.Clone(to)
	if open <= 1 {
		return target, nil
	}
	if given, ok := attrs.Ints("newshape"); ok && op == "reshape" && len(given) == len(to) {
		zero, _ := attrs.Bool("allowzero")
		if !slices.ContainsFunc(given, func(d int64) bool { return d < -1 || d == 0 && zero }) {
			return given, nil
		}
	}
	// reshape says which dimensions are the data's; of the others those are that stand in front of all that changes.
	for d := 0; d < unchanged(op, attrs, from) && d < len(to) && from[d] == to[d]; d++ {
		if to[d] == relay.AnyDim {
			target[d] = 0
			open--
		}
	}
	if open > 1 {
		return nil, fmt.Errorf("%s makes %s of %s; the engine would have to be told %d sizes that are known only when it "+
			"runs", op, relay.ShapeText(to), relay.ShapeText(from), open)
	}
	return target, nil
}

// unchanged is how many dimensions a reshape surely leaves as they are, from the first.
func unchanged(op string, attrs *relay.Attrs, from []int64) int {
	switch op {
	case "reshape":
		return 0
	case "nn.batch_flatten":
		return 1
	case "squeeze":
		axes, _ := attrs.Ints("axis")
		first := len(from)
		for _, axis := range axes {
			if axis < 0 {
				axis += int64(len(from))
			}
			first = min(first, int(axis))
		}
		return first
	}
	return len(from) // expand_dims: a new one is 1, which an open one is not known to be
}
