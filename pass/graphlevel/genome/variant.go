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

// vary picks another way to run a candidate, often for all that compute the same in the same way.
func (m *mutation) vary() bool {
	type place struct{ function, candidate int }
	var several []place
	for i := range m.parts {
		at := &m.parts[i]
		for _, k := range at.candidates {
			if m.s.variants[at.function][k].of > 1 {
				several = append(several, place{at.function, k})
			}
		}
	}
	if len(several) == 0 {
		return false
	}
	one := several[m.r.IntN(len(several))]
	now := m.s.variants[one.function][one.candidate]
	to := int16(1 + m.r.IntN(int(now.of)-1))
	if to >= now.number {
		to++
	}
	like := &m.s.Functions[one.function].Set.Candidates[one.candidate]
	alike := m.r.IntN(4) > 0
	for _, other := range several {
		c := &m.s.Functions[other.function].Set.Candidates[other.candidate]
		if other == one || alike && c.Backend == like.Backend && c.Composite == like.Composite && c.Key == like.Key {
			m.g[other.function][c.Root].Variant = to
		}
	}
	return true
}
