// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"math/bits"
	"unsafe"

	"github.com/collage-tvm/collage/relay"
)

// NodeSet is a set of nodes of one graph as a bit vector (TVM's prototype: IndexSet). Sets that are compared or
// combined must have been made for the same number of nodes.
type NodeSet []uint64

// NewNodeSet makes an empty set for a graph of n nodes.
func NewNodeSet(n int) NodeSet { return make(NodeSet, (n+63)/64) }

// Has says that v is in the set.
func (s NodeSet) Has(v relay.NodeID) bool { return s[v>>6]&(1<<(v&63)) != 0 }

// Add puts v into the set.
func (s NodeSet) Add(v relay.NodeID) { s[v>>6] |= 1 << (v & 63) }

// Or is a new set of what is in s or in t.
func (s NodeSet) Or(t NodeSet) NodeSet {
	u := make(NodeSet, len(s))
	for i := range s {
		u[i] = s[i] | t[i]
	}
	return u
}

// Intersects says that the sets share a node.
func (s NodeSet) Intersects(t NodeSet) bool {
	for i := range s {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// SubsetOf says that all of s is in t.
func (s NodeSet) SubsetOf(t NodeSet) bool {
	for i := range s {
		if s[i]&^t[i] != 0 {
			return false
		}
	}
	return true
}

// Less orders sets: the one that holds the first node in which they differ comes first.
func (s NodeSet) Less(t NodeSet) bool {
	for i := range s {
		if d := s[i] ^ t[i]; d != 0 {
			return s[i]&(d&-d) != 0
		}
	}
	return false
}

// Len counts the nodes.
func (s NodeSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// First is the least node; NoNode for an empty set.
func (s NodeSet) First() relay.NodeID {
	for i, w := range s {
		if w != 0 {
			return relay.NodeID(i<<6 + bits.TrailingZeros64(w))
		}
	}
	return relay.NoNode
}

// Last is the greatest node; NoNode for an empty set.
func (s NodeSet) Last() relay.NodeID {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return relay.NodeID(i<<6 + 63 - bits.LeadingZeros64(s[i]))
		}
	}
	return relay.NoNode
}

// Nodes lists the set, ascending.
func (s NodeSet) Nodes() []relay.NodeID {
	nodes := make([]relay.NodeID, 0, s.Len())
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			nodes = append(nodes, relay.NodeID(i<<6+bits.TrailingZeros64(w)))
		}
	}
	return nodes
}

// key is the set as a map key.
func (s NodeSet) key() string {
	if len(s) == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 8*len(s)))
}
