// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// Function is what is written back of one global function.
type Function struct {
	Set *candidate.Set
	// Regions are outlined; Module fills in the symbols that are missing.
	Regions []Region
	// Watched are values that the function gives behind its results, whose fields they follow where these are a tuple. To
	// each of them a further parameter, NoisePrefix and its number among them, is added for all who read it outside of the
	// region that it is made in.
	Watched []relay.NodeID
	// analysis is what is known of open dimensions, once it was needed.
	analysis *symbolic.Analysis
}

// NoisePrefix begins the names of the parameters that Function.Watched makes.
const NoisePrefix = "collage_noise_"

// Module writes regions into a module: each becomes a global function tvmgen_default_<compiler>_<function>_<n> with
// the attributes that PartitionGraph sets, and a call of it where it stood. Functions without regions stay the
// objects that they were. The graphs must have been read from the module m; it is not changed. The new module is the
// caller's; its types are to be inferred (relay.InferType).
func Module(m *relay.Module, functions []Function) (*bridge.Object, error) {
	NameRegions(m, functions)
	var changed []relay.GlobalFunction
	for i := range functions {
		f := &functions[i]
		if len(f.Regions) == 0 && len(f.Watched) == 0 {
			continue
		}
		g := f.Set.Graph
		outside := relay.NewRewriter(g)
		noise, err := f.noise()
		if err != nil {
			return nil, fmt.Errorf("annotating function %s: %w", g.Name, err)
		}
		for _, v := range f.Watched {
			outside.Wrap(v, func(expr *bridge.Object) (*bridge.Object, error) { return noise.on(v, expr) })
		}
		for k := range f.Regions {
			r := &f.Regions[k]
			r.watch(f.Watched)
			made, err := f.outline(r, outside, symbolNumber(r.Symbol), noise)
			if err != nil {
				return nil, fmt.Errorf("annotating region %s: %w", r.Symbol, err)
			}
			changed = append(changed, made)
		}
		function, err := f.whole(outside, noise)
		if err != nil {
			return nil, fmt.Errorf("annotating function %s: %w", g.Name, err)
		}
		changed = append(changed, relay.GlobalFunction{Var: m.GlobalVar(g.Name), Function: function})
	}
	out, err := m.Replace(changed)
	if err != nil {
		return nil, fmt.Errorf("annotating the module: %w", err)
	}
	return out, nil
}

// whole is the function with its regions called; with what is watched behind its results, and the noise as parameters.
func (f *Function) whole(outside *relay.Rewriter, noise noise) (*bridge.Object, error) {
	if len(f.Watched) == 0 {
		return outside.Function()
	}
	g := f.Set.Graph
	body, err := outside.Expr(g.Root())
	if err != nil {
		return nil, err
	}
	results := []*bridge.Object{body}
	if fields := relay.TupleFields(g, g.Root()); fields > 0 {
		results = nil
		for i := range fields {
			field, err := relay.NewTupleGetItem(body, i)
			if err != nil {
				return nil, err
			}
			results = append(results, field)
		}
	}
	for _, v := range f.Watched {
		value, err := outside.Expr(v)
		if err != nil {
			return nil, err
		}
		results = append(results, value)
	}
	all, err := relay.NewTuple(results)
	if err != nil {
		return nil, err
	}
	params := make([]*bridge.Object, len(g.Params))
	for i, p := range g.Params {
		params[i] = g.Handle(p) // what reads it reads noise, too
	}
	for _, v := range f.Watched {
		params = append(params, noise[v])
	}
	return relay.NewFunction(params, all, nil)
}

// noise are parameters that are added to values.
type noise map[relay.NodeID]*bridge.Object

// noise makes them.
func (f *Function) noise() (noise, error) {
	made := noise{}
	for i, v := range f.Watched {
		p, err := param(fmt.Sprintf("%s%d", NoisePrefix, i), f.Set.Graph.Handle(v))
		if err != nil {
			return nil, err
		}
		made[v] = p
	}
	return made, nil
}

// on is a value's expression, with noise where it is watched.
func (n noise) on(v relay.NodeID, expr *bridge.Object) (*bridge.Object, error) {
	if n[v] == nil {
		return expr, nil
	}
	add, err := relay.Operator("add")
	if err != nil {
		return nil, err
	}
	return relay.NewCall(add, []*bridge.Object{expr, n[v]}, nil)
}

// watch makes outputs of what is watched of a region.
func (r *Region) watch(values []relay.NodeID) {
	for _, v := range values {
		if _, own := slices.BinarySearch(r.Nodes, v); own && !slices.Contains(r.Outputs, v) {
			r.Outputs = append(r.Outputs, v)
		}
	}
	slices.Sort(r.Outputs)
}

// NameRegions fills in the symbols that are missing, as Module does.
func NameRegions(m *relay.Module, functions []Function) {
	taken := map[string]bool{}
	for i := range functions {
		next := 0
		for k := range functions[i].Regions {
			r := &functions[i].Regions[k]
			for r.Symbol == "" {
				symbol := fmt.Sprintf("tvmgen_default_%s_%s_%d", sanitise(r.Compiler),
					sanitise(functions[i].Set.Graph.Name), next)
				next++
				if !taken[symbol] && m.GlobalVar(symbol) == nil {
					r.Symbol = symbol
				}
			}
			taken[r.Symbol] = true
		}
	}
}

