// Package candidate proposes what could run where: for each scope of a graph and each backend, the groups
// of operators that the backend could run as one.
//
// What comes in: a relay.Graph and the backends. What goes out: a Set of Candidates, each legal (one exit, no
// interior value that escapes, connected, within one scope) and each with a structural key under which its
// cost can be stored.
package candidate

import "github.com/collage-tvm/collage/relay"

// Candidate is a group of nodes that one backend can run as one (Collage paper: a pattern match; TVM's
// prototype: CandidatePartition).
type Candidate struct {
	// Backend is the backend's name.
	Backend string
	// Composite is the pattern's name; "" for TVM's candidates.
	Composite string
	// Bare: see byoc.Pattern.Bare.
	Bare bool
	// Scope is the scope that all Nodes belong to.
	Scope relay.ScopeID
	// Nodes are the covered nodes, ascending; constants and variables are never among them.
	Nodes []relay.NodeID
	// Root is the only node whose value is used outside; the greatest of Nodes.
	Root relay.NodeID
	// Inputs are the values that come from outside, in the order of first use; constants are not among them.
	Inputs []relay.NodeID
	// Constants are the constants that are bound inside, in the order of first use.
	Constants []relay.NodeID
	// Key is the structural key of the computation, the same for the same computation on any backend.
	Key string
}
