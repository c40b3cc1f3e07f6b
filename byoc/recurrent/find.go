// SPDX-License-Identifier: Apache-2.0

package recurrent

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// fewestSteps is how many steps make a layer.
const fewestSteps = 2

// Find gives the recurrent layers of a program, in the order of their first operators. No operator is in two of them.
// Whoever computes a layer as one, reads what it reads and gives its outputs computes the same as its operators.
func Find(p *region.Program) []Layer {
	if p.Open {
		return nil // layers are written with their sizes
	}
	f := &finder{matcher: matcher{p: p, zeros: map[region.ValueID]bool{}}, owner: make([]int, len(p.Ops))}
	for i := range f.owner {
		f.owner[i] = -1
	}
	f.collectReaders()
	var layers []Layer
	for _, chains := range f.together(f.chains()) {
		if layer, ok := f.layer(chains); ok {
			for _, op := range layer.Ops {
				f.owner[op] = len(layers)
			}
			layers = append(layers, layer)
		}
	}
	return layers
}

// finder puts cells together.
type finder struct {
	matcher
	// readers are the operators that read each value, results what the region gives back.
	readers [][]int
	results map[region.ValueID]bool
	// owner is the layer that has an operator; -1 for none.
	owner []int
}

func (f *finder) collectReaders() {
	f.readers, f.results = make([][]int, len(f.p.Values)), map[region.ValueID]bool{}
	for i := range f.p.Ops {
		for _, v := range f.p.Ops[i].Args {
			f.readers[v] = append(f.readers[v], i)
		}
	}
	for _, v := range f.p.Outputs {
		f.results[v] = true
	}
}

// chains puts cells behind one another.
func (f *finder) chains() []Chain {
	var cells []*cell
	byState := map[region.ValueID]*cell{}
	for i := range f.p.Ops {
		if c := f.cellAt(i); c != nil {
			cells = append(cells, c)
			byState[c.h] = c
		}
	}
	next, follows := map[*cell]*cell{}, map[*cell]bool{}
	for _, c := range cells {
		if before := byState[c.hPrev]; before != nil && next[before] == nil &&
			(c.Kind != LSTM || before.c == c.cPrev) && f.continues(before, c) {
			next[before], follows[c] = c, true
		}
	}
	var chains []Chain
	for _, first := range cells {
		if follows[first] {
			continue
		}
		start := first
		if first.folded {
			if start = next[first]; start == nil {
				continue
			}
		}
		chain := start.Chain
		chain.H0, chain.C0 = first.hPrev, first.cPrev
		if first.folded {
			chain.H0 = None
		}
		chain.ops = nil
		for c := first; c != nil; c = next[c] {
			chain.Steps = append(chain.Steps, Step{c.x, c.h, c.c})
			chain.ops = append(chain.ops, c.ops...)
		}
		slices.Sort(chain.ops)
		distinct := slices.Compact(slices.Clone(chain.ops))
		if len(chain.Steps) >= fewestSteps && len(distinct) == len(chain.ops) {
			chains = append(chains, chain)
		}
	}
	return chains
}

// continues says that one step has the weights of the one before.
func (f *finder) continues(before, c *cell) bool {
	if c.folded || before.Kind != c.Kind || before.Hidden != c.Hidden || before.Batch != c.Batch ||
		before.Input != c.Input || before.ResetAfter != c.ResetAfter || before.Activation != c.Activation ||
		!f.sameParts(before.W, c.W) || !f.sameParts(before.WB, c.WB) {
		return false
	}
	if !before.folded {
		return f.sameParts(before.R, c.R) && f.sameParts(before.RB, c.RB)
	}
	if c.Kind == GRU && !c.ResetAfter {
		return f.samePart(before.R[GRUNew], c.R[GRUNew]) && f.sameParts(before.RB, c.RB)
	}
	for g, product := range before.R {
		if !f.repeats(product.Value, c.RB[g]) {
			return false
		}
	}
	return true
}

func (f *finder) sameParts(a, b []Part) bool {
	return slices.EqualFunc(a, b, f.samePart)
}

// samePart says that two parts hold the same numbers: those of one constant, or of small ones with equal contents,
// which may be there once a step.
func (f *finder) samePart(a, b Part) bool {
	if a == b {
		return true
	}
	if a.Value == None || b.Value == None || a.Rows != b.Rows || a.Columns != b.Columns {
		return false
	}
	return f.digest(a.Value) != "" && f.digest(a.Value) == f.digest(b.Value) &&
		f.p.Values[a.Value].Type.String() == f.p.Values[b.Value].Type.String()
}

func (f *finder) digest(v region.ValueID) string {
	if c := f.p.Graph.Nodes[f.p.Values[v].Constant].Constant; c != nil {
		return c.Digest
	}
	return ""
}

