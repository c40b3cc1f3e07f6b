// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// NotFixedError says why a network cannot be had with fixed sizes.
type NotFixedError struct{ Reason string }

func (e *NotFixedError) Error() string {
	return "the network cannot be had with fixed sizes: " + e.Reason
}

// FixModule is a module whose main has open dimensions as it is with parameters of these shapes, by name: with types of
// numbers alone, for whoever measures its parts. What TVM cannot tell the sizes of, though the names do (a slice to a
// bound that is computed), is in it a constant of zeros; places in a row (arange) are themselves. nodes says of each
// node of the new main which one of the old main's it is; NoNode for such constants. mod must have types and is
// unchanged; the new module has types and is the caller's. Where something is known only when the network runs, or shapes does not give what is open, the error is a
// *NotFixedError.
func FixModule(mod *bridge.Object, shapes map[string][]int64) (fixed *bridge.Object, nodes []relay.NodeID, err error) {
	m, err := relay.Read(mod)
	if err != nil {
		return nil, nil, err
	}
	defer m.Release()
	g := m.Function("main")
	if g == nil {
		return nil, nil, &NotFixedError{"it has no function main"}
	}
	a, err := AnalyseNamed(g)
	if err != nil {
		return nil, nil, err
	}
	sizes, err := a.sizesOf(shapes)
	if err != nil {
		return nil, nil, err
	}
	told, err := a.Fixed(sizes)
	if err != nil {
		return nil, nil, &NotFixedError{err.Error()}
	}
	f := &fixer{m: m, g: g, told: told, zeros: map[relay.NodeID]bool{}}
	for {
		if fixed, err = f.module(); err != nil {
			return nil, nil, err
		}
		more := 0
		if nodes, more, err = f.compare(fixed); err == nil && more == 0 {
			return fixed, nodes, nil
		}
		fixed.Release()
		if err != nil {
			return nil, nil, err
		}
	}
}

// sizesOf are the open dimensions, by name, of parameters of these shapes.
func (a *Analysis) sizesOf(shapes map[string][]int64) (map[string]int64, error) {
	sizes := map[string]int64{}
	for _, p := range a.g.Params {
		n, v := &a.g.Nodes[p], &a.values[p]
		for d, extent := range v.Shape {
			if _, known := extent.Value(); known {
				continue
			}
			if d >= len(shapes[n.Name]) {
				return nil, &NotFixedError{fmt.Sprintf("no sizes are given for the input %s", n.Name)}
			}
			for _, dimension := range extent.Dimensions() {
				sizes[dimension.Name] = shapes[n.Name][d]
			}
		}
	}
	return sizes, nil
}

// fixer makes the module, time and again with more constants.
type fixer struct {
	m    *relay.Module
	g    *relay.Graph
	told *relay.Graph // with types as they must be
	// zeros are the nodes that are constants instead (constantFor).
	zeros map[relay.NodeID]bool
}

// module is the module with fixed parameters, and the zeros as far as they are known.
func (f *fixer) module() (*bridge.Object, error) {
	r := relay.NewRewriter(f.g)
	defer r.Release()
	var params []*bridge.Object
	for _, p := range f.g.Params {
		now, err := relay.NewVar(f.g.Nodes[p].Name, f.told.Nodes[p].Type)
		if err != nil {
			return nil, err
		}
		r.Set(p, now)
		params = append(params, now)
	}
	for id := range f.zeros {
		constant, err := f.constantFor(id)
		if err != nil {
			return nil, err
		}
		r.Set(id, constant)
	}
	for id := range f.g.Nodes {
		if n := &f.g.Nodes[id]; isReshapeLike(n, &f.told.Nodes[id]) {
			f.reshape(r, relay.NodeID(id))
		}
	}
	body, err := r.Expr(f.g.Root())
	if err != nil {
		return nil, err
	}
	function, err := relay.NewFunction(params, body, nil)
	if err != nil {
		return nil, err
	}
	defer function.Release()
	made, err := f.m.Replace([]relay.GlobalFunction{{Var: f.m.GlobalVar("main"), Function: function}})
	if err != nil {
		return nil, err
	}
	defer made.Release()
	return relay.InferType(made)
}

// isReshapeLike says that a node is a reshape_like, and with fixed sizes a reshape (relay.Graph.Retyped).
func isReshapeLike(open, fixed *relay.Node) bool {
	return open.Op == "reshape_like" && fixed.Op == "reshape"
}

// reshape puts a reshape to the numbers of its type in the place of a reshape_like.
func (f *fixer) reshape(r *relay.Rewriter, id relay.NodeID) {
	r.Replace(id, f.g.Nodes[id].Inputs[:1], func(now []*bridge.Object) (*bridge.Object, error) {
		shape := make([]any, 0, len(f.told.Nodes[id].Type.Shape))
		for _, extent := range f.told.Nodes[id].Type.Shape {
			shape = append(shape, extent)
		}
		return calledFor(f.g.Handle(id), "relay.op._make.reshape", now[0], shape, true)
	})
}

