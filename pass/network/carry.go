// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Carried are the files by which a module reaches the workers: each network that they build has the same weights, so
// these are written once.
type Carried struct {
	// Module is the module in TVM's JSON, without weights: they are further parameters of its functions. Params has
	// them by name.
	Module, Params string
}

// Save writes the module into a folder for the workers. The files are the caller's.
func (n *Network) Save(folder string) (files Carried, err error) {
	files = Carried{Module: filepath.Join(folder, "network.json"), Params: filepath.Join(folder, "network.params")}
	err = bridge.OnThread(func() error {
		var changed []relay.GlobalFunction
		var weights []weight
		defer func() {
			for _, w := range weights {
				w.tensor.Release()
			}
		}()
		for i, f := range n.Placing.Functions {
			function, found, err := lift(f.Set.Graph, fmt.Sprintf("collage_weight_%d_", i))
			if err != nil {
				return fmt.Errorf("taking the weights out of function %s: %w", f.Set.Graph.Name, err)
			}
			weights = append(weights, found...)
			changed = append(changed, relay.GlobalFunction{Var: n.Placing.Relay.GlobalVar(f.Set.Graph.Name),
				Function: function})
		}
		light, err := n.Placing.Relay.Replace(changed)
		if err != nil {
			return err
		}
		defer light.Release()
		text, err := bridge.Global("node.SaveJSON", light)
		if err != nil {
			return err
		}
		json, err := text.Str()
		if err != nil {
			return err
		}
		if err := os.WriteFile(files.Module, []byte(json), 0o600); err != nil {
			return fmt.Errorf("writing the network for the workers: %w", err)
		}
		if err := saveWeights(files.Params, weights); err != nil {
			return fmt.Errorf("writing the network's weights for the workers: %w", err)
		}
		return nil
	})
	return files, err
}

// lift makes the large constants of a function parameters of it, behind its own, which weights has.
func lift(g *relay.Graph, prefix string) (function *bridge.Object, weights []weight, err error) {
	rewriter := relay.NewRewriter(g)
	var params []*bridge.Object
	for _, p := range g.Params {
		params = append(params, g.Handle(p))
	}
	for v := range g.Nodes {
		id := relay.NodeID(v)
		constant := g.Nodes[v].Constant
		if constant == nil || constant.Bytes <= relay.SmallConstant {
			continue
		}
		t, err := relay.CheckedType(g.Handle(id))
		if err != nil {
			return nil, nil, err
		}
		name := fmt.Sprintf("%s%d", prefix, v)
		variable, err := relay.NewVarOfType(name, t)
		if err != nil {
			return nil, nil, err
		}
		tensor, err := g.Tensor(id)
		if err != nil {
			return nil, nil, err
		}
		rewriter.Set(id, variable)
		params = append(params, variable)
		weights = append(weights, weight{name, tensor})
	}
	body, err := rewriter.Expr(g.Root())
	if err != nil {
		return nil, nil, err
	}
	value, err := bridge.Global("relay.ir.FunctionWithFields", g.Function(), params, body, nil, nil, nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	function, err = value.Object()
	return function, weights, err
}

// ApplySpec writes the regions of a spec into a module.
func ApplySpec(mod *bridge.Object, spec *Spec) (*bridge.Object, error) {
	module, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer module.Release()
	var functions []annotate.Function
	for _, f := range spec.Functions {
		g := module.Function(f.Name)
		if g == nil || graphShape(g) != f.Shape {
			return nil, fmt.Errorf("ValueError: the function %s is not the one that was placed; the network's files "+
				"were changed, or "+
				"the worker has another TVM", f.Name)
		}
		of := annotate.Function{Set: &candidate.Set{Graph: g}, Watched: f.Watched}
		for _, r := range f.Regions {
			region := annotate.Region{Backend: r.Backend, Compiler: r.Compiler, Symbol: r.Symbol, Steps: r.Steps,
				Given: r.Given, Shifts: r.Shifts}
			for _, c := range r.Candidates {
				if err := candidate.CheckEither(g, c.Nodes, c.Bare && c.Composite == ""); err != nil {
					return nil, fmt.Errorf("ValueError: region %s: %w", r.Symbol, err)
				}
				root := c.Nodes[len(c.Nodes)-1]
				made := candidate.Candidate{Backend: r.Backend, Composite: c.Composite, Bare: c.Bare,
					Scope: g.Nodes[root].Scope, Nodes: c.Nodes,
					Root: root}
				made.Border(g)
				region.Scope = made.Scope
				region.Candidates = append(region.Candidates, len(of.Set.Candidates))
				region.Precisions = append(region.Precisions, c.Precision)
				region.Nodes = append(region.Nodes, c.Nodes...)
				of.Set.Candidates = append(of.Set.Candidates, made)
			}
			slices.Sort(region.Nodes)
			region.Border(g)
			of.Regions = append(of.Regions, region)
		}
		functions = append(functions, of)
	}
	written, err := annotate.Module(module, functions)
	if err != nil {
		return nil, err
	}
	defer written.Release()
	return relay.InferType(written)
}
