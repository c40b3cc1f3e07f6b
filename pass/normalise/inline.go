// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// inlineCalls puts the bodies of a module's functions in the place of their calls. TVM's graph executor, which runs
// networks, knows no functions of a module but regions, and TVM's own Inline fails where a function is called twice;
// what runs is then main alone, and candidates and what is learnt of them cross the borders of functions. Left as
// they are: functions that somebody has given to a compiler or made one kernel, that come back to themselves, and
// those that bind variables of their own (Let, function literals) where they are called more than once.
func inlineCalls(mod *bridge.Object) (*bridge.Object, error) {
	m, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	for {
		calls := inlinable(m)
		var changed []relay.GlobalFunction
		for _, g := range m.Functions {
			if len(calls[g.Name]) == 0 {
				continue
			}
			function, err := inlined(m, g, calls[g.Name])
			if err != nil {
				return nil, fmt.Errorf("inlining what function %s calls: %w", g.Name, err)
			}
			defer function.Release()
			changed = append(changed, relay.GlobalFunction{Var: m.GlobalVar(g.Name), Function: function})
		}
		out, err := m.Replace(changed)
		if err != nil || len(changed) == 0 {
			return out, err
		}
		next, err := relay.Read(out)
		out.Release()
		if err != nil {
			return nil, err
		}
		m.Release()
		m = next
	}
}

// callee is the function of a module that a node calls; nil for anything else.
func callee(m *relay.Module, g *relay.Graph, n *relay.Node) *relay.Graph {
	if n.Kind != relay.KindCall || n.Callee == relay.NoNode || g.Nodes[n.Callee].Kind != relay.KindGlobalVar {
		return nil
	}
	return m.Function(g.Nodes[n.Callee].Name)
}

// inlinable are, by function, the calls in it of functions that may be inlined and call none such themselves.
func inlinable(m *relay.Module) map[string][]relay.NodeID {
	called := map[string]int{}
	calls := map[string][]string{}
	for _, g := range m.Functions {
		for v := range g.Nodes {
			if f := callee(m, g, &g.Nodes[v]); f != nil {
				called[f.Name]++
				calls[g.Name] = append(calls[g.Name], f.Name)
			}
		}
	}
	reaches := func(from, to string) bool {
		seen, open := map[string]bool{}, slices.Clone(calls[from])
		for i := 0; i < len(open); i++ {
			if open[i] == to {
				return true
			}
			if !seen[open[i]] {
				seen[open[i]] = true
				open = append(open, calls[open[i]]...)
			}
		}
		return false
	}
	may := map[string]bool{}
	for _, g := range m.Functions {
		may[g.Name] = called[g.Name] > 0 && g.Name != "main" && g.Attrs["Compiler"] == "" &&
			!relay.IsSet(g.Attrs["Primitive"]) &&
			!reaches(g.Name, g.Name) && (called[g.Name] == 1 || len(g.Scopes) == 1)
	}
	found := map[string][]relay.NodeID{}
	for _, g := range m.Functions {
		for v := range g.Nodes {
			f := callee(m, g, &g.Nodes[v])
			if f != nil && may[f.Name] && !slices.ContainsFunc(calls[f.Name],
				func(name string) bool { return may[name] }) {
				found[g.Name] = append(found[g.Name], relay.NodeID(v))
			}
		}
	}
	return found
}

// inlined is a function with what it calls in the place of the calls.
func inlined(m *relay.Module, g *relay.Graph, calls []relay.NodeID) (*bridge.Object, error) {
	r := relay.NewRewriter(g)
	for _, id := range calls {
		f := callee(m, g, &g.Nodes[id])
		r.Replace(id, g.Nodes[id].Inputs, func(arguments []*bridge.Object) (*bridge.Object, error) {
			body, err := f.Function().AttrObject("body")
			if err != nil {
				return nil, err
			}
			defer body.Release()
			var bound []any
			for i, p := range f.Params {
				bound = append(bound, f.Handle(p), arguments[i])
			}
			values, err := bridge.NewMap(bound...)
			if err != nil {
				return nil, err
			}
			defer values.Release()
			v, err := bridge.Global("relay.ir.Bind", body, values)
			if err != nil {
				return nil, err
			}
			return v.Object()
		})
	}
	return r.Function()
}
