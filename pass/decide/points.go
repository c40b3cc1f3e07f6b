// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/relay"
)

// notePoints says at which sizes of open dimensions the finalists were run, and what each took there: the tables have the
// means over all sizes there may be.
func (c *decision) notePoints() {
	if len(c.points) == 0 {
		return
	}
	texts := make([]string, len(c.points))
	for i, p := range c.points {
		texts[i] = pointText(p, c.opened())
	}
	c.note("What a run takes is the mean over all sizes that open dimensions may have. %s.", strings.Join(texts, ". "))
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
func pointText(p measure.Point, inputs []string) string {
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