// together puts chains that read one sequence, in one direction or the other, with each other, and says of each which
// way it goes.
func (f *finder) together(chains []Chain) [][]Chain {
	var out [][]Chain
	var sequences [][]region.ValueID
	for _, c := range chains {
		xs := make([]region.ValueID, len(c.Steps))
		for i, s := range c.Steps {
			xs[i] = s.X
		}
		reversed := slices.Clone(xs)
		slices.Reverse(reversed)
		if _, ok := f.unbound(reversed); ok {
			xs, c.Backward = reversed, true
		}
		at := slices.IndexFunc(sequences, func(s []region.ValueID) bool { return slices.Equal(s, xs) })
		if at < 0 {
			if at = slices.IndexFunc(sequences, func(s []region.ValueID) bool {
				return slices.Equal(s, reversed)
			}); at >= 0 && !c.Backward {
				c.Backward = true
			} else {
				at, sequences, out = len(out), append(sequences, xs), append(out, nil)
			}
		}
		out[at] = append(out[at], c)
	}
	return out
}

// unbound says which tensor [T, batch, input] has these slices, all of them and in order.
func (f *finder) unbound(xs []region.ValueID) (x region.ValueID, ok bool) {
	x = None
	for t, each := range xs {
		n := len(f.ops)
		squeeze, _, ok := f.made(each, "squeeze")
		f.ops = f.ops[:n]
		if !ok {
			return None, false
		}
		axes, _ := squeeze.Attrs.Ints("axis")
		split, which, ok := f.made(squeeze.Args[0], "split")
		f.ops = f.ops[:n]
		if !ok || !slices.Equal(axes, []int64{0}) || len(split.Results) != len(xs) || which != t ||
			x != None && x != split.Args[0] {
			return None, false
		}
		x = split.Args[0]
		shape := f.p.Values[x].Type.Shape
		if axis, _ := split.Attrs.Int("axis"); axis != 0 || len(shape) != 3 || shape[0] != int64(len(xs)) {
			return None, false
		}
	}
	return x, true
}

// layer completes a layer of chains that read one sequence; ok is false where somebody reads what it has not.
func (f *finder) layer(chains []Chain) (l Layer, ok bool) {
	l = Layer{Chains: chains, X: None}
	inside := map[int]bool{}
	for _, c := range chains {
		for _, op := range c.ops {
			if inside[op] || f.owner[op] >= 0 {
				return l, false
			}
			inside[op] = true
		}
		if !floats(f.p, []region.ValueID{c.Steps[0].X, c.Steps[0].H}) {
			return l, false
		}
	}
	for i := range chains[0].Steps {
		step := i
		if chains[0].Backward {
			step = len(chains[0].Steps) - 1 - i
		}
		l.Xs = append(l.Xs, chains[0].Steps[step].X)
	}
	l.joined(f, inside)
	if !l.outside(f, inside) || !f.apart(inside) {
		return l, false
	}
	if x, ok := f.unbound(l.Xs); ok {
		l.X = x
		f.unbinding(l.Xs, inside)
	}
	for op := range inside {
		l.Ops = append(l.Ops, op)
	}
	slices.Sort(l.Ops)
	return l, true
}

// place says of which chain and time a value is the state.
type place struct{ chain, time int }

func (l *Layer) states() map[region.ValueID]place {
	all := map[region.ValueID]place{}
	for k := range l.Chains {
		for s, step := range l.Chains[k].Steps {
			all[step.H] = place{k, l.Chains[k].at(s)}
		}
	}
	return all
}

// joined takes the operators that put the states of all times into one tensor.
func (l *Layer) joined(f *finder, inside map[int]bool) {
	states := l.states()
	tried := map[int]bool{}
	try := func(i int) {
		if tried[i] || f.p.Ops[i].Name != "stack" || len(f.p.Ops[i].Args) != l.Steps() {
			return
		}
		tried[i] = true
		if out, also, ok := l.joinedBy(f, i, states); ok {
			l.Outputs = append(l.Outputs, out)
			inside[i] = true
			for _, pair := range also {
				inside[pair] = true
			}
		}
	}
	for k := range l.Chains {
		for _, reader := range f.readers[l.Chains[k].Steps[0].H] {
			try(reader)
			if name := f.p.Ops[reader].Name; name == "stack" || name == "concatenate" {
				for _, over := range f.readers[f.p.Ops[reader].Results[0]] {
					try(over)
				}
			}
		}
	}
}

