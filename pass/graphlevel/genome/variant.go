// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"fmt"
	"math"
)

// variant says which of the ways to run the same nodes on the same backend, or on those that share its regions, a
// candidate is: number, from 1, of so many. Both are 0 where there is only one.
type variant struct{ number, of int16 }

// variantsOf numbers a function's candidates; those that must not be taken have no number.
func (s *Space) variantsOf(f *Function) []variant {
	list := make([]variant, len(f.Set.Candidates))
	same := map[string][]int{}
	var order []string
	for k := range f.Set.Candidates {
		c := &f.Set.Candidates[k]
		if c.Free || math.IsInf(f.Costs[k], 1) {
			continue
		}
		key := fmt.Sprint(s.index[c.Backend], c.Nodes)
		if len(same[key]) == 0 {
			order = append(order, key)
		}
		same[key] = append(same[key], k)
	}
	for _, key := range order {
		if of := same[key]; len(of) > 1 {
			for i, k := range of {
				list[k] = variant{int16(i + 1), int16(len(of))}
			}
		}
	}
	return list
}

// against says that a gene asks for another way than this one, and for one that there is.
func (v variant) against(gene Gene) bool {
	return gene.Variant > 0 && gene.Variant != v.number && gene.Variant <= v.of
}
