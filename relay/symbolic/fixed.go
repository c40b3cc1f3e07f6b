// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Fixed is the function as it is where open dimensions have these sizes, by name: the same nodes, with types in which
// every dimension is a number. The error names the first node of which the sizes do not tell that.
func (a *Analysis) Fixed(sizes map[string]int64) (*relay.Graph, error) {
	return a.g.Retyped(func(id relay.NodeID) (*relay.Type, error) {
		t, err := a.values[id].fixed(a.g.Nodes[id].Type, sizes)
		if err != nil {
			return nil, fmt.Errorf("%%%d: %w", id, err)
		}
		return t, nil
	})
}

// fixed is a type with numbers for what is open.
func (v *Value) fixed(t *relay.Type, sizes map[string]int64) (*relay.Type, error) {
	if !IsOpen(t) {
		return t, nil
	}
	out := *t
	if t.Kind == relay.TypeTuple {
		out.Fields = make([]*relay.Type, len(t.Fields))
		for i, field := range t.Fields {
			var of Value
			if i < len(v.Fields) {
				of = v.Fields[i]
			}
			var err error
			if out.Fields[i], err = of.fixed(field, sizes); err != nil {
				return nil, err
			}
		}
		return &out, nil
	}
	out.Shape = slices.Clone(t.Shape)
	for d, extent := range t.Shape {
		if extent != relay.AnyDim {
			continue
		}
		if d >= len(v.Shape) {
			return nil, fmt.Errorf("nothing is known of its sizes")
		}
		size, err := v.Shape[d].At(sizes)
		if err != nil {
			return nil, err
		}
		out.Shape[d] = size
	}
	return &out, nil
}

// FixedWhereKnown is Fixed in which types stay open of what the sizes do not tell.
func (a *Analysis) FixedWhereKnown(sizes map[string]int64) *relay.Graph {
	g, err := a.g.Retyped(func(id relay.NodeID) (*relay.Type, error) {
		t, err := a.values[id].fixed(a.g.Nodes[id].Type, sizes)
		if err != nil {
			t = a.g.Nodes[id].Type
		}
		return t, nil
	})
	if err != nil {
		panic(err) // there is none
	}
	return g
}

// Follows says that all sizes of a node are told by those of its inputs: nothing in them is known only when it is
// computed.
func (a *Analysis) Follows(id relay.NodeID) bool {
	known := map[string]bool{}
	for _, in := range a.g.Nodes[id].Inputs {
		for _, d := range a.values[in].dimensions() {
			known[d.Name] = true
		}
	}
	return !slices.ContainsFunc(a.values[id].dimensions(), func(d Dimension) bool { return !known[d.Name] })
}

// Told says that all sizes of a node are told by those of its inputs: they are polynomials of them, and quotients of
// such by numbers. None is a maximum, or a quotient by what is open, that these are not.
func (a *Analysis) Told(id relay.NodeID) bool {
	l := derivation{at: map[string]int{}}
	for _, in := range a.g.Nodes[id].Inputs {
		a.values[in].extents(func(e Expression) {
			for _, t := range e.terms {
				for _, f := range t.factors {
					l.at[f.name] = 0
				}
			}
		})
	}
	told := true
	a.values[id].extents(func(e Expression) { told = told && l.atoms(e) })
	return told
}

// dimensions are the open dimensions of a value, some of them several times.
func (v *Value) dimensions() (list []Dimension) {
	for _, extent := range v.Shape {
		list = append(list, extent.Dimensions()...)
	}
	for i := range v.Fields {
		list = append(list, v.Fields[i].dimensions()...)
	}
	return list
}

// Open are the open dimensions of a function's parameters, each once, by name.
func (a *Analysis) Open() []Dimension { return a.dimensionsOf(slices.Values(a.g.Params)) }

// All are Open with those that are known only when the function runs: how many items satisfy something.
func (a *Analysis) All() []Dimension {
	return a.dimensionsOf(func(yield func(relay.NodeID) bool) {
		for i := range a.values {
			if !yield(relay.NodeID(i)) {
				return
			}
		}
	})
}

func (a *Analysis) dimensionsOf(nodes iter.Seq[relay.NodeID]) []Dimension {
	found := map[string]Dimension{}
	for id := range nodes {
		for _, d := range a.values[id].dimensions() {
			found[d.Name] = d
		}
	}
	return slices.SortedFunc(maps.Values(found), byName)
}

// Named is a node's sizes for Inputs: dimensions of the same expression have the same name, which is its text, and a
// number that the node's type does not tell is a sum of it alone; ok is false of what is no tensor.
func (a *Analysis) Named(id relay.NodeID) (named []Dimension, ok bool) {
	v := &a.values[id]
	if !v.known {
		return nil, false
	}
	for axis, extent := range v.Shape {
		if number, fixed := extent.Value(); fixed {
			told := Dimension{}
			if t := a.g.Nodes[id].Type; t != nil && axis < len(t.Shape) && t.Shape[axis] == relay.AnyDim {
				told.Of = []Product{{By: number}}
			}
			named = append(named, told)
			continue
		}
		least, most := extent.Bounds()
		d := Dimension{Name: extent.String(), Least: max(least, 0), Most: most}
		d.Of, d.Quotients = extent.products()
		named = append(named, d)
	}
	return named, true
}

// products are the terms of an expression that is made of open dimensions, and no such by itself, and the quotients
// that it has; nil where it is made of other things.
func (e Expression) products() (products []Product, quotients []Quotient) {
	l := derivation{at: map[string]int{}}
	if !l.atoms(e) {
		return nil, nil
	}
	for i := range l.list {
		quotients = append(quotients, l.list[i].Quotient)
	}
	products = e.asProducts()
	if len(quotients) == 0 && len(products) == 1 && products[0].By == 1 && len(products[0].Sizes) == 1 {
		return nil, nil
	}
	return products, quotients
}
