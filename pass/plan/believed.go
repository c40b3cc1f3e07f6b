// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/place"
)

// believed is what the plan says about what was believed at the end of a search among whole networks; nil for nothing.
func (p *Plan) believed() *Believed {
	if p.GraphLevel == nil {
		return nil
	}
	return p.GraphLevel.Believed
}

// validateBelieved says what does not add up in what was believed.
func (p *Plan) validateBelieved() error {
	b := p.believed()
	if b == nil {
		return nil
	}
	total, prices, paid := 0.0, 0.0, 0.0
	for i := range p.Regions {
		for _, c := range p.Regions[i].Candidates {
			if !(c.Believed >= 0) || math.IsInf(c.Believed, 1) {
				return fmt.Errorf("plan: region %d: a candidate is believed to take %v ms", i, c.Believed)
			}
			total += c.Believed
			for _, n := range c.Nodes {
				prices += n.Believed
			}
		}
	}
	for _, payment := range b.Payments {
		if !(payment.Milliseconds >= 0) || math.IsInf(payment.Milliseconds, 1) {
			return fmt.Errorf("plan: %v ms are believed to be paid for %%%d of function %s", payment.Milliseconds,
				payment.Value, payment.Function)
		}
		paid += payment.Milliseconds
	}
	switch {
	case !near(paid, b.Transfers) || !near(total+paid, b.Milliseconds):
		return fmt.Errorf("plan: the network is believed to take %v ms, %v of them between regions; its candidates "+
			"sum to %v ms, what is paid "+
			"between regions to %v ms", b.Milliseconds, b.Transfers, round(total), round(paid))
	case !near(prices, b.Proven) || b.Proven > b.Bound+sumTolerance || b.Bound > b.Milliseconds+sumTolerance:
		return fmt.Errorf("plan: by what was believed no network takes less than %v ms, and the file shows %v ms; "+
			"its prices sum to %v ms, and "+
			"the network takes %v ms", b.Bound, b.Proven, round(prices), b.Milliseconds)
	case !near(b.Milliseconds-b.Bound, b.Gap):
		return fmt.Errorf("plan: by what was believed the network takes %v ms and none less than %v ms, but the gap "+
			"is %v ms", b.Milliseconds,
			b.Bound, b.Gap)
	}
	return nil
}

// proveBelieved checks what was believed: that the values that are paid for are those that cross the borders of the
// plan's regions, each once, and that the prices sum to no more than any candidates that cover the network. nil where
// the plan says nothing of it.
func (p *Plan) proveBelieved() (*Proof, error) {
	b := p.believed()
	if b == nil {
		return nil, nil
	}
	type paid struct {
		function string
		value    int
		region   int
		out      bool
	}
	left := map[paid]int{}
	for _, payment := range b.Payments {
		left[paid{payment.Function, payment.Value, payment.Region, payment.Out}]++
	}
	bound := 0.0
	for _, f := range p.Module.Functions {
		var missing *paid
		p.flow(f).Each(p.regionsOf(f, inlineSide, func(string) border.Side { return 0 }), func(payment border.Payment) {
			one := paid{f.Name, int(payment.Value), int(payment.Region) - 1, payment.Out}
			if left[one]--; left[one] < 0 && missing == nil {
				missing = &one
			}
		})
		if missing != nil {
			return nil, fmt.Errorf("plan: function %s: nothing is said of %%%d, which crosses the border of region %d",
				f.Name, missing.value, missing.region)
		}
		options, tree, placement := p.problemBy(f, true)
		least, err := place.VerifyBound(options, tree, placement)
		if err != nil {
			return nil, fmt.Errorf("plan: function %s: by what was believed: %w", f.Name, err)
		}
		bound += least
	}
	for one, n := range left {
		if n > 0 {
			return nil, fmt.Errorf("plan: function %s: %%%d is paid for at region %d, whose border it does not "+
				"cross, or twice", one.function,
				one.value, one.region)
		}
	}
	return &Proof{Milliseconds: b.Milliseconds, Bound: round(bound)}, nil
}
