// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// OpPattern is how TVM's FuseOps may fuse an operator (TVM: OpPatternKind). A greater one is harder to fuse.
type OpPattern int

// The values are TVM's.
const (
	ElemWise        OpPattern = 0
	Broadcast       OpPattern = 1
	Injective       OpPattern = 2
	CommReduce      OpPattern = 3
	OutEWiseFusable OpPattern = 4
	tuplePattern    OpPattern = 7
	Opaque          OpPattern = 8
)

// maxFused is how many nodes FuseOps fuses at most (TVM: kMaxFusedOps).
const maxFused = 256

// fuser is TVM's FuseOps (src/relay/analysis/graph_partitioner.cc) on a read graph. What differs: variables and
// constants are no nodes here, and a graph's scopes are looked at one by one, where TVM sees a nested function's
// body as uses by opaque nodes; neither changes which operators are fused.
type fuser struct {
	g       *relay.Graph
	tree    *relay.PostDominatorTree
	class   []class
	kind    []OpPattern // by node
	edge    []OpPattern // the hardest pattern met between a node and its immediate post-dominator
	parent  []relay.NodeID
	pattern []OpPattern // by group (its root in parent)
	size    []int32     // by group
	visited []int32
	visit   int32
}

// fuse gives the groups of at least two nodes that FuseOps makes, each ascending, in the order of their last nodes.
func (p *proposer) fuse() [][]relay.NodeID {
	n := len(p.g.Nodes)
	f := &fuser{g: p.g, tree: p.g.PostDominators(), class: p.class,
		kind: make([]OpPattern, n), edge: make([]OpPattern, n), parent: make([]relay.NodeID, n),
		pattern: make([]OpPattern, n), size: make([]int32, n), visited: make([]int32, n)}
	for v := range n {
		f.kind[v] = p.patternOf(relay.NodeID(v))
		f.pattern[v], f.size[v], f.parent[v] = f.kind[v], 1, relay.NodeID(v)
	}
	f.measureEdges()
	for phase := range 3 {
		for v := range n {
			if p.class[v] != unplaced {
				f.tryFuse(relay.NodeID(v), phase)
			}
		}
	}
	members := map[relay.NodeID][]relay.NodeID{}
	for v := range n {
		if p.class[v] != unplaced {
			root := f.find(relay.NodeID(v))
			members[root] = append(members[root], relay.NodeID(v))
		}
	}
	var groups [][]relay.NodeID
	for _, group := range members {
		if len(group) > 1 {
			groups = append(groups, group)
		}
	}
	slices.SortFunc(groups, func(a, b []relay.NodeID) int { return int(a[len(a)-1] - b[len(b)-1]) })
	return groups
}

func (p *proposer) patternOf(v relay.NodeID) OpPattern {
	n := &p.g.Nodes[v]
	switch {
	case p.class[v] == operator:
		return p.opts.OpPattern(n.Op)
	case p.class[v] == structural && n.Kind == relay.KindTuple:
		return tuplePattern
	case p.class[v] == structural && p.onlyTensors(n.Inputs[0]):
		return Injective
	default:
		return Opaque
	}
}

// onlyTensors says that a tuple holds tensors only: FuseOps goes through no other.
func (p *proposer) onlyTensors(tuple relay.NodeID) bool {
	t := p.g.Nodes[tuple].Type
	return t != nil && t.Kind == relay.TypeTuple &&
		!slices.ContainsFunc(t.Fields, func(f *relay.Type) bool { return f.Kind != relay.TypeTensor })
}

// use is the pattern of the edge from a value to one of its consumers.
func (f *fuser) use(value, consumer relay.NodeID) OpPattern {
	switch k := f.kind[consumer]; k {
	case Broadcast:
		if a, b := f.g.Nodes[value].Type, f.g.Nodes[consumer].Type; a.Kind == relay.TypeTensor &&
			b.Kind == relay.TypeTensor && slices.Equal(a.Shape, b.Shape) {
			return ElemWise
		}
		return Broadcast
	case tuplePattern:
		return Injective
	default:
		return k
	}
}

