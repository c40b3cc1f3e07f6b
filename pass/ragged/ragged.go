// SPDX-License-Identifier: Apache-2.0

// Package ragged makes batches of sequences of different lengths known to a network that takes them padded.
//
// What comes in: a module, and the name of the input that says which places are tokens: the attention mask. What goes
// out: the module with zeros in the place of padding wherever that would leave the part of the network that works row
// by row: where(mask, x, 0) on its outputs, on values of which a reader takes the first place alone, and on values that
// are multiplied by the mask. That is all that is changed: every backend can compute it, plain TVM is the reference for
// it, and outputs can be compared number by number, whatever padding holds. A backend that knows of it need not compute
// what only leads there: byoc/dnnl/ragged.go.
//
// The idea of computing a padded batch without its padding is that of CoRa (Fegade et al., MLSys 2022), which compiles
// operators for it; here it is found in networks as they are written.
package ragged

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// Option is what users name the mask by.
const Option = "ragged"

func refuse(format string, args ...any) error {
	return &settings.OptionError{Option: Option, Reason: fmt.Sprintf(format, args...)}
}

// ClearPadding writes zeros in the place of padding, see the package's comment. mod must have types; it is unchanged,
// and the new one, which is the caller's, needs types for what is new. values is in how many values padding became 0.
// Errors: a *settings.OptionError that says what is wrong with the mask, or why it means nothing for the network, and
// TVM's.
func ClearPadding(mod *bridge.Object, mask string) (out *bridge.Object, values int, err error) {
	m, err := relay.Read(mod)
	if err != nil {
		return nil, 0, err
	}
	defer m.Release()
	at := slices.IndexFunc(m.Functions, func(g *relay.Graph) bool { return g.Name == "main" })
	if at < 0 {
		return nil, 0, refuse("needs a module with a function main")
	}
	g := m.Functions[at]
	id, err := maskOf(g, mask)
	if err != nil {
		return nil, 0, err
	}
	edges, err := frontierOf(g, id)
	if err != nil {
		return nil, 0, err
	}
	if len(edges) == 0 {
		return nil, 0, refuse("names %s %s, but no output of the network has a row for each of its places, and nothing takes "+
			"the first place of each sequence, or multiplies by the mask: whoever reads the network's values sees padding",
			mask, relay.ShapeText(g.Nodes[id].Type.Shape))
	}
	function, err := cleared(g, id, edges)
	if err != nil {
		return nil, 0, fmt.Errorf("clearing the padding of %s: %w", mask, err)
	}
	defer function.Release()
	all := map[relay.NodeID]bool{}
	for _, e := range edges {
		all[e.value] = true
	}
	out, err = m.Replace([]relay.GlobalFunction{{Var: m.GlobalVar(g.Name), Function: function}})
	return out, len(all), err
}

// maskOf is the input of that name, which can be a mask.
func maskOf(g *relay.Graph, mask string) (relay.NodeID, error) {
	var names []string
	for _, id := range g.Params {
		n := &g.Nodes[id]
		names = append(names, n.Name)
		if n.Name != mask {
			continue
		}
		t := n.Type
		if t == nil || t.Kind != relay.TypeTensor || len(t.Shape) != 2 {
			return 0, refuse("names %s, which has not two dimensions, batch and length", mask)
		}
		if !slices.Contains(maskTypes, t.DType) {
			return 0, refuse("names %s, which is %s; a mask is one of %s", mask, t.DType, strings.Join(maskTypes, ", "))
		}
		if t.Shape[1] != relay.AnyDim && t.Shape[1] < 2 {
			return 0, refuse("names %s %s: sequences of one place have no padding", mask, relay.ShapeText(t.Shape))
		}
		return id, nil
	}
	return 0, refuse("names %q, and the network has no such input; it has %s", mask, strings.Join(names, ", "))
}

// edge is a value whose padding is seen by a reader; NoNode for the network's user.
type edge struct{ value, reader relay.NodeID }

// askedSizes is at how many sizes a network with open dimensions is looked at: at one of them two dimensions of a narrow
// domain may be alike.
const askedSizes = 2

