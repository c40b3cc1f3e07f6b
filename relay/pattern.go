// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"maps"
	"slices"
)

// Pattern says what must stand in a graph. Patterns are made by the constructors below, are immutable and may
// be shared between goroutines.
//
// A pattern value that is used twice inside one pattern must match the same node both times:
//
//	x := Wildcard()
//	swish := Op("multiply", x, Op("sigmoid", x))
//
// so make a new Wildcard for each operand that may be a different one.
type Pattern interface {
	// try calls found for each way in which the pattern matches node id given what s has bound so far, with s
	// extended by that way. found returns false to end the search, and so does try.
	try(s *matching, id NodeID, found func() bool) bool
	// canRoot says cheaply that a match may have n at its root; the root is always covered.
	canRoot(n *Node) bool
}

type opPattern struct {
	names []string
	args  []Pattern // nil: any arguments
}

// Op matches a call of the operator of that name whose arguments match args; with no args, whatever its
// arguments are. The call is covered by the match. The arguments of commutative operators (add, multiply,
// maximum, minimum, logical_and, …) match in either order.
func Op(name string, args ...Pattern) Pattern { return &opPattern{[]string{name}, args} }

// AnyOf is Op for several operators of the same form.
func AnyOf(names []string, args ...Pattern) Pattern { return &opPattern{names, args} }

type wildcardPattern struct{ _ byte }

// Wildcard matches any value, which stays outside: it becomes an input of the match (unless another part of
// the pattern covers it).
func Wildcard() Pattern { return &wildcardPattern{} }

type kindPattern struct{ kind Kind }

// IsConstant matches a constant. Whatever matches them, constants that covered nodes read are listed in
// Match.Constants.
func IsConstant() Pattern { return &kindPattern{KindConstant} }

// IsVar matches a variable (a parameter of a function).
func IsVar() Pattern { return &kindPattern{KindVar} }

type orPattern struct{ alternatives []Pattern }

// Or matches what any of the alternatives matches; all of them are tried.
func Or(alternatives ...Pattern) Pattern { return &orPattern{alternatives} }

// Optional matches p, or p with something on top of it:
//
//	Optional(conv, func(p Pattern) Pattern { return Op("nn.relu", p) })
//
// Where two options in a row can explain the same node (an add as bias or as sum), the one that was added first
// is tried first.
func Optional(p Pattern, with func(p Pattern) Pattern) Pattern { return Or(p, with(p)) }

type wherePattern struct {
	p    Pattern
	keep func(g *Graph, id NodeID) bool
}

// Where matches what p matches if keep agrees. keep must give the same answer each time.
func Where(p Pattern, keep func(g *Graph, id NodeID) bool) Pattern { return &wherePattern{p, keep} }

// HasAttr matches what p matches where the node's attribute has that value: a bool, number, string, nil or a
// slice of these.
func HasAttr(p Pattern, name string, value any) Pattern {
	want := plainValue(value)
	return Where(p, func(g *Graph, id NodeID) bool {
		v, ok := g.Nodes[id].Attrs.Get(name)
		return ok && equalValue(v, want)
	})
}

// HasDType matches what p matches where it is a tensor of that dtype.
func HasDType(p Pattern, dtype string) Pattern {
	return Where(p, func(g *Graph, id NodeID) bool {
		t := g.Nodes[id].Type
		return t != nil && t.Kind == TypeTensor && t.DType == dtype
	})
}

// HasShape matches what p matches where it is a tensor of that shape; AnyDim in shape stands for any
// dimension.
func HasShape(p Pattern, shape ...int64) Pattern {
	return Where(p, func(g *Graph, id NodeID) bool {
		t := g.Nodes[id].Type
		if t.Rank() != len(shape) {
			return false
		}
		for i, d := range shape {
			if d != AnyDim && d != t.Shape[i] {
				return false
			}
		}
		return true
	})
}

type tuplePattern struct{ fields []Pattern }

// TuplePattern matches a tuple with these fields; the tuple is covered by the match.
func TuplePattern(fields ...Pattern) Pattern { return &tuplePattern{fields} }

type getPattern struct {
	tuple Pattern
	index int
}

// TupleGetItem matches the taking of field i (any field if i is negative) of a tuple that matches p; it is
// covered by the match.
func TupleGetItem(p Pattern, i int) Pattern { return &getPattern{p, i} }

type namedPattern struct {
	name string
	p    Pattern
}