// measureEdges fills edge: the lowest common ancestor of a node's consumers is its post-dominator, and
// edge is the hardest pattern of everything passed on the way up to it.
func (f *fuser) measureEdges() {
	for i := len(f.g.Nodes) - 1; i >= 0; i-- {
		v := relay.NodeID(i)
		top := f.tree.Parent(v)
		if top == relay.NoNode {
			f.edge[v] = Opaque
			continue
		}
		hardest := ElemWise
		for _, c := range f.g.Consumers(v) {
			if f.class[c] == unplaced {
				hardest = Opaque // a function literal that captures the value
				continue
			}
			hardest = max(hardest, f.use(v, c))
			for u := c; u != top && u != relay.NoNode && hardest < Opaque; u = f.tree.Parent(u) {
				hardest = max(hardest, f.edge[u])
			}
		}
		f.edge[v] = hardest
	}
}

func (f *fuser) find(v relay.NodeID) relay.NodeID {
	for f.parent[v] != v {
		f.parent[v] = f.parent[f.parent[v]]
		v = f.parent[v]
	}
	return v
}

// tryFuse fuses a node into its immediate post-dominator if this phase's rules allow it.
func (f *fuser) tryFuse(v relay.NodeID, phase int) {
	// The pattern that a node had before anything was fused into it decides, but for groups that took in an anchor.
	own := f.pattern[v]
	sink := f.tree.Parent(v)
	if own >= Opaque || sink == relay.NoNode {
		return
	}
	if phase == 2 {
		root := f.find(sink)
		if own <= Injective && f.pattern[root] != tuplePattern && f.pattern[sink] == tuplePattern &&
			f.pattern[root] <= Injective && f.path(v, sink, injectivePath) {
			f.commit(v, sink)
		}
		return
	}
	if f.find(v) == f.find(sink) || f.pattern[sink] == tuplePattern {
		return
	}
	switch {
	case own == OutEWiseFusable:
		if phase == 0 && f.edge[v] == ElemWise && f.path(v, sink, broadcastPath) {
			f.commit(v, sink)
		}
	case own <= Broadcast:
		if (f.edge[v] <= Injective || f.edge[v] == CommReduce) && f.path(v, sink, anchoredPath) {
			f.commit(v, sink)
		}
	case own == Injective || own == tuplePattern:
		if phase == 1 && f.path(v, sink, injectivePath) {
			f.commit(v, sink)
		}
	}
}

func broadcastPath(k OpPattern, _ bool) bool { return k <= Broadcast }

func injectivePath(k OpPattern, _ bool) bool { return k <= Injective }

// anchoredPath lets elementwise operators join a group that already has its convolution.
func anchoredPath(k OpPattern, sink bool) bool {
	return k <= Injective || sink && (k == CommReduce || k == OutEWiseFusable)
}

// path says that the groups of all nodes between v and its post-dominator sink pass the condition, sink's with
// sink true, and that the group would not become too large.
func (f *fuser) path(v, sink relay.NodeID, condition func(k OpPattern, sink bool) bool) bool {
	f.visit++
	nodes := f.size[f.find(sink)] + f.size[v]
	f.visited[v] = f.visit
	var walk func(u relay.NodeID) bool
	walk = func(u relay.NodeID) bool {
		if f.visited[u] == f.visit {
			return true
		}
		f.visited[u] = f.visit
		if f.class[u] == unplaced || !condition(f.pattern[f.find(u)], u == sink) {
			return false
		}
		if u == sink {
			return true
		}
		if nodes += f.size[u]; nodes > maxFused {
			return false
		}
		return !slices.ContainsFunc(f.g.Consumers(u), func(c relay.NodeID) bool { return !walk(c) })
	}
	return nodes <= maxFused &&
		!slices.ContainsFunc(f.g.Consumers(v), func(c relay.NodeID) bool { return !walk(c) })
}

// commit fuses v and everything between it and sink into sink's group.
func (f *fuser) commit(v, sink relay.NodeID) {
	f.visit++
	var walk func(u relay.NodeID)
	walk = func(u relay.NodeID) {
		if u == sink || f.visited[u] == f.visit {
			return
		}
		f.visited[u] = f.visit
		f.merge(u, sink)
		for _, c := range f.g.Consumers(u) {
			walk(c)
		}
	}
	walk(v)
}

func (f *fuser) merge(v, sink relay.NodeID) {
	child, into := f.find(v), f.find(sink)
	if child == into {
		return
	}
	f.size[into] += f.size[child]
	f.parent[child] = into
	if f.pattern[child] == OutEWiseFusable {
		f.pattern[into] = max(f.pattern[into], OutEWiseFusable)
	}
}
