// SPDX-License-Identifier: Apache-2.0

package relay

import "slices"

// Retyped is the graph with other types, as typeOf gives them for each node that has one: the same nodes with the same
// numbers, of the same expressions of TVM, which belong to g still. A reshape_like of which all sizes are numbers then is
// a reshape: it needs no other tensor that says them.
func (g *Graph) Retyped(typeOf func(id NodeID) (*Type, error)) (*Graph, error) {
	out := &Graph{Name: g.Name, Attrs: g.Attrs, Params: g.Params, Scopes: g.Scopes, handles: g.handles,
		function: g.function}
	out.Nodes = append(out.Nodes, g.Nodes...)
	for i := range out.Nodes {
		if out.Nodes[i].Type == nil {
			continue
		}
		t, err := typeOf(NodeID(i))
		if err != nil {
			return nil, err
		}
		out.Nodes[i].Type = t
	}
	for i := range out.Nodes {
		n := &out.Nodes[i]
		if n.Op == "reshape_like" && isFixed(n.Type) && isFixed(out.Nodes[n.Inputs[0]].Type) {
			n.Op, n.Inputs, n.Attrs = "reshape", n.Inputs[:1], nil
		}
	}
	out.index()
	return out, nil
}

// isFixed says that a type is of a tensor all sizes of which are numbers.
func isFixed(t *Type) bool {
	return t != nil && t.Kind == TypeTensor && !slices.Contains(t.Shape, AnyDim)
}
