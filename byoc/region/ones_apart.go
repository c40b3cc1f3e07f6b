// SPDX-License-Identifier: Apache-2.0

package region

import (
	"cmp"
	"slices"

	"github.com/collage-tvm/collage/relay/symbolic"
)

// mostApart is how many texts there are at most for sizes of which some are 1, and others are not.
const mostApart = 32

// mostOnes is up to which size of a dimension a quotient of it is looked at for being 1.
const mostOnes = 1 << 10

// span are the sizes of a dimension from least to most, both included.
type span struct{ least, most int64 }

// way is sizes at which the same sizes are 1: of the dimensions, and of what is derived of one of them.
type way struct {
	ones  []int
	spans []span // by dimension
}

// onesApart are the ways in which sizes may be 1, those with the most ones first: engines are told other things there.
// The one without any is the last. all is false where there are too many: then there are that in which all are 1 that
// may be, and those in which sizes are 1 of one dimension alone.
func (s *sampler) onesApart() (list []way, all bool) {
	ways, count := make([][]way, len(s.dimensions)), 1
	for i := range s.dimensions {
		ways[i] = s.ways(i)
		count = min(count*len(ways[i]), mostApart+1)
	}
	if all = count <= mostApart; all {
		list = combined(ways)
	} else {
		first, general := make([][]way, len(ways)), make([][]way, len(ways))
		for i, of := range ways {
			first[i], general[i] = of[:1], of[len(of)-1:]
		}
		list = append(combined(first), combined(general)...)
		for i, of := range ways {
			special := slices.Clone(general)
			special[i] = of[:len(of)-1]
			list = append(list, combined(special)...)
		}
	}
	slices.SortStableFunc(list, func(a, b way) int { return cmp.Compare(len(b.ones), len(a.ones)) })
	return list, all
}

// combined are all ways to choose one of each dimension's.
func combined(ways [][]way) []way {
	list := []way{{ones: []int{}}}
	for _, of := range ways {
		var longer []way
		for _, one := range list {
			for _, chosen := range of {
				longer = append(longer, way{slices.Concat(one.ones, chosen.ones), slices.Concat(one.spans, chosen.spans)})
			}
		}
		list = longer
	}
	for i := range list {
		slices.Sort(list[i].ones)
	}
	return list
}

// ways are the spans of a dimension in which the same sizes are 1, ascending.
func (s *sampler) ways(dimension int) (list []way) {
	d := s.dimensions[dimension]
	least, most := max(d.Least, 1), d.Most
	if most == 0 {
		most = symbolic.Unbounded
	}
	for size := least; ; size++ {
		ones := s.ones(dimension, size)
		if last := len(list) - 1; last >= 0 && slices.Equal(list[last].ones, ones) {
			list[last].spans[0].most = size
		} else {
			list = append(list, way{ones, []span{{size, size}}})
		}
		if len(ones) == 0 || size == most || size == mostOnes {
			list[len(list)-1].spans[0].most = most
			return list
		}
	}
}

// ones are which sizes are 1 of those that a dimension of this size alone tells.
func (s *sampler) ones(dimension int, size int64) (ones []int) {
	if size == 1 {
		ones = append(ones, dimension)
	}
	for i := range s.derived {
		if s.depends[i] != dimension {
			continue
		}
		value, err := s.derived[i].At(map[string]int64{s.dimensions[dimension].Name: size})
		if err == nil && value == 1 {
			ones = append(ones, len(s.dimensions)+i)
		}
	}
	return ones
}

// dependences are depends.
func (s *sampler) dependences() []int {
	list := make([]int, len(s.derived))
	for i := range s.derived {
		list[i] = -1
		if names := s.derived[i].Dimensions(); s.derived[i].Extent && len(names) == 1 {
			list[i] = slices.IndexFunc(s.dimensions, func(d symbolic.Dimension) bool { return d.Name == names[0].Name })
		}
	}
	return list
}
