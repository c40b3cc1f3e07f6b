// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// class says what may be proposed for a node.
type class uint8

const (
	// unplaced: variables, constants, callees.
	unplaced class = iota
	// left alone: free, on TVM, in no group: calls of functions, control flow, references, what is already
	// partitioned, operators that cannot be run by themselves.
	alone
	// dynamic: an operator with a dimension that is not known before the program runs. Free, on TVM; and for backends that
	// take such (byoc.OpenTaker).
	dynamic
	// structural: tuples and projections. Free by themselves, and may be inside groups.
	structural
	// operator: is measured.
	operator
)

// proposer collects candidates for one graph.
type proposer struct {
	g        *relay.Graph
	backends []byoc.Backend
	opts     Options
	class    []class
	// cutOff says of operators that what they give is cast to whole numbers (findCutOff).
	cutOff []bool
	// open says that some operator has an open dimension, and sizes is the graph with fixed ones once it was needed.
	// fixedSizes says that this is such a graph.
	open, fixedSizes bool
	sizes            *sizes

	found    []Candidate
	seen     map[string]bool // backend, composite and nodes of what was found
	taken    map[string]bool // backend and nodes of what was found
	order    map[string]int  // a backend's place in the list
	refusals []Refusal
	refused  map[Refusal]bool
	identity []byte // scratch of identify
}

func newProposer(g *relay.Graph, backends []byoc.Backend, opts Options) *proposer {
	p := &proposer{g: g, backends: backends, opts: opts, class: make([]class, len(g.Nodes)),
		seen: map[string]bool{}, taken: map[string]bool{}, order: map[string]int{}, refused: map[Refusal]bool{}}
	for i, b := range backends {
		p.order[b.Name()] = i
	}
	return p
}

// classify looks at each node once.
func (p *proposer) classify() error {
	taken := takenScopes(p.g)
	for v := range p.g.Nodes {
		id, n := relay.NodeID(v), &p.g.Nodes[v]
		switch {
		case !p.g.Placeable(id):
			p.class[v] = unplaced
		case taken[n.Scope]:
			p.class[v] = alone
		case n.Kind == relay.KindTuple || n.Kind == relay.KindTupleGetItem:
			p.class[v] = structural
		case !IsOperator(n) || noKernel(n.Op):
			p.class[v] = alone
		default:
			c, err := p.classifyOperator(id)
			if err != nil {
				return err
			}
			p.class[v] = c
			p.open = p.open || c == dynamic
		}
	}
	p.findCutOff()
	return nil
}

func (p *proposer) classifyOperator(id relay.NodeID) (class, error) {
	n := &p.g.Nodes[id]
	result := operator
	for _, v := range append([]relay.NodeID{id}, n.Inputs...) {
		t := p.g.Nodes[v].Type
		if t == nil {
			return unplaced, fmt.Errorf("candidates: %s %%%d of function %s has a value without a type (%%%d): run "+
				"InferType first",
				n.Op, id, p.g.Name, v)
		}
		switch {
		case !isData(t):
			return alone, nil
		case !isStatic(t):
			result = dynamic
		}
	}
	return result, nil
}

// takenScopes says which scopes belong to a function that somebody has already given to a compiler or made one
// kernel: the function itself, or one that they are nested in.
func takenScopes(g *relay.Graph) []bool {
	taken := make([]bool, len(g.Scopes))
	known := make([]bool, len(g.Scopes))
	var find func(s relay.ScopeID) bool
	find = func(s relay.ScopeID) bool {
		if !known[s] {
			known[s] = true
			if owner := g.Scopes[s].Owner; owner == relay.NoNode {
				taken[s] = isTaken(g.Attrs)
			} else {
				taken[s] = isTaken(g.Nodes[owner].FuncAttrs) || find(g.Nodes[owner].Scope)
			}
		}
		return taken[s]
	}
	for s := range g.Scopes {
		find(relay.ScopeID(s))
	}
	return taken
}

func isTaken(attrs map[string]string) bool {
	primitive := attrs["Primitive"]
	return attrs["Compiler"] != "" || attrs["Composite"] != "" || primitive != "" && primitive != "0"
}

