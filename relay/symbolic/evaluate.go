// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// At is the number of an expression where open dimensions have these sizes, by name. The error says which one has none,
// or that the number is too large.
func (e Expression) At(sizes map[string]int64) (int64, error) {
	sum := int64(0)
	for _, t := range e.terms {
		product := t.by
		for _, f := range t.factors {
			value, err := f.at(sizes)
			if err != nil {
				return 0, err
			}
			var ok bool
			if product, ok = exactProduct(product, value); !ok {
				return 0, fmt.Errorf("%s is too large", e)
			}
		}
		var ok bool
		if sum, ok = exactSum(sum, product); !ok {
			return 0, fmt.Errorf("%s is too large", e)
		}
	}
	return sum, nil
}

func (a *atom) at(sizes map[string]int64) (int64, error) {
	if a.of == nil {
		size, ok := sizes[a.name]
		if !ok {
			return 0, fmt.Errorf("the size %s is not known", a.name)
		}
		return size, nil
	}
	left, err := a.of[0].At(sizes)
	if err != nil {
		return 0, err
	}
	right, err := a.of[1].At(sizes)
	if err != nil {
		return 0, err
	}
	switch {
	case a.operation == quotientOf && right > 0 && left >= 0:
		return left / right, nil
	case a.operation == maximumOf:
		return max(left, right), nil
	case a.operation == minimumOf:
		return min(left, right), nil
	case a.operation == broadcastOf && (left == right || right == 1):
		return left, nil
	case a.operation == broadcastOf && left == 1:
		return right, nil
	}
	return 0, fmt.Errorf("%s of %d and %d is not known", a.operation, left, right)
}

// Dimensions are the open dimensions that an expression depends on, each once, by name.
func (e Expression) Dimensions() []Dimension {
	found := map[string]Dimension{}
	e.dimensions(found)
	return slices.SortedFunc(maps.Values(found), byName)
}

func byName(a, b Dimension) int { return strings.Compare(a.Name, b.Name) }

func (e Expression) dimensions(found map[string]Dimension) {
	for _, t := range e.terms {
		for _, f := range t.factors {
			if f.of == nil {
				found[f.name] = Dimension{Name: f.name, Least: f.low, Most: f.high}
			}
			for _, part := range f.of {
				part.dimensions(found)
			}
		}
	}
}
