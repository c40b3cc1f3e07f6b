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

// Extent is a dimension of what a reshape makes, as an engine is told it: a Number, which is LeftOver for what the others
// leave; or, where Number is 0, that of dimension Axis of argument Of.
type Extent struct {
	Number   int64
	Of, Axis int
}

// LeftOver is the number of a dimension that a reshape finds by itself.
const LeftOver = -1

// OpenTarget is the shape that a reshape of an engine's is given for a result with open dimensions; at most one is left
// over. op and attrs are Relay's operator, args its arguments; of the second, which may be missing, nothing but its sizes
// is used. The error says what the engine would have to be told.
func OpenTarget(op string, attrs *relay.Attrs, args []*relay.Type, result *relay.Type) ([]Extent, error) {
	to, open := result.Shape, OpenDimensions(result)
	if open > 0 && slices.Contains(to, 0) {
		return nil, fmt.Errorf("%s makes %s, which nothing is in", op, relay.ShapeText(to))
	}
	target := make([]Extent, len(to))
	if open <= 1 {
		for d, extent := range to {
			target[d] = Extent{Number: extent} // AnyDim is LeftOver
		}
		return target, nil
	}
	from := sources(op, attrs, args, len(to))
	for d, extent := range to {
		switch {
		case extent != relay.AnyDim:
			target[d] = Extent{Number: extent}
			continue
		case d < len(from) && from[d].Number == 0 && args[from[d].Of].Shape[from[d].Axis] == relay.AnyDim:
			target[d] = from[d]
		default:
			target[d] = Extent{Number: LeftOver}
			continue
		}
		open--
	}
	if open > 1 {
		return nil, fmt.Errorf("%s makes %s of %s; the engine would have to be told %d sizes that are known only when it "+
			"runs", op, relay.ShapeText(to), relay.ShapeText(args[0].Shape), open)
	}
	return target, nil
}

// InPlace says that each dimension that a target takes of the data stands at the same place there, and none is another
// tensor's: engines then need no more than a 0 for it.
func InPlace(target []Extent) bool {
	for d, extent := range target {
		if extent.Number == 0 && (extent.Of != 0 || extent.Axis != d) {
			return false
		}
	}
	return true
}

// Numbers are a target's, with 0 for what is in place.
func Numbers(target []Extent) []int64 {
	numbers := make([]int64, len(target))
	for d, extent := range target {
		numbers[d] = extent.Number
	}
	return numbers
}

// sources says of each dimension of a result of this rank, from the first, which one of an argument's it is, as far as
// the operator tells; LeftOver stands for any other.
func sources(op string, attrs *relay.Attrs, args []*relay.Type, rank int) (from []Extent) {
	data := func(first, end int) {
		for d := first; d < end; d++ {
			from = append(from, Extent{Axis: d})
		}
	}
	count := len(args[0].Shape)
	switch op {
	case "reshape":
		return ofNewShape(attrs, count)
	case "reshape_like":
		lhs, rhs, ok := relay.ReshapeLikeAxes(attrs, count, len(args[1].Shape))
		if !ok {
			return nil
		}
		data(0, lhs.Begin)
		for d := rhs.Begin; d < rhs.End; d++ {
			from = append(from, Extent{Of: 1, Axis: d})
		}
		data(lhs.End, count)
	case "nn.batch_flatten":
		data(0, 1)
	case "squeeze":
		axes, _ := attrs.Ints("axis")
		if len(axes) == 0 {
			return nil // all that are 1
		}
		for d := range count {
			if !slices.Contains(axes, int64(d)) && !slices.Contains(axes, int64(d-count)) {
				data(d, d+1)
			}
		}
	case "expand_dims":
		at, ok := attrs.Int("axis")
		if at < 0 {
			at += int64(count) + 1
		}
		if !ok || at < 0 || at > int64(count) {
			return nil
		}
		data(0, int(at))
		for range rank - count {
			from = append(from, Extent{Number: LeftOver})
		}
		data(int(at), count)
	}
	return from
}

// ofNewShape is sources of a reshape; TVM's numbers are explained at relay.reshape.
func ofNewShape(attrs *relay.Attrs, count int) (from []Extent) {
	given, _ := attrs.Ints("newshape")
	zero, _ := attrs.Bool("allowzero")
	left := Extent{Number: LeftOver}
	next := 0 // dimension of the data
	for i := 0; i < len(given); i++ {
		switch d := given[i]; {
		case d == 0 && !zero:
			if next >= count {
				return from
			}
			from = append(from, Extent{Axis: next})
			next++
		case d == -2:
			for ; next < count; next++ {
				from = append(from, Extent{Axis: next})
			}
		case d == -3:
			from = append(from, left)
			next += 2
		case d == -4:
			from = append(from, left, left)
			next++
			i += 2
		default:
			from = append(from, left)
			next++
		}
	}
	return from
}
