// SPDX-License-Identifier: Apache-2.0

// Package candidate proposes what could run where: for each scope of a graph and each backend, the groups
// of operators that the backend could run as one.
//
// What comes in: a relay.Graph and the backends. What goes out: a Set of Candidates, each legal (one exit, no
// interior value that escapes, connected, within one scope; or, where an engine proposes it, a convex set with several
// exits) and each with a structural key under which its cost can be stored; and what the backends refused, with their
// reasons.
package candidate

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Candidate is a group of nodes that one backend can run as one (Collage paper: a pattern match; TVM's
// prototype: CandidatePartition).
type Candidate struct {
	// Backend is the backend's name.
	Backend string
	// Composite is the pattern's name; "" for TVM's candidates.
	Composite string
	// Bare, Kernel, Reassociates and Grouped: see byoc.Pattern.
	Bare         bool
	Kernel       string
	Reassociates bool
	Grouped      bool
	// OwnConstants: see byoc.Proposal.
	OwnConstants bool
	// Free says that the candidate costs nothing by rule and is never measured: it holds no operator (a tuple, a
	// projection, a call of a function), or one that cannot be run by itself, or one that is already
	// partitioned. Free candidates are single nodes on TVM, and their Key is "".
	Free bool
	// Open says that it holds an operator with a dimension that is not known before the program runs. TVM's are Free.
	Open bool
	// Rank breaks ties between placements of equal cost (place.Option.Rank): fewer regions first, then fewer
	// kernels of TVM's, then the backend that stands first in the list.
	Rank int
	// Scope is the scope that all Nodes belong to.
	Scope relay.ScopeID
	// Nodes are the covered nodes, ascending; constants and variables are never among them.
	Nodes []relay.NodeID
	// Root is the only node whose value is used outside; the greatest of Nodes.
	Root relay.NodeID
	// Exits are, where the values of several nodes are used outside, these nodes, ascending; nil where Root is the
	// only one. The greatest of Nodes is among them. Such a candidate is bare, and a convex set of nodes
	// (CheckSeveral).
	Exits []relay.NodeID
	// Inputs are the values that come from outside, in the order of first use; constants are not among them.
	Inputs []relay.NodeID
	// Constants are the constants that are bound inside, in the order of first use.
	Constants []relay.NodeID
	// Key is the structural key of the computation, the same for the same computation on any backend.
	Key string
}

// Set is what was proposed for one graph.
type Set struct {
	Graph *relay.Graph
	// Candidates are in ascending order of their roots; then in the order of the backends; then those that cover
	// more come first. No two have the same backend, composite and nodes.
	Candidates []Candidate
	// Refusals are matches that a backend's limits turned down, in the order in which they were met.
	Refusals []Refusal
}

// Refusal says why a backend does not take a match of one of its patterns.
type Refusal struct {
	// Node is the root of the match.
	Node      relay.NodeID
	Backend   string
	Composite string
	Reason    string
}

// Options are what Propose needs to know beside the graph and the backends.
type Options struct {
	// OpPattern gives an operator's fusion pattern (TVM's operator attribute TOpPattern), Opaque for one that has
	// none. nil: no groups are proposed that only TVM's fusion makes.
	OpPattern func(op string) OpPattern
}

// Propose makes the candidates for a graph. Types must have been inferred. Each placeable node is covered by at
// least one candidate if one of the backends takes anything (TVM does).
//
// For a backend that TakesAnything: each node by itself (an operator together with the tuples that only it reads),
// the groups that TVM's FuseOps makes, whole and as the other backends' candidates could cut them, and the node set
// of each other backend's candidate of one exit, so that costs compare like with like. For the others: the matches of
// their patterns, and what their rules make (byoc.Rules). Beside that, what a backend proposes by itself
// (byoc.Proposer). The error is that of a node without a type, or of a backend that matches its patterns by itself
// (byoc.Matcher).
func Propose(g *relay.Graph, backends []byoc.Backend, opts Options) (*Set, error) {
	p := newProposer(g, backends, opts)
	if err := p.classify(); err != nil {
		return nil, err
	}
	for i, b := range backends {
		if !b.TakesAnything() {
			if err := p.offered(i, b); err != nil {
				return nil, err
			}
		}
	}
	library := p.found // the candidates of all backends that do not take everything
	for i, b := range backends {
		if b.TakesAnything() {
			p.addSingles(i)
			p.addMirrors(i, library)
			p.addFused(i, library)
			if err := p.propose(i, b, nil); err != nil {
				return nil, err
			}
		}
	}
	p.sort()
	p.finish()
	return &Set{Graph: g, Candidates: p.found, Refusals: p.refusals}, nil
}

// offered adds all that backend number b takes.
func (p *proposer) offered(b int, backend byoc.Backend) error {
	if p.isSized(backend) {
		return p.atSizes(b, func(at *proposer) error { return at.offered(b, backend) })
	}
	p.matchPatterns(b, backend)
	if err := p.matches(b, backend); err != nil {
		return err
	}
	p.applyRules(b, backend)
	return p.propose(b, backend, nil)
}

// Results are the nodes whose values are used outside, ascending: Exits, or Root alone.
func (c *Candidate) Results() []relay.NodeID {
	if len(c.Exits) > 0 {
		return c.Exits
	}
	return []relay.NodeID{c.Root}
}

// Border fills in what crosses the candidate's border, by its Nodes: Inputs, Constants and, of several, Exits.
func (c *Candidate) Border(g *relay.Graph) {
	c.Inputs, c.Constants = g.Boundary(c.Nodes)
	if exits := g.Exits(c.Nodes); len(exits) > 1 && c.Bare && c.Composite == "" {
		c.Exits = exits
	}
}

// Operators counts the operators among the candidate's nodes (tuples and projections are none).
func (c *Candidate) Operators(g *relay.Graph) int {
	n := 0
	for _, v := range c.Nodes {
		if IsOperator(&g.Nodes[v]) {
			n++
		}
	}
	return n
}

// IsOperator says that a node is a call of a primitive operator.
func IsOperator(n *relay.Node) bool { return n.Kind == relay.KindCall && n.Op != "" }

// Label names the candidate in one line: "dnnl.conv2d_bias_relu %12 on dnnl", "nn.softmax %3 on tvm".
func (c *Candidate) Label(g *relay.Graph) string {
	what := c.Composite
	if what == "" {
		what = OperatorName(&g.Nodes[c.Root])
		if n := c.Operators(g); n > 1 {
			what = fmt.Sprintf("%s and %d before it", what, n-1)
		}
		if len(c.Exits) > 0 {
			what += fmt.Sprintf(" with %d exits", len(c.Exits))
		}
	}
	return fmt.Sprintf("%s %%%d on %s", what, c.Root, c.Backend)
}

// OperatorName is the name of a node's operator; for other nodes what they are, in parentheses.
func OperatorName(n *relay.Node) string {
	if IsOperator(n) {
		return n.Op
	}
	switch n.Kind {
	case relay.KindCall:
		return "(call)"
	case relay.KindTuple:
		return "(tuple)"
	case relay.KindTupleGetItem:
		return "(projection)"
	case relay.KindFunction:
		return "(function)"
	case relay.KindLet:
		return "(let)"
	case relay.KindIf:
		return "(if)"
	case relay.KindRefCreate, relay.KindRefRead, relay.KindRefWrite:
		return "(reference)"
	default:
		return "(opaque)"
	}
}
