// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// CorrectedIn are the products in a region of a set's candidates behind which it has a bias that may be corrected.
func (s *Module) CorrectedIn(set *candidate.Set, r *annotate.Region) (products []relay.NodeID) {
	for _, k := range r.Candidates {
		c := &set.Candidates[k]
		for _, v := range byoc.WeightsRoundedBy(s.ByName[c.Backend], set.Graph, c.Nodes) {
			add, _, ok := annotate.Bias(set.Graph, v, annotate.Channels(set.Graph, v))
			if _, own := slices.BinarySearch(r.Nodes, add); ok && own {
				products = append(products, v)
			}
		}
	}
	return products
}

// FitsShifts says which shift of a region, as a plan has it, is of no bias in it.
func (s *Module) FitsShifts(set *candidate.Set, r *annotate.Region) error {
	products := s.CorrectedIn(set, r)
	for v, shift := range r.Shifts {
		if !slices.Contains(products, v) {
			return fmt.Errorf("corrects the bias behind %%%d, which it does not have", v)
		}
		t := set.Graph.Nodes[v].Type
		if channels := t.Shape[annotate.Channels(set.Graph, v)]; int64(len(shift)) != channels {
			return fmt.Errorf("corrects %d channels of the bias behind %%%d, which has %d", len(shift), v, channels)
		}
	}
	return nil
}
