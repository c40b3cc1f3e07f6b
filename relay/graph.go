// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/bridge"
)

// NodeID names a node of one Graph: its index in Graph.Nodes, which is also its place in post-order
// (every node stands behind all the nodes it reads).
type NodeID int32

// NoNode is the absent node.
const NoNode NodeID = -1

// Kind says which of Relay's expression forms a node is.
type Kind uint8

// The expression forms of Relay. KindOpaque is any form that Collage has no own name for (Match,
// constructors of algebraic data types): it is kept as it is and never enters a candidate of a backend
// other than TVM.
const (
	KindVar Kind = iota
	KindConstant
	KindGlobalVar
	KindCall
	KindTuple
	KindTupleGetItem
	KindFunction
	KindLet
	KindIf
	KindRefCreate
	KindRefRead
	KindRefWrite
	KindOpaque
)

// Node is one Relay expression, copied out of TVM.
type Node struct {
	Kind Kind
	// Op is the name of the primitive operator ("nn.conv2d") of a call whose callee is one; else "".
	Op string
	// Callee is the callee of a call that calls something else than an operator (a function literal, a
	// global, a closure); else NoNode.
	Callee NodeID
	// Inputs are the values that the node reads, in order: a call's arguments, a tuple's fields, the tuple
	// of a TupleGetItem, the condition of an If, the operands of Ref forms. What the node's own nested
	// scopes read of the outside (captures) is not here; Graph.Reads has both.
	Inputs []NodeID
	// Index is the field that a TupleGetItem takes.
	Index int
	// Name is a Var's name hint or a GlobalVar's name.
	Name string
	// Attrs are a call's attributes; nil where there are none.
	Attrs *Attrs
	// FuncAttrs are a function literal's attributes that are strings or integers (Compiler, Composite,
	// Primitive, ...); nil where there are none.
	FuncAttrs map[string]string
	// Type is the checked type; nil before InferType.
	Type *Type
	// Span is where the front end says that the expression comes from; zero where it says nothing.
	Span Span
	// Scope is the innermost scope that holds every use of the node.
	Scope ScopeID
	// Nested are the scopes that the node opens: a function's body; an If's two branches; a Let's value and
	// its body.
	Nested []ScopeID
	// Binds are the variables that the node brings into its nested scopes: a function's parameters, a Let's
	// variable, the variables of a Match's patterns.
	Binds []NodeID
	// Constant describes a KindConstant's tensor; nil for other kinds.
	Constant *Constant
}

// ScopeID names a scope of one Graph. Scope 0 is the body of the global function.
type ScopeID int32

// NoScope is the absent scope (the parent of scope 0).
const NoScope ScopeID = -1

// Scope is a body of expressions that is evaluated as one: the body of a function, a branch of an If, the
// value or the body of a Let. Placement works on one scope at a time.
type Scope struct {
	// Owner is the node that opens the scope; NoNode for scope 0.
	Owner  NodeID
	Parent ScopeID
	// Root is the node whose value is the scope's value. It may belong to an outer scope.
	Root NodeID
}

// Graph is one global function, read once. It does not change after it has been read;
// what is derived from it is computed once and kept. All methods are safe for concurrent use, except that
// those which call TVM (Digest of a large constant) obey bridge's rules.
type Graph struct {
	// Name is the global function's name ("main").
	Name string
	// Attrs are the function's attributes that are strings or integers.
	Attrs  map[string]string
	Params []NodeID
	Nodes  []Node
	Scopes []Scope

	consumers [][]NodeID
	reads     [][]NodeID
	placeable []bool
	derived   derived
	handles   []*bridge.Object // TVM's expressions, by NodeID; nil for graphs made in Go (tests)
	function  *bridge.Object   // the relay.Function; nil for graphs made in Go
}

// derived is what is computed from a graph the first time it is asked for.
type derived struct {
	postDominators sync.Once
	tree           *PostDominatorTree

	keyLines sync.Once
	lines    []string // by NodeID, see key.go

	digestMu sync.Mutex
	digests  map[NodeID]string
}

// Constant describes a constant tensor without its data.
type Constant struct {
	DType string
	Shape []int64
	// Bytes is the size of the data.
	Bytes int64
	// Digest is the SHA-256 of the data in hexadecimal for constants of at most SmallConstant bytes, read at
	// once; larger ones have "" here until Graph.Digest asks for it.
	Digest string
	// Scalar is the value where the tensor has exactly one element and a numeric type (NaN else).
	Scalar float64
}

// SmallConstant is the size in bytes up to which a constant counts as a parameter of the computation (an
// epsilon, a clip bound, gather indices) whose content belongs to a structural key; above it, it is a
// weight, of which only dtype and shape matter for speed.
const SmallConstant = 4096

// Span is a place in the source that a front end read.
type Span struct {
	Source    string
	Line      int
	Column    int
	EndLine   int
	EndColumn int
}

// String is "source:line:column", as far as there is something to say.
func (s Span) String() string {
	if s.Line == 0 && s.Column == 0 {
		return s.Source
	}
	return fmt.Sprintf("%s:%d:%d", s.Source, s.Line, s.Column)
}
