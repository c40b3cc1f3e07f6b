// SPDX-License-Identifier: Apache-2.0

package relay

// Retyped is the graph with other types, as typeOf gives them for each node that has one: the same nodes with the same
// numbers, of the same expressions of TVM, which belong to g still.
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
	out.index()
	return out, nil
}
