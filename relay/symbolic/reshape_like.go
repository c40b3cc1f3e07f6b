// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"cmp"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// A reshape says of one dimension alone that it is what is left over, so that [batch*len, 768] cannot be written as
// [batch, len, 768] with numbers. Where another tensor has these dimensions, it is written as reshape_like: which names
// that tensor, and computes nothing of its sizes.

// mostLooked is of how many nodes in front of a reshape one is looked for that has the wanted dimensions.
const mostLooked = 64

// alike is a reshape_like: the dimensions lhs of its data are replaced by those of the node like that are in rhs.
type alike struct {
	like     relay.NodeID
	lhs, rhs relay.AxisRange
}

// reshapeLike gives of a reshape that newShape cannot write which dimensions it replaces, in order, by those of other
// tensors, and what newShape writes of the rest; nil where that is done then. false where no tensors are found.
func (a *Analysis) reshapeLike(id relay.NodeID, from, to Extents) (steps []alike, rest []any, ok bool) {
	groups, ok := grouped(from, to)
	if !ok {
		return nil, nil, false
	}
	then := slices.Clone(from)
	moved := 0 // how many dimensions there are more than in from, in front of the group
	for _, group := range groups {
		wanted := to[group.to.Begin:group.to.End]
		if from[group.from.Begin:group.from.End].Equal(wanted) {
			continue
		}
		if like, at, found := a.having(id, wanted); found {
			lhs := relay.AxisRange{Begin: group.from.Begin + moved, End: group.from.End + moved}
			steps = append(steps, alike{like: like, lhs: lhs, rhs: relay.AxisRange{Begin: at, End: at + len(wanted)}})
			then = slices.Concat(then[:lhs.Begin], wanted, then[lhs.End:])
			moved += len(wanted) - (group.from.End - group.from.Begin)
			if then.Equal(to) {
				return steps, nil, true
			}
			if rest, ok := newShape(then, to); ok {
				return steps, rest, true
			}
		}
	}
	return nil, nil, false
}

// group are dimensions of as many items before a reshape and after it.
type group struct{ from, to relay.AxisRange }

// grouped pairs the dimensions of two shapes, as few as can be in each group; false where their items are not known to be
// as many.
func grouped(from, to Extents) ([]group, bool) {
	var groups []group
	for i, j := 0, 0; i < len(from) || j < len(to); {
		g, ok := smallest(from, to, i, j)
		if !ok {
			return nil, false
		}
		groups = append(groups, g)
		i, j = g.from.End, g.to.End
	}
	return groups, true
}

// smallest is the group that begins at these dimensions and has the fewest.
func smallest(from, to Extents, i, j int) (group, bool) {
	for count := 1; count <= len(from)-i+len(to)-j; count++ {
		for before := range count + 1 {
			g := group{from: relay.AxisRange{Begin: i, End: i + before}, to: relay.AxisRange{Begin: j, End: j + count - before}}
			if g.from.End <= len(from) && g.to.End <= len(to) &&
				from[g.from.Begin:g.from.End].elements().Equal(to[g.to.Begin:g.to.End].elements()) {
				return g, true
			}
		}
	}
	return group{}, false
}

// having is a node that has these dimensions one after the other, and at which they begin: the first in the order of
// readable.
func (a *Analysis) having(id relay.NodeID, wanted Extents) (like relay.NodeID, at int, found bool) {
	for _, v := range a.readable(id) {
		shape := a.values[v].Shape
		for at := 0; at+len(wanted) <= len(shape); at++ {
			if shape[at : at+len(wanted)].Equal(wanted) {
				return v, at, true
			}
		}
	}
	return relay.NoNode, 0, false
}

// readable are tensors that a node may read, the better ones first: those of a type that all backends take, inputs of the
// function before what stands in front of the node, which is ordered by how near it is; what only moves items last. That
// may be within what a backend takes as one, and would be read from outside.
func (a *Analysis) readable(id relay.NodeID) []relay.NodeID {
	list, seen := []relay.NodeID{id}, map[relay.NodeID]bool{id: true}
	for k := 0; k < len(list) && k < mostLooked; k++ {
		for _, in := range a.g.Nodes[list[k]].Inputs {
			if !seen[in] {
				seen[in] = true
				list = append(list, in)
			}
		}
	}
	list = slices.DeleteFunc(slices.Concat(a.g.Params, list[1:]), func(v relay.NodeID) bool {
		return !a.values[v].known || a.g.Nodes[v].Kind == relay.KindConstant
	})
	worse := func(v relay.NodeID) int {
		switch n := &a.g.Nodes[v]; {
		case slices.Contains(movements, n.Op):
			return 2
		case n.Type.DType != "float32":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(x, y relay.NodeID) int { return cmp.Compare(worse(x), worse(y)) })
	return list
}

// movements are operators that only move items.
var movements = []string{"reshape", "dyn.reshape", "reshape_like", "transpose", "expand_dims", "squeeze", "dyn.broadcast_to"}

// writeLike replaces a dyn.reshape by reshapes that are like other tensors; false where it cannot be written so.
func (s *settler) writeLike(id relay.NodeID, n *relay.Node, from, to Extents) bool {
	steps, rest, ok := s.reshapeLike(id, from, to)
	if !ok {
		return false
	}
	deps := []relay.NodeID{n.Inputs[0]}
	for _, step := range steps {
		deps = append(deps, step.like)
	}
	s.r.Replace(id, deps, func(now []*bridge.Object) (*bridge.Object, error) {
		value := now[0]
		var err error
		for i, step := range steps {
			if value, err = s.called(id, "relay.op._make.reshape_like", value, now[1+i], int64(step.lhs.Begin),
				int64(step.lhs.End), int64(step.rhs.Begin), int64(step.rhs.End)); err != nil {
				return nil, err
			}
		}
		if rest == nil {
			return value, nil
		}
		return s.called(id, "relay.op._make.reshape", value, rest, false)
	})
	return true
}

// reshapedLike is reshape_like: some of its data's dimensions are another tensor's.
func reshapedLike(a arguments) Value {
	data, ok := a.at(0)
	like, ok2 := a.at(1)
	if !ok || !ok2 {
		return Value{}
	}
	lhs, rhs, ok := relay.ReshapeLikeAxes(a.attrs, len(data.Shape), len(like.Shape))
	if !ok {
		return Value{}
	}
	return of(slices.Concat(data.Shape[:lhs.Begin], like.Shape[rhs.Begin:rhs.End], data.Shape[lhs.End:]), data.Items)
}
