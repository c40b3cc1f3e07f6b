// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

// Kept remembers a placement over Learn, in which candidates come in and all indices change: what it gives makes the
// placement again, nil where one of its candidates is there no more.
func (n *Network) Kept(p *genome.Placement) func() *genome.Placement {
	chosen := make([][]string, len(p.Chosen))
	for i, list := range p.Chosen {
		for _, k := range list {
			chosen[i] = append(chosen[i], identity(&n.Placing.Functions[i].Set.Candidates[k]))
		}
	}
	return func() *genome.Placement {
		again := make([][]int, len(chosen))
		for i, f := range n.Placing.Functions {
			index := make(map[string]int, len(f.Set.Candidates))
			for k := range f.Set.Candidates {
				index[identity(&f.Set.Candidates[k])] = k
			}
			for _, of := range chosen[i] {
				k, there := index[of]
				if !there {
					return nil
				}
				again[i] = append(again[i], k)
			}
		}
		return n.Space.Place(again)
	}
}

// identity says which candidate of a function it is, whatever other candidates there are (candidate.Set).
func identity(c *candidate.Candidate) string {
	return fmt.Sprint(c.Backend, "\x00", c.Composite, "\x00", c.Nodes)
}