// symbolNumber is the number at the end of a region's symbol; the names of its parameters have it too.
func symbolNumber(symbol string) int {
	n, _ := strconv.Atoi(symbol[strings.LastIndexByte(symbol, '_')+1:])
	return n
}

// sanitise makes a name fit for a C symbol, as TVM's SanitizeName does.
func sanitise(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '_'
	}, name)
}

// outline makes the function of one region and puts a call of it into the function around it. Several outputs come
// out as the fields of a tuple.
func (f *Function) outline(r *Region, outside *relay.Rewriter, number int, noise noise) (made relay.GlobalFunction, err error) {
	g := f.Set.Graph
	o := &outliner{g: g, set: map[relay.NodeID]*bridge.Object{}, steps: r.Steps, given: r.Given,
		shifts: r.Shifts, byBytes: map[relay.NodeID]*bridge.Object{}}
	var params []*bridge.Object
	for i, in := range r.Inputs {
		p, err := param(parameterName(r, number, i), g.Handle(in))
		if err != nil {
			return made, err
		}
		o.set[in] = p
		params = append(params, p)
	}
	candidates := make([]*candidate.Candidate, len(r.Candidates))
	for i, k := range r.Candidates {
		candidates[i] = &f.Set.Candidates[k]
	}
	outputs, err := o.outputs(candidates, r.Precisions, r.Outputs)
	if err != nil {
		return made, err
	}
	begins := flatResults(g, r.Outputs)
	body, resultType, err := relay.NewFlatResult(g, r.Outputs, outputs)
	if err != nil {
		return made, err
	}
	attrs := map[string]any{"global_symbol": r.Symbol, "Primitive": 1, "Compiler": r.Compiler, "Inline": 1}
	if said := precisionsOf(f.Set, r); said != "" {
		attrs[region.PrecisionsAttr] = said
	}
	if sizes, err := f.sizes(r, number); err != nil {
		return made, err
	} else if sizes != "" {
		attrs[symbolic.SizesAttr] = sizes
	}
	made.Function, err = relay.NewTypedFunction(params, body, resultType, attrs)
	if err != nil {
		return made, err
	}
	if made.Var, err = relay.NewGlobalVar(r.Symbol); err != nil {
		return made, err
	}

	var call *bridge.Object // made once, when the first of the outputs is needed
	for i, v := range r.Outputs {
		outside.Replace(v, r.Inputs, func(now []*bridge.Object) (_ *bridge.Object, err error) {
			if call == nil {
				last := r.Outputs[len(r.Outputs)-1]
				if call, err = callLike(made.Var, now, g.Handle(last)); err != nil {
					return nil, err
				}
			}
			if len(r.Outputs) == 1 {
				return noise.on(v, call)
			}
			if fields := relay.TupleFields(g, v); fields > 0 {
				return takeTogether(call, begins[i], fields)
			}
			field, err := relay.NewTupleGetItem(call, begins[i])
			if err != nil {
				return nil, err
			}
			return noise.on(v, field)
		})
	}
	return made, nil
}

// parameterName is what the i-th parameter of a region's function is called.
func parameterName(r *Region, number, i int) string {
	return fmt.Sprintf("%s_%d_i%d", r.Compiler, number, i)
}

// sizes says what is known of the open dimensions of a region's parameters (symbolic.SizesAttr); "" where there are none.
func (f *Function) sizes(r *Region, number int) (string, error) {
	g := f.Set.Graph
	open := func(v relay.NodeID) bool { return symbolic.IsOpen(g.Nodes[v].Type) }
	if !slices.ContainsFunc(r.Nodes, open) && !slices.ContainsFunc(r.Inputs, open) {
		return "", nil
	}
	if f.analysis == nil {
		var err error
		if f.analysis, err = symbolic.AnalyseNamed(g); err != nil {
			return "", err
		}
	}
	inputs := symbolic.Inputs{}
	for i, in := range r.Inputs {
		if named, ok := f.analysis.Named(in); ok {
			inputs[parameterName(r, number, i)] = named
		}
	}
	return inputs.Text(), nil
}

// flatResults says at which field of a region's result each of its outputs begins: a tuple takes one for each of its
// fields, since TVM's executors know no tuples within a tuple of results.
func flatResults(g *relay.Graph, outputs []relay.NodeID) []int {
	begins := make([]int, len(outputs))
	at := 0
	for i, v := range outputs {
		begins[i] = at
		at += max(1, relay.TupleFields(g, v))
	}
	return begins
}

// takeTogether makes a tuple again of fields of a call's result.
func takeTogether(call *bridge.Object, begin, fields int) (*bridge.Object, error) {
	parts := make([]*bridge.Object, fields)
	for k := range parts {
		part, err := relay.NewTupleGetItem(call, begin+k)
		if err != nil {
			return nil, err
		}
		parts[k] = part
	}
	return relay.NewTuple(parts)
}