// joinedBy says what a stack of as many tensors as there are steps is; also are the operators below it.
func (l *Layer) joinedBy(f *finder, i int, states map[region.ValueID]place) (out Output, also []int, ok bool) {
	op := &f.p.Ops[i]
	if axis, _ := op.Attrs.Int("axis"); axis != 0 {
		return out, nil, false
	}
	out = Output{Value: op.Results[0], Chain: -1}
	for t, v := range op.Args {
		if at, isState := states[v]; isState {
			if at.time != t || out.Chain >= 0 && (out.What != Sequence || at.chain != out.Chain) {
				return out, nil, false
			}
			out.What, out.Chain = Sequence, at.chain
			continue
		}
		producer := f.p.Values[v].Producer
		if producer < 0 || len(f.readers[v]) != 1 || f.results[v] {
			return out, nil, false
		}
		pair := &f.p.Ops[producer]
		axis, _ := pair.Attrs.Int("axis")
		what := Joined
		switch {
		case len(pair.Args) != 2:
			return out, nil, false
		case pair.Name == "stack" && axis == 0:
			what = Pairs
		case pair.Name == "concatenate" && (axis == 1 || axis == -1):
		default:
			return out, nil, false
		}
		a, isState := states[pair.Args[0]]
		b, also2 := states[pair.Args[1]]
		if !isState || !also2 || a.time != t || b.time != t || l.Chains[a.chain].Backward || !l.Chains[b.chain].Backward ||
			out.Chain >= 0 && (out.What != what || out.Chain != a.chain || out.Second != b.chain) {
			return out, nil, false
		}
		out.What, out.Chain, out.Second = what, a.chain, b.chain
		also = append(also, producer)
	}
	return out, also, true
}

// outside adds what is read of the layer beside what is joined; false where somebody reads what a layer does not give.
func (l *Layer) outside(f *finder, inside map[int]bool) bool {
	given := map[region.ValueID]bool{}
	for _, o := range l.Outputs {
		given[o.Value] = true
	}
	states, cells := l.states(), map[region.ValueID]int{}
	for k := range l.Chains {
		if c := l.Chains[k].Steps[l.Steps()-1].C; c != None {
			cells[c] = k
		}
	}
	ops := make([]int, 0, len(inside))
	for op := range inside {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	for _, op := range ops {
		for _, v := range f.p.Ops[op].Results {
			read := f.results[v] || slices.ContainsFunc(f.readers[v], func(r int) bool { return !inside[r] })
			at, isState := states[v]
			chain, isCell := cells[v]
			switch {
			case !read || given[v]:
			case isState:
				l.Outputs = append(l.Outputs, Output{Value: v, What: Hidden, Chain: at.chain, Time: at.time})
			case isCell:
				l.Outputs = append(l.Outputs, Output{Value: v, What: Cell, Chain: chain})
			default:
				return false
			}
		}
	}
	return true
}

// apart says that nothing that the layer reads is computed of what it gives.
func (f *finder) apart(inside map[int]bool) bool {
	after := map[region.ValueID]bool{}
	for i := range f.p.Ops {
		op := &f.p.Ops[i]
		late := slices.ContainsFunc(op.Args, func(v region.ValueID) bool {
			producer := f.p.Values[v].Producer
			return after[v] || !inside[i] && producer >= 0 && inside[producer]
		})
		switch {
		case late && inside[i]:
			return false
		case late:
			for _, v := range op.Results {
				after[v] = true
			}
		}
	}
	return true
}

// unbinding takes the operators that cut the sequence into slices, where nobody else reads these.
func (f *finder) unbinding(xs []region.ValueID, inside map[int]bool) {
	take := func(i int) bool {
		for _, v := range f.p.Ops[i].Results {
			if f.results[v] || slices.ContainsFunc(f.readers[v], func(r int) bool { return !inside[r] }) {
				return false
			}
		}
		return f.owner[i] < 0
	}
	all := true
	split := f.p.Values[f.p.Ops[f.p.Values[xs[0]].Producer].Args[0]].Producer
	var squeezes []int
	for _, x := range xs {
		producer := f.p.Values[x].Producer
		all = all && take(producer)
		squeezes = append(squeezes, producer)
	}
	if !all {
		return
	}
	for _, i := range squeezes {
		inside[i] = true
	}
	if take(split) {
		inside[split] = true
	}
}

// tuples adds to the operators' nodes the tuples and fields between them.
func tuples(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	in := make(map[relay.NodeID]bool, len(nodes))
	for _, v := range nodes {
		in[v] = true
	}
	out := slices.Clone(nodes)
	for v := range g.Nodes {
		id, n := relay.NodeID(v), &g.Nodes[v]
		switch n.Kind {
		case relay.KindTupleGetItem:
			if !in[n.Inputs[0]] {
				continue
			}
		case relay.KindTuple:
			if !slices.ContainsFunc(g.Consumers(id), func(u relay.NodeID) bool { return in[u] }) {
				continue
			}
		default:
			continue
		}
		if n.Kind == relay.KindTuple || len(g.Consumers(id)) > 0 {
			in[id] = true
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
