// SPDX-License-Identifier: Apache-2.0

package symbolic

// What Relay's reshape is told of a dimension, beside a number: it is the next one of the data, what is left over, the
// next two of the data together, or the next one taken apart into the two that follow.
const (
	nextOne  = int64(0)
	leftOver = int64(-1)
	together = int64(-3)
	apart    = int64(-4)
)

// newShape is the attribute of a reshape from one shape to another; false where none says it.
func newShape(from, to Extents) ([]any, bool) {
	if out, ok := shapeInPlace(from, to); ok {
		return out, true
	}
	groups, ok := grouped(from, to)
	if !ok {
		return nil, false
	}
	w := shapeWriter{}
	for _, g := range groups {
		if !w.write(g, from[g.from.Begin:g.from.End], to[g.to.Begin:g.to.End]) {
			return nil, false
		}
	}
	return w.out, true
}

// shapeInPlace has numbers, dimensions that are the data's at the same place, and one more.
func shapeInPlace(from, to Extents) ([]any, bool) {
	out, open := make([]any, len(to)), false
	for d, extent := range to {
		value, number := extent.Value()
		switch {
		case number && value > 0:
			out[d] = value
		case number:
			return nil, false // nothing is in it, and 0 means another thing
		case d < len(from) && extent.Equal(from[d]):
			out[d] = nextOne
		case !open:
			out[d], open = leftOver, true
		default:
			return nil, false
		}
	}
	return out, true
}

// shapeWriter writes groups of dimensions, in order.
type shapeWriter struct {
	out []any
	// next is which dimension of the data the next word that takes some begins with: numbers and what is left over take
	// one each, whatever they are made of.
	next int
	left bool
}

// write writes a group; false where there are no words for it.
func (w *shapeWriter) write(g group, from, to Extents) bool {
	open, numbers := 0, make([]any, len(to))
	for d, extent := range to {
		value, number := extent.Value()
		if numbers[d] = value; number && value < 1 {
			return false
		} else if !number {
			open++
			numbers[d] = leftOver
		}
	}
	inTurn := w.next == g.from.Begin
	switch {
	case open == 0:
		w.add(len(to), numbers...)
	case inTurn && len(from) == 1 && len(to) == 1:
		w.add(1, nextOne)
	case inTurn && len(from) == 2 && len(to) == 1:
		w.add(2, together)
	case inTurn && len(from) == 1 && len(to) == 2 && open == 1:
		w.add(1, apart, numbers[0], numbers[1])
	case open == 1 && !w.left:
		w.add(len(to), numbers...)
		w.left = true
	default:
		return false
	}
	return true
}

// add writes words that take so many dimensions of the data.
func (w *shapeWriter) add(taken int, words ...any) {
	w.out = append(w.out, words...)
	w.next += taken
}
