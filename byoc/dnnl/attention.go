// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/byoc/view"
	"github.com/collage-tvm/collage/relay"
)

// attention lowers the operators of one attention (native.Attention) as one operation.
func (l *lowering) attention(name string, ops []region.Op) error {
	l.nodes = map[relay.NodeID]region.ValueID{}
	l.bind(ops)
	var nodes []relay.NodeID
	for i := range ops {
		nodes = append(nodes, ops[i].Node)
	}
	layer := native.ReadAttention(l.p.Graph, nodes, func(id relay.NodeID) relay.NodeID {
		if v, ok := l.nodes[id]; ok && int(v) < len(l.p.Values) {
			return l.p.Values[v].Constant
		}
		return relay.NoNode
	})
	if layer == nil {
		return fmt.Errorf("%s: its body is not what the name says", name)
	}
	o := &operation{
		kind: "attention", kernel: native.AttentionKernel, out: l.nodes[layer.Root], alpha: layer.Scale,
		attention: layer,
	}
	asItIs := func(v region.ValueID) (region.ValueID, view.View) { return v, view.Plain(l.types[v].Shape) }
	if !l.place(o, asItIs) {
		return fmt.Errorf("%s: its tensors lie so that the kernel cannot read them", name)
	}
	l.add(o)
	return nil
}

// place gives an attention its arguments and views; seen says in which value another one's elements lie, and how. It
// changes nothing where the kernel does not work so.
func (l *lowering) place(o *operation, seen func(region.ValueID) (region.ValueID, view.View)) bool {
	a := o.attention
	sides := []native.Side{a.Query, a.Key, a.Value, a.Result}
	for _, mask := range a.Masks {
		sides = append(sides, mask.Side)
	}
	var in []region.ValueID
	var views []view.View
	for i, side := range sides {
		of := l.nodes[side.Of]
		if o.arguments != nil {
			of = o.arguments[i]
		}
		base, v := of, view.Plain(l.types[of].Shape)
		if i != 3 { // the result is written where it is
			base, v = seen(of)
		}
		v, ok := side.Seen(v)
		if !ok {
			return false
		}
		in, views = append(in, base), append(views, v)
	}
	placed, ok := native.Place(views)
	if !ok {
		return false
	}
	if o.arguments == nil {
		o.arguments = slices.Clone(in)
	}
	o.in = slices.Delete(in, 3, 4)
	o.views = o.views[:0]
	for _, p := range placed {
		o.views = append(o.views, strides{p.Dims, p.Strides, p.Offset})
	}
	return true
}

// attend has attentions read what other operators of the region only move where that lies, and removes what then nobody
// reads. It runs before fuse, which would hang other work on what is moved.
func (l *lowering) attend() {
	if !slices.ContainsFunc(l.ops, func(o *operation) bool { return o.attention != nil }) {
		return
	}
	defer l.follow()()
	for _, o := range l.ops {
		if o.attention != nil {
			l.place(o, l.seen)
		}
	}
	l.sweep()
}

// sweep removes operations whose results nobody reads.
func (l *lowering) sweep() {
	for i := len(l.ops) - 1; i >= 0; i-- {
		o := l.ops[i]
		needed := func(v region.ValueID) bool {
			return slices.Contains(l.p.Outputs, v) ||
				slices.ContainsFunc(l.ops, func(other *operation) bool { return other.reads(v) > 0 })
		}
		if !needed(o.out) && !slices.ContainsFunc(o.more, needed) {
			l.ops = slices.Delete(l.ops, i, i+1)
		}
	}
}

// seen follows a value back through reshapes and transposes, as far as their results are views of their arguments.
func (l *lowering) seen(v region.ValueID) (region.ValueID, view.View) {
	if o := l.maker(v); o != nil && len(o.post) == 0 {
		switch o.kind {
		case "reshape":
			base, s := l.seen(o.in[0])
			if s, ok := s.Reshaped(l.types[v].Shape); ok {
				return base, s
			}
		case "transpose":
			base, s := l.seen(o.in[0])
			return base, s.Permuted(o.perm)
		}
	}
	return v, view.Plain(l.types[v].Shape)
}

// maker is the operation whose result a value is; nil for inputs and constants.
func (l *lowering) maker(v region.ValueID) *operation {
	for _, o := range l.ops {
		if o.out == v {
			return o
		}
	}
	return nil
}