// frontierOf is frontier of a network whose dimensions may be open: what is found at each of some sizes, among which
// batch and length are told apart.
func frontierOf(g *relay.Graph, mask relay.NodeID) ([]edge, error) {
	if !slices.Contains(g.Nodes[mask].Type.Shape, relay.AnyDim) {
		return frontier(g, mask), nil
	}
	analysis, err := symbolic.AnalyseNamed(g)
	if err != nil {
		return nil, err
	}
	var found []edge
	for number := range askedSizes {
		here := frontier(analysis.FixedWhereKnown(symbolic.Sample(analysis.All(), number)), mask)
		if number == 0 {
			found = here
			continue
		}
		found = slices.DeleteFunc(found, func(e edge) bool { return !slices.Contains(here, e) })
	}
	return found, nil
}

// frontier are the values that have a row for each place, and readers of which it is known that they do without
// padding, but do not work row by row.
func frontier(g *relay.Graph, mask relay.NodeID) []edge {
	f := findAxes(g, mask)
	clears := func(v relay.NodeID) bool {
		return f.rows(v) && g.Nodes[v].Type.IsTensor("float32") && g.Nodes[v].Kind == relay.KindCall
	}
	var edges []edge
	for id := range g.Nodes {
		n, reader := &g.Nodes[id], relay.NodeID(id)
		if n.Kind != relay.KindCall || len(n.Inputs) == 0 {
			continue
		}
		switch {
		case f.takesFirst(n) && clears(n.Inputs[0]):
			edges = append(edges, edge{n.Inputs[0], reader})
		case n.Op == "multiply":
			for i, v := range n.Inputs {
				if other := n.Inputs[1-i]; clears(v) && f.alongRows(other, v) && ofMask(g, other, mask) {
					edges = append(edges, edge{v, reader})
				}
			}
		}
	}
	root := g.Root()
	outputs, tuple := []relay.NodeID{root}, relay.NoNode
	if g.Nodes[root].Kind == relay.KindTuple {
		outputs, tuple = g.Nodes[root].Inputs, root
	}
	for _, v := range outputs {
		if e := (edge{v, tuple}); clears(v) && !slices.Contains(edges, e) {
			edges = append(edges, e)
		}
	}
	return edges
}

// alongRows says that of a product with a value, which has a row for each place, another factor has one, too.
func (f *finder) alongRows(factor, value relay.NodeID) bool {
	return f.rows(factor) && len(f.of[factor]) == len(f.of[value])
}

// takesFirst says that a call takes of each sequence the first place alone, as classifiers do.
func (f *finder) takesFirst(n *relay.Node) bool {
	if !f.rows(n.Inputs[0]) {
		return false
	}
	switch n.Op {
	case "strided_slice":
		t := f.g.Nodes[n.Inputs[0]].Type
		begin, _ := n.Attrs.Ints("begin")
		list, given := n.Attrs.Ints("axes")
		at := 1
		if given && len(list) > 0 {
			at = slices.Index(list, 1)
		}
		return n.Type != nil && len(n.Type.Shape) == len(t.Shape) && n.Type.Shape[0] == t.Shape[0] &&
			n.Type.Shape[1] == 1 && at >= 0 && at < len(begin) && begin[at] == 0
	case "take":
		axis, ok := n.Attrs.Int("axis")
		index := f.g.Nodes[n.Inputs[1]].Constant
		return ok && axis == 1 && index != nil && index.Scalar == 0
	}
	return false
}

// ofMask says that a value is the mask in another type and shape, 0 where that is.
func ofMask(g *relay.Graph, v, mask relay.NodeID) bool {
	for v != mask {
		n := &g.Nodes[v]
		switch n.Op {
		case "cast", "expand_dims", "reshape", "broadcast_to":
		case "not_equal", "greater":
			if c := g.Nodes[n.Inputs[1]].Constant; c == nil || c.Scalar != 0 {
				return false // what is not 1 is padding
			}
		default:
			return false
		}
		v = n.Inputs[0]
	}
	return true
}
