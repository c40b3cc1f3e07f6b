// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strconv"
	"strings"
)

// String writes the type as Relay's text does: "Tensor[(1, 64, 56, 56), float32]", "float32" for a scalar,
// "(A, B)" for a tuple, "fn (A) -> B", "?" for an unknown dimension; "" for no type.
func (t *Type) String() string {
	if t == nil {
		return ""
	}
	var b strings.Builder
	t.write(&b)
	return b.String()
}

func (t *Type) write(b *strings.Builder) {
	if t == nil { // a field without a type
		b.WriteByte('_')
		return
	}
	switch t.Kind {
	case TypeTensor:
		if len(t.Shape) == 0 {
			b.WriteString(t.DType)
			return
		}
		b.WriteString("Tensor[(")
		for i, d := range t.Shape {
			if i > 0 {
				b.WriteString(", ")
			}
			if d == AnyDim {
				b.WriteByte('?')
			} else {
				b.WriteString(strconv.FormatInt(d, 10))
			}
		}
		b.WriteString("), ")
		b.WriteString(t.DType)
		b.WriteByte(']')
	case TypeTuple:
		writeTypes(b, t.Fields, ",")
	case TypeFunction:
		b.WriteString("fn ")
		if len(t.Fields) == 0 {
			b.WriteString("()")
			return
		}
		writeTypes(b, t.Fields[:len(t.Fields)-1], "")
		b.WriteString(" -> ")
		t.Fields[len(t.Fields)-1].write(b)
	default:
		b.WriteString(t.Text)
	}
}

// writeTypes writes a list in brackets; single stands behind the element of a list of one (Relay's tuples).
func writeTypes(b *strings.Builder, types []*Type, single string) {
	b.WriteByte('(')
	for i, f := range types {
		if i > 0 {
			b.WriteString(", ")
		}
		f.write(b)
	}
	if len(types) == 1 {
		b.WriteString(single)
	}
	b.WriteByte(')')
}

// ShapeText is a shape as messages show it: "[1, 3, ?]", with a question mark for AnyDim.
func ShapeText(shape []int64) string {
	return listText(shape, func(d int64) string {
		if d == AnyDim {
			return "?"
		}
		return strconv.FormatInt(d, 10)
	})
}

// IntsText is a list of numbers that are no dimensions (strides, padding) as messages show it: "[1, -1]".
func IntsText(list []int64) string {
	return listText(list, func(n int64) string { return strconv.FormatInt(n, 10) })
}

func listText(list []int64, text func(int64) string) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = text(n)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// NumElements returns how many elements a value of the type has (a tuple: all its fields together). ok is
// false where the type is unknown, has an unknown dimension, or is not made of tensors.
func (t *Type) NumElements() (n int64, ok bool) {
	return t.sum(func(t *Type) (int64, bool) { return 1, true })
}

// NumBytes returns how many bytes a value of the type takes, under the same conditions as NumElements.
func (t *Type) NumBytes() (n int64, ok bool) {
	return t.sum(func(t *Type) (int64, bool) {
		bits := DTypeBits(t.DType)
		return (bits + 7) / 8, bits > 0
	})
}

func (t *Type) sum(element func(*Type) (int64, bool)) (int64, bool) {
	if t == nil {
		return 0, false
	}
	switch t.Kind {
	case TypeTensor:
		n, ok := element(t)
		for _, d := range t.Shape {
			if d == AnyDim {
				return 0, false
			}
			n *= d
		}
		return n, ok
	case TypeTuple:
		var total int64
		for _, f := range t.Fields {
			n, ok := f.sum(element)
			if !ok {
				return 0, false
			}
			total += n
		}
		return total, true
	}
	return 0, false
}

// IsTensor says that the type is a tensor of the given dtype ("" for any) whose shape is wholly known.
func (t *Type) IsTensor(dtype string) bool {
	if t == nil || t.Kind != TypeTensor || dtype != "" && t.DType != dtype {
		return false
	}
	for _, d := range t.Shape {
		if d == AnyDim {
			return false
		}
	}
	return true
}

// Rank returns the number of dimensions of a tensor; -1 for what is not a tensor.
func (t *Type) Rank() int {
	if t == nil || t.Kind != TypeTensor {
		return -1
	}
	return len(t.Shape)
}

// Equal says that both types are the same, dimension by dimension (an unknown one equals an unknown one).
func (t *Type) Equal(u *Type) bool {
	if t == u {
		return true
	}
	return t != nil && u != nil && t.String() == u.String()
}

// Tensor returns the type of a tensor; a scalar's shape is nil.
func Tensor(dtype string, shape ...int64) *Type {
	return &Type{Kind: TypeTensor, DType: dtype, Shape: shape}
}

// TupleOf returns the type of a tuple.
func TupleOf(fields ...*Type) *Type { return &Type{Kind: TypeTuple, Fields: fields} }

// FunctionOf returns the type of a function: its parameters and its result.
func FunctionOf(params []*Type, result *Type) *Type {
	return &Type{Kind: TypeFunction, Fields: append(append([]*Type{}, params...), result)}
}

// DTypeBits returns the size in bits of one element of a dtype ("float32" 32, "int4" 4, "bool" 8,
// "float32x4" 128); 0 for a text that is no dtype.
func DTypeBits(dtype string) int64 {
	base, lanes, vector := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dtype, "custom"), "e"), "x")
	if base == "bool" {
		return 8
	}
	digits := strings.TrimLeft(base, "abcdefghijklmnopqrstuvwxyz")
	if i := strings.IndexByte(digits, '_'); i >= 0 { // e4m3_float8
		return DTypeBits(digits[i+1:])
	}
	bits, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	if vector {
		n, err := strconv.ParseInt(lanes, 10, 64)
		if err != nil {
			return 0
		}
		bits *= n
	}
	return bits
}