// Named matches what p matches and enters the node under that name in Match.Named.
func Named(name string, p Pattern) Pattern { return &namedPattern{name, p} }

// commutative are the operators of two arguments whose order does not matter.
var commutative = map[string]bool{
	"add": true, "multiply": true, "maximum": true, "minimum": true, "equal": true, "not_equal": true,
	"logical_and": true, "logical_or": true, "logical_xor": true,
	"bitwise_and": true, "bitwise_or": true, "bitwise_xor": true,
}

// Commutative says that the order of the two arguments of the operator does not matter.
func Commutative(op string) bool { return commutative[op] }

func (p *opPattern) canRoot(n *Node) bool     { return n.Op != "" && slices.Contains(p.names, n.Op) }
func (p *wildcardPattern) canRoot(*Node) bool { return false }
func (p *kindPattern) canRoot(*Node) bool     { return false }
func (p *wherePattern) canRoot(n *Node) bool  { return p.p.canRoot(n) }
func (p *namedPattern) canRoot(n *Node) bool  { return p.p.canRoot(n) }
func (p *tuplePattern) canRoot(n *Node) bool  { return n.Kind == KindTuple }
func (p *getPattern) canRoot(n *Node) bool    { return n.Kind == KindTupleGetItem }
func (p *orPattern) canRoot(n *Node) bool {
	return slices.ContainsFunc(p.alternatives, func(a Pattern) bool { return a.canRoot(n) })
}

// Operators are the names of the operators that a match of p may cover, sorted.
func Operators(p Pattern) []string {
	names, seen := map[string]bool{}, map[Pattern]bool{}
	var visit func(p Pattern)
	visit = func(p Pattern) {
		if seen[p] {
			return
		}
		seen[p] = true
		switch p := p.(type) {
		case *opPattern:
			for _, name := range p.names {
				names[name] = true
			}
			for _, a := range p.args {
				visit(a)
			}
		case *orPattern:
			for _, a := range p.alternatives {
				visit(a)
			}
		case *tuplePattern:
			for _, f := range p.fields {
				visit(f)
			}
		case *wherePattern:
			visit(p.p)
		case *namedPattern:
			visit(p.p)
		case *getPattern:
			visit(p.tuple)
		}
	}
	visit(p)
	return slices.Sorted(maps.Keys(names))
}

// Alone are the names of the operators that p takes by themselves, sorted: those a match of p may cover a single call
// of and no call of another (tuples and their fields may be covered with it).
func Alone(p Pattern) []string {
	return slices.Sorted(maps.Keys(fewestCalls(p, map[Pattern]fewCalls{}).single))
}

// fewCalls is what is known about matches of a pattern that cover at most one call.
type fewCalls struct {
	none   bool            // a match may cover no call
	single map[string]bool // the operators of which a match may cover a single call
}

// fewestCalls finds a pattern's fewCalls. known holds those of patterns inside, which may be used many times.
func fewestCalls(p Pattern, known map[Pattern]fewCalls) fewCalls {
	if f, ok := known[p]; ok {
		return f
	}
	var f fewCalls
	switch p := p.(type) {
	case *wildcardPattern, *kindPattern:
		f.none = true
	case *opPattern:
		if fewestCallsOfAll(p.args, known).none {
			f.single = map[string]bool{}
			for _, name := range p.names {
				f.single[name] = true
			}
		}
	case *orPattern:
		f.single = map[string]bool{}
		for _, a := range p.alternatives {
			of := fewestCalls(a, known)
			f.none = f.none || of.none
			maps.Copy(f.single, of.single)
		}
	case *tuplePattern:
		f = fewestCallsOfAll(p.fields, known)
	case *wherePattern:
		f = fewestCalls(p.p, known)
	case *namedPattern:
		f = fewestCalls(p.p, known)
	case *getPattern:
		f = fewestCalls(p.tuple, known)
	}
	known[p] = f
	return f
}

// fewestCallsOfAll is fewestCalls of patterns that must all match. One that is there twice matches one node.
func fewestCallsOfAll(all []Pattern, known map[Pattern]fewCalls) fewCalls {
	f := fewCalls{none: true, single: map[string]bool{}}
	for i, p := range all {
		if slices.Contains(all[:i], p) {
			continue
		}
		of := fewestCalls(p, known)
		single := map[string]bool{}
		if f.none {
			maps.Copy(single, of.single)
		}
		if of.none {
			maps.Copy(single, f.single)
		}
		f = fewCalls{f.none && of.none, single}
	}
	return f
}
