// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// workload is a set of nodes as a function of its inputs: what an option is estimated by, and what is outlined.
type workload struct {
	nodes candidate.NodeSet
	parts []candidate.Part
	// compiler is the attribute Compiler; "" for TVM.
	compiler string
	// inputs are the values that it is called with, outputs those that others use, ascending.
	inputs, outputs []relay.NodeID
	// function is closed: inputs are parameters, and the outputs are its value, as a tuple where there are several.
	function *bridge.Object
}

// newWorkload makes the function of a set of nodes.
func newWorkload(g *relay.Graph, nodes candidate.NodeSet, parts []candidate.Part, compiler string) (*workload, error) {
	r := &workload{nodes: nodes, parts: parts, compiler: compiler, outputs: outputs(g, nodes)}
	r.inputs = inputs(g, nodes, r.outputs)
	inside := relay.NewRewriter(g)
	params, err := bind(g, inside, r.inputs)
	if err != nil {
		return nil, err
	}
	attrs := map[string]any{}
	if compiler != "" {
		attrs = map[string]any{"Primitive": 1, "Compiler": compiler}
	}
	r.function, err = r.close(g, inside, params, attrs)
	return r, err
}

// close makes a function of the region, the parameters of which stand for its inputs in the rewriter already.
func (r *workload) close(g *relay.Graph, inside *relay.Rewriter, params []*bridge.Object,
	attrs map[string]any) (*bridge.Object, error) {
	for _, p := range r.parts {
		if err := replacePart(g, inside, p); err != nil {
			return nil, err
		}
	}
	body, resultType, err := value(g, inside, r.outputs)
	if err != nil {
		return nil, err
	}
	return relay.NewTypedFunction(params, body, resultType, attrs)
}

// flat is the function with parameters that are tensors, for a worker: under the given name where it is an external
// code generator's.
func (r *workload) flat(g *relay.Graph, symbol string) (*bridge.Object, error) {
	inside := relay.NewRewriter(g)
	params, args, err := r.arguments(g)
	if err != nil {
		return nil, err
	}
	for i, in := range r.inputs {
		inside.Set(in, args[i])
	}
	attrs := map[string]any{}
	if r.compiler != "" {
		attrs = map[string]any{"Primitive": 1, "Compiler": r.compiler, "Inline": 1, "global_symbol": symbol}
	}
	return r.close(g, inside, params, attrs)
}

// arguments makes parameters that are tensors and the region's arguments of them.
func (r *workload) arguments(g *relay.Graph) (params, args []*bridge.Object, err error) {
	for i, in := range r.inputs {
		t, err := relay.CheckedType(g.Handle(in))
		if err != nil {
			return nil, nil, err
		}
		arg, err := relay.NewTensorParams(fmt.Sprintf("FunctionVar_%d", i), t, &params)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, arg)
	}
	return params, args, nil
}

// replacePart makes a part's Composite function, and a call of it where the part's value is used.
func replacePart(g *relay.Graph, around *relay.Rewriter, p candidate.Part) error {
	roots := outputs(g, p.Nodes)
	if len(roots) != 1 {
		return fmt.Errorf("the match of %s has %d exits", p.Composite, len(roots))
	}
	args := inputs(g, p.Nodes, roots)
	inside := relay.NewRewriter(g)
	params, err := bind(g, inside, args)
	if err != nil {
		return err
	}
	body, resultType, err := value(g, inside, roots)
	if err != nil {
		return err
	}
	function, err := relay.NewTypedFunction(params, body, resultType, map[string]any{"Composite": p.Composite})
	if err != nil {
		return err
	}
	around.Replace(roots[0], args, func(now []*bridge.Object) (*bridge.Object, error) {
		return relay.NewCall(function, now, nil)
	})
	return nil
}