// compare finds which nodes of a fixed module are which, and has zeros for those of which TVM cannot tell the sizes
// though it can those of what they read; more is how many.
func (f *fixer) compare(fixed *bridge.Object) (nodes []relay.NodeID, more int, err error) {
	m, err := relay.Read(fixed)
	if err != nil {
		return nil, 0, err
	}
	defer m.Release()
	g := m.Function("main")
	nodes = make([]relay.NodeID, len(g.Nodes))
	for i := range nodes {
		nodes[i] = relay.NoNode
	}
	type pair struct{ old, now relay.NodeID }
	list := []pair{{f.g.Root(), g.Root()}}
	for len(list) > 0 {
		p := list[len(list)-1]
		list = list[:len(list)-1]
		old, now := &f.g.Nodes[p.old], &g.Nodes[p.now]
		if f.zeros[p.old] || nodes[p.now] != relay.NoNode {
			continue
		}
		same := old.Op == now.Op && len(old.Inputs) == len(now.Inputs) || isReshapeLike(old, now) && len(now.Inputs) == 1
		if old.Kind != now.Kind || !same {
			return nil, 0, &NotFixedError{fmt.Sprintf("%%%d is another expression in it", p.old)}
		}
		nodes[p.now] = p.old
		for i := range now.Inputs {
			list = append(list, pair{old.Inputs[i], now.Inputs[i]})
		}
	}
	for now, old := range nodes {
		switch t := g.Nodes[now].Type; {
		case old == relay.NoNode:
		case t == nil || !IsOpen(t):
			if t != nil && t.String() != f.told.Nodes[old].Type.String() {
				return nil, 0, fmt.Errorf("%%%d (%s) is %s where %s was worked out, which is a defect of Collage", old,
					f.g.Nodes[old].Op, t, f.told.Nodes[old].Type)
			}
		default:
			if first := !readsOpen(g, relay.NodeID(now)); first {
				f.zeros[old] = true
				more++
			}
		}
	}
	return nodes, more, nil
}

func readsOpen(g *relay.Graph, id relay.NodeID) bool {
	for _, in := range g.Nodes[id].Inputs {
		if IsOpen(g.Nodes[in].Type) {
			return true
		}
	}
	return false
}

// constantFor is what stands for a node in the module: zeros, or of an arange from a number that is known, in steps of
// one, the places that it gives. A mask that is looked up by them hides padding, and by zeros everything or nothing.
func (f *fixer) constantFor(id relay.NodeID) (*bridge.Object, error) {
	t := f.told.Nodes[id].Type
	if len(t.Shape) != 1 {
		return constantOf(t, nil)
	}
	return constantOf(t, placesOf(f.g, id, t.Shape[0]))
}

// placesOf are so many elements of an arange whose beginning and step are known; nil for anything else.
func placesOf(g *relay.Graph, id relay.NodeID, count int64) (elements []byte) {
	n := &g.Nodes[id]
	if n.Op != "arange" || len(n.Inputs) != 3 || n.Type == nil {
		return nil
	}
	start, step, encode := g.Nodes[n.Inputs[0]].Constant, g.Nodes[n.Inputs[2]].Constant, encodes[n.Type.DType]
	if start == nil || step == nil || encode == nil {
		return nil
	}
	for i := range count {
		elements = encode(elements, start.Scalar+float64(i)*step.Scalar)
	}
	return elements
}

// constantOf is a constant of a tensor type, with these elements, little-endian, or zeros where they are nil.
func constantOf(t *relay.Type, elements []byte) (*bridge.Object, error) {
	bytes, known := t.NumBytes()
	if t.Kind != relay.TypeTensor || !known {
		return nil, &NotFixedError{"TVM does not tell the sizes of " + t.String()}
	}
	dtype, err := bridge.ParseDataType(t.DType)
	if err != nil {
		return nil, err
	}
	data, err := bridge.Empty(t.Shape, dtype, bridge.CPU())
	if err != nil {
		return nil, err
	}
	defer data.Release()
	if elements == nil {
		elements = make([]byte, bytes)
	}
	if err := data.CopyFromBytes(elements); err != nil {
		return nil, err
	}
	return relay.NewConstant(data)
}

// encodes put a number behind others, by its type.
var encodes = map[string]func(to []byte, number float64) []byte{
	"int64": func(to []byte, number float64) []byte {
		return binary.LittleEndian.AppendUint64(to, uint64(int64(number)))
	},
	"int32": func(to []byte, number float64) []byte {
		return binary.LittleEndian.AppendUint32(to, uint32(int32(number)))
	},
	"float32": func(to []byte, number float64) []byte {
		return binary.LittleEndian.AppendUint32(to, math.Float32bits(float32(number)))
	},
}

// IsNotFixed says that an error is a *NotFixedError.
func IsNotFixed(err error) bool {
	var not *NotFixedError
	return errors.As(err, &not)
}
