// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
)

// DFPattern writes a pattern as one of tvm.relay.dataflow_pattern, for TVM's own passes. It matches wherever p does and
// may match elsewhere, too: what Where says of a node is left out, since TVM knows nothing of it, and so is that a
// wildcard used twice must match one node (TVM's do, in their own way). The caller owns the result.
func DFPattern(p Pattern) (*bridge.Object, error) {
	w := dfWriter{made: map[Pattern]*bridge.Object{}}
	defer func() {
		for _, o := range w.made {
			o.Release()
		}
	}()
	o, err := w.write(p)
	if err != nil {
		return nil, err
	}
	return o.Retain()
}

// dfWriter remembers what it has written: a pattern that stands twice is one object of TVM's, too.
type dfWriter struct{ made map[Pattern]*bridge.Object }

func (w dfWriter) write(p Pattern) (*bridge.Object, error) {
	if o := w.made[p]; o != nil {
		return o, nil
	}
	o, err := w.construct(p)
	if err == nil {
		w.made[p] = o
	}
	return o, err
}

func (w dfWriter) construct(p Pattern) (*bridge.Object, error) {
	const namespace = "relay.dataflow_pattern."
	switch p := p.(type) {
	case *opPattern:
		callee, err := w.operators(p.names)
		if err != nil {
			return nil, err
		}
		defer callee.Release()
		args, err := w.arguments(p)
		if err != nil {
			return nil, err
		}
		return object(namespace+"CallPattern", callee, args)
	case *wildcardPattern:
		return object(namespace + "WildcardPattern")
	case *kindPattern:
		if p.kind == KindConstant {
			return object(namespace + "ConstantPattern")
		}
		return object(namespace+"VarPattern", "")
	case *orPattern:
		alternatives, err := w.all(p.alternatives)
		if err != nil {
			return nil, err
		}
		return either(alternatives)
	case *wherePattern:
		inner, err := w.write(p.p)
		if err != nil {
			return nil, err
		}
		return inner.Retain()
	case *namedPattern:
		inner, err := w.write(p.p)
		if err != nil {
			return nil, err
		}
		return inner.Retain()
	case *tuplePattern:
		fields, err := w.all(p.fields)
		if err != nil {
			return nil, err
		}
		return object(namespace+"TuplePattern", fields)
	case *getPattern:
		tuple, err := w.write(p.tuple)
		if err != nil {
			return nil, err
		}
		return object(namespace+"TupleGetItemPattern", tuple, p.index)
	}
	return nil, fmt.Errorf("relay: a %T has no form in TVM", p)
}

// arguments are those of a call. TVM's matcher does not take "any" for operators of two arguments: it looks at both.
func (w dfWriter) arguments(p *opPattern) ([]*bridge.Object, error) {
	if len(p.args) > 0 {
		return w.all(p.args)
	}
	op, err := object("ir.GetOp", p.names[0])
	if err != nil {
		return nil, err
	}
	defer op.Release()
	n, err := op.AttrInt("num_inputs")
	if err != nil {
		return nil, err
	}
	var wildcards []Pattern
	for range n {
		wildcards = append(wildcards, Wildcard())
	}
	return w.all(wildcards)
}

func (w dfWriter) all(patterns []Pattern) ([]*bridge.Object, error) {
	objects := make([]*bridge.Object, len(patterns))
	for i, p := range patterns {
		var err error
		if objects[i], err = w.write(p); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// operators is the pattern of a callee that is one of these operators.
func (w dfWriter) operators(names []string) (*bridge.Object, error) {
	var choices []*bridge.Object
	defer func() {
		for _, o := range choices {
			o.Release()
		}
	}()
	for _, name := range names {
		op, err := object("ir.GetOp", name)
		if err != nil {
			return nil, err
		}
		choice, err := object("relay.dataflow_pattern.ExprPattern", op)
		op.Release()
		if err != nil {
			return nil, err
		}
		choices = append(choices, choice)
	}
	return either(choices)
}

// either is the pattern of one of several; the caller keeps those.
func either(patterns []*bridge.Object) (*bridge.Object, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("relay: a choice of no patterns")
	}
	result, err := patterns[0].Retain()
	for _, p := range patterns[1:] {
		if err != nil {
			return nil, err
		}
		before := result
		result, err = object("relay.dataflow_pattern.AltPattern", before, p)
		before.Release()
	}
	return result, err
}
