// SPDX-License-Identifier: Apache-2.0

package region

import (
	"cmp"
	"slices"

	"github.com/collage-tvm/collage/relay/symbolic"
)

// remainders is how many sizes behind each other a dimension is tried at where sizes are quotients of it: a stride of 2
// in five layers, one behind the other, tells so many remainders apart.
const remainders = 32

// quotients are the derived sizes as the runtime works them out.
func (s *sampler) quotients() []sizedQuotient {
	at := map[string]int{}
	for i, d := range s.dimensions {
		at[d.Name] = i
	}
	var list []sizedQuotient
	for i, d := range s.derived {
		q := sizedQuotient{By: d.By}
		for _, p := range d.Of {
			term := make([]int64, 1+len(s.dimensions)+i)
			term[0] = p.By
			for _, name := range p.Sizes {
				term[1+at[name]]++
			}
			q.Of = append(q.Of, term)
		}
		at[d.Name] = len(s.dimensions) + i
		list = append(list, q)
	}
	return list
}

// products are those of the sizes that numbers are made of, the dimensions that are free and extents that are derived;
// those of few first.
func (s *sampler) products(free []int) [][]int64 {
	variables := slices.Clone(free)
	for i := range s.derived {
		if s.derived[i].Extent {
			variables = append(variables, len(s.dimensions)+i)
		}
	}
	list := monomialsOf(len(s.dimensions)+len(s.derived), variables)[1:] // the first is of none
	slices.SortStableFunc(list, func(a, b []int64) int { return cmp.Compare(degree(a), degree(b)) })
	return list
}

// fitProduct finds a number among those that most are: one of some products of sizes, times a number, and another
// number added. Extents, strides, counts of elements and lengths are such.
func fitProduct(samples []*sample, k int, products [][]int64) (terms [][]int64, found bool) {
	for _, monomial := range products {
		if by, added, is := affine(samples, k, monomial); is {
			if added != 0 {
				terms = append(terms, append([]int64{added}, make([]int64, len(monomial))...))
			}
			return append(terms, append([]int64{by}, monomial...)), true
		}
	}
	return nil, false
}

// affine says by what a product of sizes is to be multiplied, and what added, for the k-th number of each sample.
func affine(samples []*sample, k int, monomial []int64) (by, added int64, is bool) {
	product := func(one *sample) int64 { return productAt(monomial, one.all) }
	first := product(samples[0])
	for _, one := range samples[1:] {
		if apart := product(one) - first; apart != 0 {
			if by = (one.numbers[k] - samples[0].numbers[k]) / apart; by == 0 {
				return 0, 0, false
			}
			break
		}
	}
	added = samples[0].numbers[k] - by*first
	return by, added, by != 0 && !slices.ContainsFunc(samples, func(one *sample) bool {
		return by*product(one)+added != one.numbers[k]
	})
}

// shifted is a size further on, or as far back where there is no room, within bounds.
func shifted(size, by, least, most int64) int64 {
	switch {
	case most == symbolic.Unbounded || size+by <= most:
		return size + by
	case size-by >= least:
		return size - by
	}
	return size
}
