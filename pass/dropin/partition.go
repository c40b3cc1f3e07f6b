// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Options are the arguments of Partition beside the module.
type Options struct {
	// Config is TVM's CompilationConfig.
	Config *bridge.Object
	// Estimator gives the costs; nil measures in worker processes as Measure says.
	Estimator Estimator
	Measure   settings.Config
	// OutlineNative gives the regions the form, and the names, that TVM's own pass gives them:
	// @collage_<compiler>_<operators>, functions that compute the same shared, constants as arguments unless the
	// pattern asks for them. Otherwise they have the form of PartitionGraph, as everywhere else in Collage.
	OutlineNative bool
}

// Partition partitions all functions of a module for which nobody has done it yet. Types must have been inferred. The
// PassContext on this thread is looked at, so the caller must be on the thread that entered it (bridge.OnThread). mod
// stays as it is; the result, typed, is the caller's.
func Partition(mod *bridge.Object, opts Options) (*bridge.Object, *Report, error) {
	set, err := readDepths()
	if err != nil {
		return nil, nil, err
	}
	targets, err := readTargets(opts.Config, &set)
	if err != nil {
		return nil, nil, err
	}
	m, err := relay.Read(mod)
	if err != nil {
		return nil, nil, err
	}
	defer m.Release()
	if opts.Estimator == nil {
		pool, err := newPoolEstimator(opts.Measure, targets)
		if err != nil {
			return nil, nil, err
		}
		defer pool.Close()
		opts.Estimator = pool
	}
	s := &partitioning{estimator: opts.Estimator, names: newNames(), known: map[*target][]*option{},
		report: Report{Proven: true}}
	var functions []*function
	var regions [][]regionOf
	for _, g := range m.Functions {
		if !optimizable(g) {
			continue
		}
		f := &function{graph: g, flow: candidate.NewFlow(g, kindOf), strict: candidate.NewFlow(g, kindOf)}
		f.flow.SharedConstants = true
		if err := f.collect(targets); err != nil {
			return nil, nil, fmt.Errorf("function %s: %w", g.Name, err)
		}
		chosen, err := s.choose(f)
		if err != nil {
			return nil, nil, fmt.Errorf("function %s: %w", g.Name, err)
		}
		functions = append(functions, f)
		joined, corrected := f.coalesce(chosen)
		if corrected {
			s.report.Corrected++
		}
		regions = append(regions, joined)
	}
	var out *bridge.Object
	if opts.OutlineNative {
		out, err = s.outline(m, functions, regions)
	} else {
		out, err = annotated(m, functions, regions)
	}
	if err != nil {
		return nil, nil, err
	}
	defer out.Release()
	typed, err := relay.InferType(out)
	return typed, &s.report, err
}

// optimizable says that a function is Relay's to change (TVM: AsOptimizableFunctionNode).
func optimizable(g *relay.Graph) bool {
	set := func(name string) bool { return g.Attrs[name] != "" && g.Attrs[name] != "0" }
	return g.Attrs["Compiler"] == "" && !set("Extern") && !set("SkipOptimization") && !set("Primitive")
}

// outline writes the regions as TVM's prototype does.
func (s *partitioning) outline(m *relay.Module, functions []*function, regions [][]regionOf) (*bridge.Object, error) {
	var changed []relay.GlobalFunction
	symbols := map[string]*bridge.Object{}
	for i, f := range functions {
		if len(regions[i]) == 0 {
			continue
		}
		outside := relay.NewRewriter(f.graph)
		made := make([]*workload, len(regions[i]))
		for k, r := range regions[i] {
			var err error
			made[k], err = newWorkload(f.graph, r.group.Nodes, r.group.Parts, r.target.compiler())
			if err != nil {
				return nil, err
			}
		}
		for _, k := range callOrder(f.graph, made) {
			e, err := s.names.entry(made[k], "")
			if err != nil {
				return nil, err
			}
			if symbols[e.symbol] == nil {
				if m.GlobalVar(e.symbol) != nil {
					return nil, fmt.Errorf("ValueError: the module has a function named %s already", e.symbol)
				}
				callee, err := relay.NewGlobalVar(e.symbol)
				if err != nil {
					return nil, err
				}
				function, err := relay.WithAttr(made[k].function, "global_symbol", e.symbol)
				if err != nil {
					return nil, err
				}
				symbols[e.symbol] = callee
				changed = append(changed, relay.GlobalFunction{Var: callee, Function: function})
			}
			made[k].call(outside, symbols[e.symbol])
		}
		function, err := outside.Function()
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", f.graph.Name, err)
		}
		changed = append(changed, relay.GlobalFunction{Var: m.GlobalVar(f.graph.Name), Function: function})
	}
	return m.Replace(changed)
}

