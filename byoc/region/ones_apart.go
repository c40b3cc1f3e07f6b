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

// onesApart are sizes at which the same sizes are 1: of the dimensions, and of what is derived of one of them.
type onesApart struct {
	ones  []int
	spans []span // by dimension
}

// onesApart are the ways in which sizes may be 1, those with the most ones first: engines are told other things there. Those
// without any are the last. all is false where there are too many: then of all dimensions but one, or of none, no size is
// 1 in them.
func (s *sampler) onesApart() (list []onesApart, all bool) {
	ways, count := make([][]onesApart, len(s.dimensions)), 1
	for i := range s.dimensions {
		ways[i] = s.ways(i)
		count = min(count*len(ways[i]), mostApart+1)
	}
	general := func(i int) onesApart { return ways[i][len(ways[i])-1] }
	join := func(choose func(i int) onesApart) {
		one := onesApart{ones: []int{}}
		for i := range ways {
			way := choose(i)
			one.ones, one.spans = append(one.ones, way.ones...), append(one.spans, way.spans...)
		}
		slices.Sort(one.ones)
		list = append(list, one)
	}
	if all = count <= mostApart; all {
		for number := range count {
			join(func(i int) onesApart {
				way := ways[i][number%len(ways[i])]
				number /= len(ways[i])
				return way
			})
		}
	} else {
		join(func(i int) onesApart { return ways[i][0] })
		for i := range ways {
			for _, way := range ways[i][:len(ways[i])-1] {
				join(func(k int) onesApart {
					if k == i {
						return way
					}
					return general(k)
				})
			}
		}
		join(general)
	}
	slices.SortStableFunc(list, func(a, b onesApart) int { return cmp.Compare(len(b.ones), len(a.ones)) })
	return list, all
}

// ways are the spans of a dimension in which the same sizes are 1, ascending.
func (s *sampler) ways(dimension int) (list []onesApart) {
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
			list = append(list, onesApart{ones, []span{{size, size}}})
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
		if at := len(s.dimensions) + i; s.depends(at) == dimension {
			value, err := s.derived[i].At(map[string]int64{s.dimensions[dimension].Name: size})
			if err == nil && value == 1 {
				ones = append(ones, at)
			}
		}
	}
	return ones
}

// depends is the one dimension that an extent which is derived depends on; -1 for several, and for what no value has as
// its size.
func (s *sampler) depends(at int) int {
	d := &s.derived[at-len(s.dimensions)]
	if names := d.Dimensions(); d.Extent && len(names) == 1 {
		return slices.IndexFunc(s.dimensions, func(one symbolic.Dimension) bool { return one.Name == names[0].Name })
	}
	return -1
}
