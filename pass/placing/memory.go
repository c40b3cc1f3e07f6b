// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// tooLarge says why a candidate cannot be held by the device that its backend runs on; "" where it might be. What it
// reads, its weights and what it gives are there together; what lies between its operators comes on top of that, and
// where that is too much, it fails when it is measured.
func (s *Module) tooLarge(g *relay.Graph, c *candidate.Candidate) string {
	backend := s.ByName[c.Backend]
	memory := byoc.MemoryOf(backend)
	if memory == 0 {
		return ""
	}
	needed := int64(0)
	for _, list := range [][]relay.NodeID{c.Inputs, c.Constants, c.Results()} {
		for _, v := range list {
			if t := g.Nodes[v].Type; t != nil {
				bytes, _ := t.NumBytes()
				needed += bytes
			}
		}
	}
	if needed <= memory {
		return ""
	}
	return fmt.Sprintf("what it reads and gives and its weights take %.1f MB, the device %s has %.1f MB", float64(needed)/1e6,
		byoc.DeviceOf(backend), float64(memory)/1e6)
}

// holdable leaves those of a set's candidates out that no device can hold, and says so.
func (s *Module) holdable(set *candidate.Set) {
	kept := set.Candidates[:0]
	for i := range set.Candidates {
		c := &set.Candidates[i]
		if reason := s.tooLarge(set.Graph, c); reason != "" {
			set.Refusals = append(set.Refusals, candidate.Refusal{Node: c.Root, Backend: c.Backend,
				Composite: candidate.OperatorName(&set.Graph.Nodes[c.Root]), Reason: reason})
			continue
		}
		kept = append(kept, *c)
	}
	set.Candidates = kept
}