// call puts a call of the region's function where its values are used.
func (r *workload) call(outside *relay.Rewriter, callee *bridge.Object) {
	var call *bridge.Object // made when the first of the outputs is needed
	for i, v := range r.outputs {
		outside.Replace(v, r.inputs, func(now []*bridge.Object) (_ *bridge.Object, err error) {
			if call == nil {
				if call, err = relay.NewCall(callee, now, nil); err != nil {
					return nil, err
				}
			}
			if len(r.outputs) == 1 {
				return call, nil
			}
			return relay.NewTupleGetItem(call, i)
		})
	}
}

// callOrder is the order in which TVM comes across the calls of the regions: depth first from the function's value.
func callOrder(g *relay.Graph, regions []*workload) []int {
	in := make([]int, len(g.Nodes)) // 1 + a node's region
	for i, r := range regions {
		for _, v := range r.nodes.Nodes() {
			if g.Placeable(v) {
				in[v] = i + 1
			}
		}
	}
	var order []int
	done := make([]bool, len(regions)+len(g.Nodes))
	type step struct {
		v    relay.NodeID
		left bool
	}
	stack := []step{{v: g.Root()}}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		name, reads := len(regions)+int(s.v), g.Reads(s.v)
		if in[s.v] > 0 {
			name, reads = in[s.v]-1, regions[in[s.v]-1].inputs
		} else {
			for _, scope := range g.Nodes[s.v].Nested {
				reads = append(slices.Clone(reads), g.Scopes[scope].Root)
			}
		}
		if done[name] {
			continue
		}
		if s.left {
			done[name] = true
			if name < len(regions) {
				order = append(order, name)
			}
			continue
		}
		stack = append(stack, step{s.v, true})
		for _, in := range slices.Backward(reads) {
			stack = append(stack, step{v: in})
		}
	}
	return order
}

// annotated writes the regions as PartitionGraph would.
func annotated(m *relay.Module, functions []*function, regions [][]regionOf) (*bridge.Object, error) {
	write := make([]annotate.Function, len(functions))
	for i, f := range functions {
		set := &candidate.Set{Graph: f.graph}
		write[i].Set = set
		for _, r := range regions[i] {
			nodes := f.flow.Placeable(r.group)
			out := annotate.Region{Backend: r.target.name, Compiler: r.target.compiler(),
				Scope: f.graph.Nodes[nodes[0]].Scope,
				Nodes: nodes, Outputs: outputs(f.graph, r.group.Nodes)}
			out.Inputs, out.Constants = f.graph.Boundary(nodes)
			for _, p := range r.group.Parts {
				part := slices.DeleteFunc(p.Nodes.Nodes(), func(v relay.NodeID) bool { return !f.graph.Placeable(v) })
				c := candidate.Candidate{Backend: out.Backend, Composite: p.Composite, Scope: out.Scope, Nodes: part,
					Root: part[len(part)-1]}
				c.Inputs, c.Constants = f.graph.Boundary(part)
				out.Candidates = append(out.Candidates, len(set.Candidates))
				set.Candidates = append(set.Candidates, c)
			}
			write[i].Regions = append(write[i].Regions, out)
		}
	}
	return annotate.Module(m, write)
}
