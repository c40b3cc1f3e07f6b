// SPDX-License-Identifier: Apache-2.0

package network

import (
	"math"

	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
)

// Exchange writes into a placement's plan what it would take more with each candidate that it has not, borders
// included, by what a search among whole networks ended with (plan.Rejected.Exchange). Nothing is written where none
// was measured.
func (n *Network) Exchange(p *genome.Placement, learnt *graphlevel.Result, into *plan.Plan) {
	for i, more := range learnt.Exchanges(p) {
		set := n.Placing.Functions[i].Set
		of := map[string]float64{}
		for k, ms := range more {
			if c := &set.Candidates[k]; !math.IsNaN(ms) {
				of[plan.RejectedID(c.Backend, c.Composite, c.Nodes)] = ms
			}
		}
		into.Exchange(set.Graph.Name, of)
	}
}
