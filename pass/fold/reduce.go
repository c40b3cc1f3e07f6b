// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// reduce evaluates reductions whose result does not depend on the order: those of integers and of truth values.
func reduce(op string, t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	axes, given, ok := axesOf(attrs, len(t.Shape))
	exclude, ok2 := attrs.Bool("exclude")
	keep, ok3 := attrs.Bool("keepdims")
	if !ok || !ok2 || !ok3 || given && len(axes) == 0 {
		return nil, errLeft
	}
	var order, kept []int // the axes, those that are reduced last
	shape := []int64{}
	for d, n := range t.Shape {
		if reduced := !given || slices.Contains(axes, d) != exclude; !reduced {
			kept = append(kept, d)
			shape = append(shape, n)
		} else {
			order = append(order, d)
			if keep {
				shape = append(shape, 1)
			}
		}
	}
	order = append(kept, order...)
	inner := make([]int64, len(order))
	strides, from := make([]int64, len(order)), compact(t.Shape)
	for i, d := range order {
		inner[i], strides[i] = t.Shape[d], from[d]
	}
	laid, err := view(t, inner, strides, 0)
	if err != nil {
		return nil, err
	}
	count, ok := elements(inner[len(kept):])
	if !ok || count == 0 {
		return nil, errLeft
	}
	switch t.DType {
	case "int32":
		return reduceRows[int32](op, laid, shape, count)
	case "int64":
		return reduceRows[int64](op, laid, shape, count)
	case "bool":
		if op == "all" || op == "any" {
			return foldRows(laid, shape, count,
				map[string]func(x, y uint8) uint8{"all": lesser[uint8], "any": greater[uint8]}[op])
		}
	}
	return nil, errLeft
}

func reduceRows[T int32 | int64](op string, rows *Tensor, shape []int64, count int64) (*Tensor, error) {
	switch op {
	case "sum":
		return foldRows(rows, shape, count, func(x, y T) T { return x + y })
	case "prod":
		return foldRows(rows, shape, count, func(x, y T) T { return x * y })
	case "max":
		return foldRows(rows, shape, count, greater[T])
	case "min":
		return foldRows(rows, shape, count, lesser[T])
	}
	return nil, errLeft
}

// foldRows folds each count items that stand side by side into one.
func foldRows[T any](rows *Tensor, shape []int64, count int64, f func(x, y T) T) (*Tensor, error) {
	out, err := newTensor(rows.DType, shape)
	if err != nil {
		return nil, err
	}
	from := items[T](rows)
	to := items[T](out)
	for i := range to {
		row := from[int64(i)*count:][:count]
		to[i] = row[0]
		for _, x := range row[1:] {
			to[i] = f(to[i], x)
		}
	}
	return out, nil
}
