// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// form is an expression that is yet to be made: what a function of TVM's makes of others, a node as it is rewritten, a
// number, or a node's operator with its attributes on other arguments. Equal ones are made once.
type form struct {
	text string       // the function's name, "tuple", "again" (of node), "number" or, for a node, ""
	node relay.NodeID // the node; what is done again
	args []any        // *form, attribute, sizes, int64, float64, string, bool
}

// attribute is one of a node's attributes.
type attribute struct {
	of   relay.NodeID
	name string
}

// sizes are the extents of a tensor.
type sizes []int64

func call(function string, args ...any) *form { return &form{text: function, args: args} }
func given(v relay.NodeID) *form              { return &form{node: v} }
func float(value float64) *form               { return &form{text: "number", args: []any{value}} }

// needs adds the nodes that the expression reads to a list that names each once.
func (f *form) needs(list *[]relay.NodeID) {
	if f.text == "" {
		for _, v := range *list {
			if v == f.node {
				return
			}
		}
		*list = append(*list, f.node)
	}
	for _, a := range f.args {
		if of, ok := a.(*form); ok {
			of.needs(list)
		}
	}
}

// maker makes expressions for the nodes of a graph.
type maker struct {
	g    *relay.Graph
	made map[string]*bridge.Object // by key
}

// key tells expressions of one graph apart; constants of one number go by their value.
func (m *maker) key(f *form) string {
	if f.text == "" {
		if c := m.g.Nodes[f.node].Constant; c != nil && c.Digest != "" {
			return fmt.Sprint(c.DType, c.Shape, c.Digest)
		}
		return fmt.Sprintf("%%%d", f.node)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d(", f.text, f.node)
	for _, a := range f.args {
		switch a := a.(type) {
		case *form:
			b.WriteString(m.key(a))
		case attribute:
			value, _ := m.g.Nodes[a.of].Attrs.Get(a.name)
			fmt.Fprint(&b, value)
		default:
			fmt.Fprint(&b, a)
		}
		b.WriteByte(';')
	}
	return b.String() + ")"
}

// make gives the expression of a form, which is the maker's or the graph's. now has the nodes that it needs.
func (m *maker) make(f *form, now map[relay.NodeID]*bridge.Object) (*bridge.Object, error) {
	if f.text == "" {
		return now[f.node], nil
	}
	key := m.key(f)
	if known := m.made[key]; known != nil {
		return known, nil
	}
	args, forms := make([]any, 0, len(f.args)+1), []*bridge.Object(nil)
	for _, a := range f.args {
		value := a
		var err error
		switch a := a.(type) {
		case *form:
			var expr *bridge.Object
			expr, err = m.make(a, now)
			forms, value = append(forms, expr), expr
		case attribute:
			value, err = m.attribute(a)
		case sizes:
			list := make([]any, len(a))
			for i, size := range a {
				list[i] = size
			}
			value = list
		}
		if err != nil {
			return nil, err
		}
		args = append(args, value)
	}
	expr, err := m.finish(f, args, forms)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.text, err)
	}
	m.made[key] = expr
	return expr, nil
}

func (m *maker) finish(f *form, args []any, forms []*bridge.Object) (*bridge.Object, error) {
	switch f.text {
	case "tuple":
		return relay.NewTuple(forms)
	case "number":
		return relay.NewFloat(args[0].(float64))
	case "again":
		attrs, err := m.g.Handle(f.node).AttrObject("attrs")
		if err != nil {
			return nil, err
		}
		op, err := relay.Operator(m.g.Nodes[f.node].Op)
		if err != nil {
			return nil, err
		}
		return relay.NewCall(op, forms, attrs)
	}
	v, err := bridge.Global(f.text, args...)
	if err != nil {
		return nil, err
	}
	return v.Object()
}

// attribute is a node's attribute as TVM has it.
func (m *maker) attribute(a attribute) (any, error) {
	attrs, err := m.g.Handle(a.of).AttrObject("attrs")
	if err != nil {
		return nil, err
	}
	return attrs.Attr(a.name)
}
