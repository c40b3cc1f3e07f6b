// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// UserPattern is an entry of a pattern table: a pattern of tvm.relay.dataflow_pattern, which TVM matches.
type UserPattern struct {
	Composite string
	// Pattern is the relay.dataflow_pattern.DFPattern.
	Pattern *bridge.Object
	// Accept is the table's predicate, called with the expression that the pattern matched; nil accepts everything.
	Accept func(root *bridge.Object) (bool, error)
}

// UserMatches gives the legal matches of a user's pattern, one for each node that it matches at, ascending. The graph
// must have been read from TVM. TVM takes 0.2 to 0.3 ms for each node that could match, so nodes whose operator the
// pattern cannot end with are not tried.
func (f *Flow) UserMatches(p UserPattern) ([]*Group, error) {
	roots, anything, err := rootOperators(p.Pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %s: %w", p.Composite, err)
	}
	m := &userMatcher{f: f, pattern: p, ids: map[uintptr]relay.NodeID{}}
	for i := range f.Graph.Nodes {
		m.ids[f.Graph.Handle(relay.NodeID(i)).Pointer()] = relay.NodeID(i)
	}
	if err := m.prepare(); err != nil {
		return nil, fmt.Errorf("pattern %s: %w", p.Composite, err)
	}
	defer m.release()
	var groups []*Group
	for i := range f.Graph.Nodes {
		v, n := relay.NodeID(i), &f.Graph.Nodes[i]
		if !f.Graph.Placeable(v) || !anything && !slices.Contains(roots, n.Op) {
			continue
		}
		set, err := m.match(v)
		if err != nil {
			return nil, fmt.Errorf("pattern %s at %s: %w", p.Composite, f.Graph.Line(v), err)
		}
		if set == nil {
			continue
		}
		if g := f.GroupOf(set, p.Composite); f.Legal(g, len(f.Graph.Nodes)) {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// rootOperators gives the operators that an expression must be a call of for the pattern to match it; anything where
// the pattern does not say so.
func rootOperators(pattern *bridge.Object) (names []string, anything bool, err error) {
	inner := func(attr string) error {
		p, err := pattern.AttrObject(attr)
		if err != nil || p == nil {
			anything = true
			return err
		}
		defer p.Release()
		more, any, err := rootOperators(p)
		names, anything = append(names, more...), anything || any
		return err
	}
	switch pattern.TypeKey() {
	case "relay.dataflow_pattern.CallPattern":
		op, err := pattern.AttrObject("op")
		if err != nil || op == nil {
			return nil, true, err
		}
		defer op.Release()
		if op.TypeKey() != "relay.dataflow_pattern.ExprPattern" {
			return rootOperatorsOfCallee(op)
		}
		expr, err := op.AttrObject("expr")
		if err != nil || expr == nil {
			return nil, true, err
		}
		defer expr.Release()
		name, err := expr.AttrString("name")
		if err != nil {
			return nil, true, nil // not an operator
		}
		return []string{name}, false, nil
	case "relay.dataflow_pattern.AltPattern":
		if err := inner("left"); err != nil {
			return nil, false, err
		}
		err := inner("right")
		return names, anything, err
	case "relay.dataflow_pattern.AttrPattern", "relay.dataflow_pattern.TypePattern",
		"relay.dataflow_pattern.ShapePattern", "relay.dataflow_pattern.DataTypePattern":
		err := inner("pattern")
		return names, anything, err
	}
	return nil, true, nil
}

// rootOperatorsOfCallee looks through a choice of operators: (is_op("a") | is_op("b"))(x).
func rootOperatorsOfCallee(op *bridge.Object) ([]string, bool, error) {
	switch op.TypeKey() {
	case "relay.dataflow_pattern.ExprPattern":
		expr, err := op.AttrObject("expr")
		if err != nil || expr == nil {
			return nil, true, err
		}
		defer expr.Release()
		if name, err := expr.AttrString("name"); err == nil {
			return []string{name}, false, nil
		}
	case "relay.dataflow_pattern.AltPattern":
		var names []string
		for _, side := range []string{"left", "right"} {
			p, err := op.AttrObject(side)
			if err != nil || p == nil {
				return nil, true, err
			}
			defer p.Release()
			more, anything, err := rootOperatorsOfCallee(p)
			if err != nil || anything {
				return nil, true, err
			}
			names = append(names, more...)
		}
		return names, false, nil
	}
	return nil, true, nil
}

// userMatcher asks TVM. There is no packed function that gives the nodes of a match, but TVM's rewriter hands them to
// its callback, which here leaves everything as it is. It looks for the largest match first, so the one at the root of
// the expression that it is given is never hidden by another.
type userMatcher struct {
	f        *Flow
	pattern  UserPattern
	ids      map[uintptr]relay.NodeID
	callback *bridge.Object // relay.dataflow_pattern.DFPatternCallback
	empty    *bridge.Object // a module without functions

	root  *bridge.Object // what is being matched
	found NodeSet
}

func (m *userMatcher) prepare() error {
	function, err := bridge.NewFunction(m.matched)
	if err != nil {
		return err
	}
	defer function.Release()
	v, err := bridge.Global("relay.dataflow_pattern.DFPatternCallback", m.pattern.Pattern, function, false, true)
	if err != nil {
		return err
	}
	if m.callback, err = v.Object(); err != nil {
		return err
	}
	m.empty, err = relay.ModuleFromFunctions(nil)
	return err
}

func (m *userMatcher) release() {
	for _, o := range []*bridge.Object{m.callback, m.empty} {
		if o != nil {
			o.Release()
		}
	}
}

// matched is called with (before, after, {pattern: expressions}).
func (m *userMatcher) matched(args []bridge.Value) (any, error) {
	before, err := args[0].Object()
	if err != nil {
		return nil, err
	}
	if !before.Same(m.root) {
		return args[1], nil
	}
	nodes, err := args[2].Object()
	if err != nil {
		return nil, err
	}
	entries, err := nodes.Entries()
	if err != nil {
		return nil, err
	}
	m.found = NewNodeSet(len(m.f.Graph.Nodes))
	for _, e := range entries {
		pattern, err := e.Key.Object()
		if err != nil {
			return nil, err
		}
		exprs, err := e.Value.Object()
		if err != nil {
			return nil, err
		}
		// What a wildcard matched is an input.
		if pattern.TypeKey() != "relay.dataflow_pattern.WildcardPattern" {
			if err := m.collect(exprs); err != nil {
				return nil, err
			}
		}
		pattern.Release()
		exprs.Release()
	}
	return args[1], nil
}

func (m *userMatcher) collect(list *bridge.Object) error {
	exprs, err := list.Objects()
	if err != nil {
		return err
	}
	for _, expr := range exprs {
		if v, ok := m.ids[expr.Pointer()]; ok {
			n := &m.f.Graph.Nodes[v]
			if m.f.Graph.Placeable(v) || n.Kind == relay.KindConstant && !m.f.inline[v] {
				m.found.Add(v)
			}
		}
		expr.Release()
	}
	return nil
}

// match gives the nodes of the match at v; nil where there is none.
func (m *userMatcher) match(v relay.NodeID) (NodeSet, error) {
	m.root, m.found = m.f.Graph.Handle(v), nil
	matches, err := bridge.Global("relay.dataflow_pattern.match", m.pattern.Pattern, m.root)
	if err != nil {
		return nil, err
	}
	if yes, err := matches.Bool(); err != nil || !yes {
		return nil, err
	}
	if m.pattern.Accept != nil {
		if yes, err := m.pattern.Accept(m.root); err != nil || !yes {
			return nil, err
		}
	}
	out, err := bridge.Global("relay.dataflow_pattern.rewrite", []any{m.callback}, m.root, m.empty)
	if err != nil {
		return nil, err
	}
	out.Release()
	if m.found == nil || !m.found.Has(v) {
		return nil, nil
	}
	return m.found, nil
}
