// SPDX-License-Identifier: Apache-2.0

package relay

// TypeKind says which form of Relay type a Type is.
type TypeKind uint8

// The forms of types. TypeOther is anything else (references, algebraic data types, incomplete types).
const (
	TypeTensor TypeKind = iota
	TypeTuple
	TypeFunction
	TypeOther
)

// AnyDim is a dimension that is not known before the program runs (Relay's Any).
const AnyDim int64 = -1

// Type is a Relay type as plain data. Types are shared between nodes and never changed.
type Type struct {
	Kind TypeKind
	// DType ("float32") and Shape (AnyDim for Any or a symbolic dimension) describe a TypeTensor.
	DType string
	Shape []int64
	// Fields are a tuple's fields, or a function's parameters followed by its result.
	Fields []*Type
	// Text is Relay's own text for a TypeOther.
	Text string
}

// Attrs are the attributes of an operator call, as plain data.
type Attrs struct {
	// TypeKey is TVM's name of the attribute structure ("relay.attrs.Conv2DAttrs").
	TypeKey string
	// Fields are sorted by name.
	Fields []AttrField
}

// AttrField is one attribute. Value is nil, int64, float64, string, or []any of these (nested); an
// attribute of another kind (an expression, a type) has its Relay text as a string.
type AttrField struct {
	Name  string
	Value any
}