// bind makes a parameter for each input.
func bind(g *relay.Graph, r *relay.Rewriter, inputs []relay.NodeID) ([]*bridge.Object, error) {
	params := make([]*bridge.Object, len(inputs))
	for i, in := range inputs {
		t, err := relay.CheckedType(g.Handle(in))
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, fmt.Errorf("%s has no type: run InferType first", g.Line(in))
		}
		if params[i], err = relay.NewVarOfType(fmt.Sprintf("FunctionVar_%d", i), t); err != nil {
			return nil, err
		}
		r.Set(in, params[i])
	}
	return params, nil
}

// value gives the expression of the outputs and its type.
func value(g *relay.Graph, r *relay.Rewriter, outputs []relay.NodeID) (body, resultType *bridge.Object, err error) {
	exprs := make([]*bridge.Object, len(outputs))
	for i, v := range outputs {
		if exprs[i], err = r.Expr(v); err != nil {
			return nil, nil, err
		}
	}
	return relay.NewResult(g, outputs, exprs)
}

// outputs are the nodes of a set whose values are used outside, ascending. A constant is bound wherever it is needed.
func outputs(g *relay.Graph, nodes candidate.NodeSet) []relay.NodeID {
	var roots []relay.NodeID
	for _, v := range nodes.Nodes() {
		if g.Nodes[v].Kind != relay.KindConstant &&
			(g.ScopeRoot(v) || slices.ContainsFunc(g.Consumers(v),
				func(c relay.NodeID) bool { return !nodes.Has(c) })) {
			roots = append(roots, v)
		}
	}
	return roots
}

// inputs are what a set reads of the outside, in the order in which the prototype comes across them: from the last
// output to the first, depth first, arguments from left to right.
func inputs(g *relay.Graph, nodes candidate.NodeSet, outputs []relay.NodeID) []relay.NodeID {
	var found []relay.NodeID
	seen := candidate.NewNodeSet(len(g.Nodes))
	for i := len(outputs) - 1; i >= 0; i-- {
		stack := []relay.NodeID{outputs[i]}
		for len(stack) > 0 {
			v := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen.Has(v) {
				continue
			}
			seen.Add(v)
			if !nodes.Has(v) {
				if !candidate.Inlinable(&g.Nodes[v]) {
					found = append(found, v)
				}
				continue
			}
			for _, in := range slices.Backward(g.Nodes[v].Inputs) {
				stack = append(stack, in)
			}
		}
	}
	return found
}

// module makes a module whose main has the region's function as its body, or calls it as the global function symbol
// where it is an external code generator's. Parameters that are tuples are taken apart into tensors.
func (r *workload) module(g *relay.Graph, symbol string) (*bridge.Object, error) {
	if r.compiler == "" {
		function, err := r.flat(g, "")
		if err != nil {
			return nil, err
		}
		mod, err := relay.ModuleFromFunctions(map[string]*bridge.Object{"main": function})
		if err != nil {
			return nil, err
		}
		defer mod.Release()
		return relay.InferType(mod)
	}
	params, args, err := r.arguments(g)
	if err != nil {
		return nil, err
	}
	callee, err := relay.NewGlobalVar(symbol)
	if err != nil {
		return nil, err
	}
	body, err := relay.NewCall(callee, args, nil)
	if err != nil {
		return nil, err
	}
	outlined, err := relay.WithAttr(r.function, "global_symbol", symbol)
	if err != nil {
		return nil, err
	}
	main, err := relay.NewFunction(params, body, nil)
	if err != nil {
		return nil, err
	}
	return callingModule(callee, outlined, main)
}

func callingModule(callee, function, main *bridge.Object) (*bridge.Object, error) {
	empty, err := relay.ModuleFromFunctions(nil)
	if err != nil {
		return nil, err
	}
	defer empty.Release()
	m, err := relay.Read(empty)
	if err != nil {
		return nil, err
	}
	mainVar, err := relay.NewGlobalVar("main")
	if err != nil {
		return nil, err
	}
	mod, err := m.Replace([]relay.GlobalFunction{{Var: callee, Function: function}, {Var: mainVar, Function: main}})
	if err != nil {
		return nil, err
	}
	defer mod.Release()
	return relay.InferType(mod)
}
