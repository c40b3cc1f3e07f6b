// SPDX-License-Identifier: Apache-2.0

// Package feedback finds out what each part of a placement costs in place.
//
// What comes in: the graph that was placed, the operators of the executable that TVM made of it with the kernels that
// they were fused into (Executable), and how long each kernel took within a run of the whole network. What goes out:
// the time of each group of nodes that ran as one, and what was spent on layouts and borders because of it (Parts); and
// a Table of what candidates cost in context, by which the operator level can place again.
//
// TVM changes a network before it fuses it: operators get other names and layouts, and transforms of layouts are put
// between them. None of that is recorded, so the two graphs are walked side by side from their results (align).
package feedback

import (
	"strings"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// crossing is an operator of the executable that TVM put between two nodes.
type crossing struct {
	op int
	// from is the node whose value it changes, to the node that wanted it so; NoNode where there is none.
	from, to relay.NodeID
}

// alignment says which operator of the executable each node has become.
type alignment struct {
	op        map[relay.NodeID]int
	region    map[int]int // region -> its call
	crossings []crossing
}

type aligner struct {
	g       *relay.Graph
	e       *trace.Executable
	regions []annotate.Region
	of      map[relay.NodeID]int // node -> region
	symbols map[string]int
	out     *alignment
	seen    map[pair]bool
	stack   []pair
}

// pair says that the value of node v, as node user wants it, is the value of operator op.
type pair struct {
	v    relay.NodeID
	op   int
	user relay.NodeID
}

// align walks the graph of main and the executable from their results, side by side.
func align(g *relay.Graph, regions []annotate.Region, e *trace.Executable) *alignment {
	a := &aligner{g: g, e: e, regions: regions, of: map[relay.NodeID]int{}, symbols: map[string]int{},
		seen: map[pair]bool{},
		out:  &alignment{op: map[relay.NodeID]int{}, region: map[int]int{}}}
	for i := range regions {
		a.symbols["@"+regions[i].Symbol] = i
		for _, v := range regions[i].Nodes {
			a.of[v] = i
		}
	}
	a.push(g.Root(), e.Root, relay.NoNode)
	for len(a.stack) > 0 {
		p := a.stack[len(a.stack)-1]
		a.stack = a.stack[:len(a.stack)-1]
		a.match(p)
	}
	return a.out
}

func (a *aligner) push(v relay.NodeID, op int, user relay.NodeID) {
	p := pair{v, op, user}
	if op < 0 || v == relay.NoNode || a.seen[p] {
		return
	}
	a.seen[p] = true
	a.stack = append(a.stack, p)
}

func (a *aligner) match(p pair) {
	n, op := &a.g.Nodes[p.v], &a.e.Ops[p.op]
	region, outlined := a.of[p.v]
	switch {
	case outlined && (op.Name == "(get)" || op.Name == "(tuple)") && len(op.Args) > 0:
		// One of several results, or one that is a tuple.
		a.push(p.v, op.Args[0], p.user)
	case outlined && a.symbols[op.Name] == region && strings.HasPrefix(op.Name, "@"):
		if _, done := a.out.region[region]; !done {
			a.out.region[region] = p.op
			for i, in := range a.regions[region].Inputs {
				if i < len(op.Args) {
					a.push(in, op.Args[i], a.regions[region].Nodes[0])
				}
			}
		}
	case !outlined && same(n, op):
		if known, done := a.out.op[p.v]; done && known != p.op {
			return // computed twice: the first is as good as the second
		}
		a.out.op[p.v] = p.op
		for i, in := range n.Inputs {
			if i < len(op.Args) {
				a.push(in, op.Args[i], p.v)
			}
		}
	case between(op) && len(op.Args) > 0:
		a.out.crossings = append(a.out.crossings, crossing{op: p.op, from: p.v, to: p.user})
		a.push(p.v, op.Args[0], p.user)
	case !outlined && len(n.Inputs) == 1 && n.Kind == relay.KindCall:
		// An operator that TVM has taken away (a cast to its own type, a reshape of a reshape).
		a.push(n.Inputs[0], p.op, p.user)
	}
}

// inserted are the operators that TVM's passes put between others.
var inserted = map[string]bool{"layout_transform": true, "reshape": true, "expand_dims": true, "squeeze": true,
	"transpose": true,
	"cast":      true, "copy": true, "device_copy": true, "broadcast_to": true, "annotation.stop_fusion": true}

func between(op *trace.Op) bool { return inserted[op.Name] }

// same says that an operator of the executable is what has become of a node.
func same(n *relay.Node, op *trace.Op) bool {
	switch n.Kind {
	case relay.KindTuple:
		return op.Name == "(tuple)"
	case relay.KindTupleGetItem:
		return op.Name == "(get)" && op.Index == n.Index
	case relay.KindCall:
		return n.Op != "" && (n.Op == op.Name || family(n.Op) == family(op.Name))
	}
	return false
}

// family takes off an operator's name what TVM's layout alteration adds to it: nn.contrib_depthwise_conv2d_NCHWc is an
// nn.conv2d, nn.contrib_dense_pack an nn.dense. An nn.conv1d is built as an nn.conv2d (python/collage/one_dimension.py).
func family(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "nn."), "contrib_")
	name = strings.TrimPrefix(name, "depthwise_")
	for _, base := range []string{"conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "conv1d", "conv2d",
		"conv3d", "dense", "batch_matmul"} {
		if strings.HasPrefix(name, base) {
			if base == "conv1d" {
				return "conv2d"
			}
			return base
		}
	}
	return name
}