// noKernel says that an operator stands for no computation of its own: it talks to the compiler or the virtual
// machine.
func noKernel(op string) bool {
	return op == "on_device" || op == "device_copy" || op == "call_lowered" ||
		strings.HasPrefix(op, "annotation.") || strings.HasPrefix(op, "memory.") || strings.HasPrefix(op, "vm.")
}

// isData says that a value is a tensor or a tuple of such.
func isData(t *relay.Type) bool {
	switch t.Kind {
	case relay.TypeTensor:
		return true
	case relay.TypeTuple:
		return !slices.ContainsFunc(t.Fields, func(f *relay.Type) bool { return !isData(f) })
	default:
		return false
	}
}

func isStatic(t *relay.Type) bool {
	return !slices.Contains(t.Shape, relay.AnyDim) &&
		!slices.ContainsFunc(t.Fields, func(f *relay.Type) bool { return !isStatic(f) })
}

// add proposes a group of nodes on backend number b, unless that is proposed already. The nodes are kept.
func (p *proposer) add(b int, proposal byoc.Proposal) {
	backend, nodes := p.backends[b].Name(), proposal.Nodes
	identity := p.identify(backend, proposal.Composite, nodes)
	if p.seen[string(identity)] {
		return
	}
	p.seen[string(identity)] = true
	p.taken[string(p.identify(backend, "", nodes))] = true
	root := nodes[len(nodes)-1]
	c := Candidate{Backend: backend, Composite: proposal.Composite, Bare: proposal.Bare, Kernel: proposal.Kernel,
		Reassociates: proposal.Reassociates, Grouped: proposal.Grouped, OwnConstants: proposal.OwnConstants,
		Scope: p.g.Nodes[root].Scope, Nodes: nodes, Root: root}
	if mayBranch(p.backends[b], &proposal) {
		if exits := p.g.Exits(nodes); len(exits) > 1 {
			c.Exits = exits
		}
	}
	c.Open = slices.ContainsFunc(nodes, func(v relay.NodeID) bool { return p.class[v] == dynamic })
	c.Free = !slices.ContainsFunc(nodes, func(v relay.NodeID) bool { return p.class[v] == operator }) &&
		!(c.Open && byoc.TakesOpen(p.backends[b]))
	c.Rank = p.rank(b, c.Free)
	p.found = append(p.found, c)
}

// identify gives what makes a candidate different from others; the bytes are valid until the next call.
func (p *proposer) identify(backend, composite string, nodes []relay.NodeID) []byte {
	p.identity = append(append(append(append(p.identity[:0], backend...), 0), composite...), 0)
	for _, v := range nodes {
		p.identity = binary.BigEndian.AppendUint32(p.identity, uint32(v))
	}
	return p.identity
}

// regionRank is what a region weighs against kernels of TVM's: at equal cost no number of them is worth one.
const regionRank = 1 << 16

func (p *proposer) rank(b int, free bool) int {
	switch {
	case free:
		return 0
	case p.backends[b].TakesAnything():
		return 1
	default:
		return regionRank + b
	}
}

func (p *proposer) refuse(r Refusal) {
	if !p.refused[r] {
		p.refused[r] = true
		p.refusals = append(p.refusals, r)
	}
}

// sort brings the candidates into the order that Set promises.
func (p *proposer) sort() {
	slices.SortStableFunc(p.found, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(p.order[a.Backend], p.order[b.Backend]),
			cmp.Compare(len(b.Nodes), len(a.Nodes)), slices.Compare(a.Nodes, b.Nodes),
			cmp.Compare(a.Composite, b.Composite))
	})
}

// finish fills in what follows from the nodes: inputs, constants and keys.
func (p *proposer) finish() {
	keys := map[string]string{} // by nodes: mirrors have the key of what they mirror
	for i := range p.found {
		c := &p.found[i]
		c.Inputs, c.Constants = p.g.Boundary(c.Nodes)
		if c.Free {
			continue
		}
		identity := p.identify("", "", c.Nodes)
		key, ok := keys[string(identity)]
		if !ok {
			key = p.g.KeyOfSeveral(c.Nodes, c.Results(), relay.KeyOptions{})
			keys[string(identity)] = key
		}
		c.Key = key
	}
}
