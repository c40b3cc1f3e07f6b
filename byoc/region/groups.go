// SPDX-License-Identifier: Apache-2.0

package region

import (
	"fmt"
	"strings"
)

// A region is made of groups: composite functions, and operators that stand by themselves. An engine does not care; but
// who profiles a region wants to know which of them each step of the engine's does. So the program of an engine that
// times its steps names the groups, and says of each step which of them it does (pass/graphlevel/feedback finds the
// candidates by the groups' order and names).

// Groups gives the names of the groups in order, and for each of Ops the group that it belongs to.
func (p *Program) Groups() (names []string, of []int) {
	for i := range p.Ops {
		c := p.Ops[i].CompositeIndex
		switch {
		case c < 0:
			names = append(names, p.Ops[i].Name)
		case i == 0 || p.Ops[i-1].CompositeIndex != c:
			names = append(names, p.Composites[c])
		}
		of = append(of, len(names)-1)
	}
	return names, of
}

// GroupsLine writes the groups' names as a line of words, as the engines that are given a whole model read them
// (byoc/runtime/layer_steps.h).
func GroupsLine(names []string) string { return strings.Join(names, " ") + "\n" }

// LayerPrefix begins the name of what an engine's model has for an operator of that group. Engines keep the names of
// layers, join those of layers that they fuse, and give them back with the times; byoc/runtime/layer_steps.h reads the
// groups off them.
func LayerPrefix(group int) string { return fmt.Sprintf("g%d/", group) }
