// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// dimension is one of a layout ("OIHW16i"): an axis, or a block of that many of its items.
type dimension struct {
	axis  byte // upper case
	block int64
}

// parseLayout reads a layout in which each axis has at most one block, behind it.
func parseLayout(layout string) ([]dimension, bool) {
	var dims []dimension
	block := int64(0)
	for i := range len(layout) {
		switch c := layout[i]; {
		case c >= '0' && c <= '9':
			block = 10*block + int64(c-'0')
		case c >= 'A' && c <= 'Z':
			if block != 0 || find(dims, c, false) >= 0 {
				return nil, false
			}
			dims = append(dims, dimension{axis: c})
		case c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
			if block == 0 || find(dims, c, false) < 0 || find(dims, c, true) >= 0 {
				return nil, false
			}
			dims = append(dims, dimension{c, block})
			block = 0
		default:
			return nil, false
		}
	}
	return dims, block == 0
}

// find is where an axis, or its block, stands; -1 where it does not.
func find(dims []dimension, axis byte, block bool) int {
	return slices.IndexFunc(dims, func(d dimension) bool { return d.axis == axis && (d.block != 0) == block })
}

// layoutTransform lays a tensor out anew, without padding: axes change places, and are cut into blocks or put together.
func layoutTransform(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	source, _ := attrs.String("src_layout")
	target, _ := attrs.String("dst_layout")
	from, ok := parseLayout(source)
	to, ok2 := parseLayout(target)
	if !ok || !ok2 || len(from) != len(t.Shape) {
		return nil, errLeft
	}
	strides := compact(t.Shape)
	var shape, steps, whole []int64 // whole is the result's shape, in which what was a block is joined
	add := func(extent, step int64) { shape, steps = append(shape, extent), append(steps, step) }
	for _, d := range to {
		outer, inner := find(from, d.axis, false), find(from, d.axis, true)
		other := find(to, d.axis, true)
		switch {
		case outer < 0 || inner >= 0 && t.Shape[inner] != from[inner].block:
			return nil, errLeft
		case inner < 0 && other < 0: // a whole axis
			add(t.Shape[outer], strides[outer])
			whole = append(whole, t.Shape[outer])
		case inner < 0: // one that is cut
			block := to[other].block
			if t.Shape[outer]%block != 0 {
				return nil, errLeft
			}
			if d.block != 0 {
				add(block, strides[outer])
				whole = append(whole, block)
			} else {
				add(t.Shape[outer]/block, strides[outer]*block)
				whole = append(whole, t.Shape[outer]/block)
			}
		case other < 0: // one that is put together
			add(t.Shape[outer], strides[outer])
			add(t.Shape[inner], strides[inner])
			whole = append(whole, t.Shape[outer]*t.Shape[inner])
		case to[other].block != from[inner].block:
			return nil, errLeft
		case d.block != 0:
			add(t.Shape[inner], strides[inner])
			whole = append(whole, t.Shape[inner])
		default:
			add(t.Shape[outer], strides[outer])
			whole = append(whole, t.Shape[outer])
		}
	}
	if n, ok := elements(whole); !ok || n != t.len() {
		return nil, errLeft // an axis is lost
	}
	out, err := view(t, shape, steps, 0)
	if err != nil {
		return nil, err
	}
	return out.shaped(whole)
}
