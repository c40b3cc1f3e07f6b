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
	general := func(i int) way { return ways[i][len(ways[i])-1] }
	join := func(choose func(i int) way) {
		one := way{ones: []int{}}
		for i := range ways {
			chosen := choose(i)
			one.ones, one.spans = append(one.ones, chosen.ones...), append(one.spans, chosen.spans...)
		}
		slices.Sort(one.ones)
		list = append(list, one)
	}
	if all = count <= mostApart; all {
		for number := range count {
			join(func(i int) way {
				chosen := ways[i][number%len(ways[i])]
				number /= len(ways[i])
				return chosen
			})
		}
	} else {
		join(func(i int) way { return ways[i][0] })
		for i := range ways {
			for _, special := range ways[i][:len(ways[i])-1] {
				join(func(k int) way {
					if k == i {
						return special
					}
					return general(k)
				})
			}
		}
		join(general)
	}
	slices.SortStableFunc(list, func(a, b way) int { return cmp.Compare(len(b.ones), len(a.ones)) })
	return list, all
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
