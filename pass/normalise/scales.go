// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// barrierOperator is an identity that scales are not moved across.
const barrierOperator = "annotation.checkpoint"

// holdScales puts a barrier behind each product of a tensor with something that is computed from the same data, as
// squeeze-and-excitation and SiLU have it. FoldScaleAxis would move such a factor into the weight of the layer that
// reads the product: a constant, which can be packed when a model is loaded, would become something that is computed
// and packed at each call. There is one behind functions that end with a number, too (x clip(x + 3, 0, 6) * 1/6):
// without it they are functions that no kernel has. releaseScales takes the barriers away again.
func holdScales(mod *bridge.Object) (*bridge.Object, error) {
	return rewriteCalls(mod, func(g *relay.Graph, r *relay.Rewriter) error {
		barrier, err := relay.Operator(barrierOperator)
		if err != nil {
			return err
		}
		for _, id := range union(scaledByItself(g), slices.Concat(writtenFunctions(g), openProducts(g))) {
			r.Wrap(id, func(expr *bridge.Object) (*bridge.Object, error) {
				return relay.NewCall(barrier, []*bridge.Object{expr}, nil)
			})
		}
		return nil
	})
}

func releaseScales(mod *bridge.Object) (*bridge.Object, error) {
	return rewriteCalls(mod, func(g *relay.Graph, r *relay.Rewriter) error {
		for id := range g.Nodes {
			if n := &g.Nodes[id]; n.Kind == relay.KindCall && n.Op == barrierOperator {
				r.Replace(relay.NodeID(id), n.Inputs,
					func(deps []*bridge.Object) (*bridge.Object, error) { return deps[0], nil })
			}
		}
		return nil
	})
}

// BuildWithout are the passes that builds of normalised modules leave out: those given, and FoldScaleAxis, which would
// move the scales that Normalise has kept there into weights after all, and leave kernels that nobody knows the
// operators of.
func BuildWithout(disabled []string) []string {
	return append(slices.Clone(disabled), "FoldScaleAxis")
}

// written are functions of one number that front ends write with several operators, and that may end with a product.
var written = []relay.Pattern{
	relay.Gelu(relay.Wildcard()), relay.GeluTanh(relay.Wildcard()), relay.HardSwish(relay.Wildcard()),
	relay.HardSigmoid(relay.Wildcard()),
}

// writtenFunctions are where these stand in a graph.
func writtenFunctions(g *relay.Graph) []relay.NodeID {
	var found []relay.NodeID
	for id := range g.Nodes {
		if slices.ContainsFunc(written, func(p relay.Pattern) bool { return len(g.Match(p, relay.NodeID(id))) > 0 }) {
			found = append(found, relay.NodeID(id))
		}
	}
	return found
}

// scalesPass are what TVM's ForwardFoldScaleAxis looks through for products in front of a dense layer.
var scalesPass = []string{"nn.relu", "nn.leaky_relu", "add", "subtract", "multiply"}

// openProducts are the products in front of a dense layer whose last dimension, which it sums along, is open: TVM's
// ForwardFoldScaleAxis ends the process where it finds one.
func openProducts(g *relay.Graph) []relay.NodeID {
	var found []relay.NodeID
	before := make([]bool, len(g.Nodes))          // a dense layer, with nothing but scalesPass between
	for id, n := range slices.Backward(g.Nodes) { // nodes stand behind what they read
		if n.Kind != relay.KindCall {
			continue
		}
		passes := before[id] && slices.Contains(scalesPass, n.Op)
		rank := len(n.Type.Shape)
		if passes && n.Op == "multiply" && rank > 0 && n.Type.Shape[rank-1] == relay.AnyDim {
			found = append(found, relay.NodeID(id))
		}
		if passes || n.Op == "nn.dense" {
			for _, in := range n.Inputs {
				before[in] = true
			}
		}
	}
	return found
}

func union(a, b []relay.NodeID) []relay.NodeID {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// scaledByItself are the products of a graph both sides of which depend on one variable.
func scaledByItself(g *relay.Graph) []relay.NodeID {
	var products []relay.NodeID
	number := map[relay.NodeID]int{}
	for id := range g.Nodes {
		switch n := &g.Nodes[id]; {
		case n.Kind == relay.KindVar:
			number[relay.NodeID(id)] = len(number)
		case n.Kind == relay.KindCall && n.Op == "multiply" && len(n.Inputs) == 2:
			products = append(products, relay.NodeID(id))
		}
	}
	if len(products) == 0 {
		return nil
	}
	// By node, the variables that it depends on, one bit each. Nodes stand behind what they read.
	words := (len(number) + 63) / 64
	depends := make([][]uint64, len(g.Nodes))
	for id := range g.Nodes {
		set := make([]uint64, words)
		if at, ok := number[relay.NodeID(id)]; ok {
			set[at/64] |= 1 << (at % 64)
		}
		for _, in := range g.Nodes[id].Inputs {
			for w, bits := range depends[in] {
				set[w] |= bits
			}
		}
		depends[id] = set
	}
	return slices.DeleteFunc(products, func(id relay.NodeID) bool {
		in := g.Nodes[id].Inputs
		for w, bits := range depends[in[0]] {
			if bits&depends[in[1]][w] != 0 {
				return false
			}
		}
		return true
	})
}

// rewriteCalls has each function of a module rewritten as change says. The new module is the caller's.
func rewriteCalls(mod *bridge.Object, change func(g *relay.Graph, r *relay.Rewriter) error) (*bridge.Object, error) {
	m, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	var changed []relay.GlobalFunction
	for _, g := range m.Functions {
		r := relay.NewRewriter(g)
		if err := change(g, r); err != nil {
			return nil, err
		}
		function, err := r.Function()
		if err != nil {
			return nil, fmt.Errorf("rewriting function %s: %w", g.Name, err)
		}
		if !function.Same(g.Function()) {
			changed = append(changed, relay.GlobalFunction{Var: m.GlobalVar(g.Name), Function: function})
		}
	}
	return m.Replace(changed)
}
