// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// recordPoints writes into the plan, and says, at which sizes of open dimensions the finalists were run, and what each took
// there: the tables have the means over all sizes there may be.
func (c *decision) recordPoints(chosen *finalist) {
	c.plan.Points = c.points
	if len(c.points) == 0 {
		return
	}
	texts := make([]string, len(c.points))
	for i, p := range c.points {
		texts[i] = pointText(p, c.opened())
	}
	c.note("What a run takes is the mean over all sizes that open dimensions may have. %s.", strings.Join(texts, ". "))
	names := map[string]bool{} // of those that may be kept
	for _, f := range c.distinct() {
		names[f.name] = f.eligible
	}
	if share := fastestEach(c.points, names) / mean(c.points, chosen.name); share < 1 {
		c.note("The fastest at each size would take %.3g of what %s takes: one serves all sizes.", share, chosen.title())
	}
}

// mean is what a finalist takes over all sizes.
func mean(points []cost.Point, name string) float64 {
	sum := 0.0
	for _, p := range points {
		sum += p.Weight * p.Milliseconds[name]
	}
	return sum
}

// fastestEach is the mean of what the fastest of some finalists takes at each point.
func fastestEach(points []cost.Point, names map[string]bool) float64 {
	sum := 0.0
	for _, p := range points {
		least := math.Inf(1)
		for name, taken := range p.Milliseconds {
			if names[name] {
				least = min(least, taken)
			}
		}
		sum += p.Weight * least
	}
	return sum
}

// opened are the inputs with open dimensions that have a domain, sorted.
func (c *decision) opened() []string {
	var names []string
	for name, sizes := range c.Tried {
		if slices.ContainsFunc(sizes.Domain, func(domain *[2]int64) bool { return domain != nil }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// pointText is "At x [1, 58] openvino takes 0.61 ms, tvm 1.2 ms", the fastest first.
func pointText(p cost.Point, inputs []string) string {
	sizes := make([]string, len(inputs))
	for i, name := range inputs {
		sizes[i] = name + " " + relay.ShapeText(p.Sizes[name])
	}
	names := slices.SortedFunc(maps.Keys(p.Milliseconds), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Milliseconds[a], p.Milliseconds[b]), cmp.Compare(a, b))
	})
	text := "At " + strings.Join(sizes, ", ")
	for i, name := range names {
		verb := " takes"
		if i > 0 {
			verb, text = "", text+","
		}
		text += fmt.Sprintf(" %s%s %.3g ms", name, verb, p.Milliseconds[name])
	}
	return text
}
