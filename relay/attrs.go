// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NewAttrs makes attributes from plain Go values: nil, bool, all integers and floats, string, and slices of
// these. Booleans become 0 or 1, as TVM gives them back.
func NewAttrs(typeKey string, fields map[string]any) *Attrs {
	a := &Attrs{TypeKey: typeKey}
	for name, v := range fields {
		a.Fields = append(a.Fields, AttrField{Name: name, Value: plainValue(v)})
	}
	a.sort()
	return a
}

func (a *Attrs) sort() {
	slices.SortFunc(a.Fields, func(x, y AttrField) int { return strings.Compare(x.Name, y.Name) })
}

// Get returns the attribute of that name. A nil *Attrs has none.
func (a *Attrs) Get(name string) (value any, ok bool) {
	if a == nil {
		return nil, false
	}
	for i := range a.Fields {
		if a.Fields[i].Name == name {
			return a.Fields[i].Value, true
		}
	}
	return nil, false
}

// Int returns an integer attribute; ok is false where it is absent, null or of another kind.
func (a *Attrs) Int(name string) (value int64, ok bool) {
	v, _ := a.Get(name)
	value, ok = v.(int64)
	return value, ok
}

// Bool returns a truth value (an integer in TVM's eyes).
func (a *Attrs) Bool(name string) (value, ok bool) {
	n, ok := a.Int(name)
	return n != 0, ok
}

// Float returns a floating-point attribute; an integer counts as one.
func (a *Attrs) Float(name string) (value float64, ok bool) {
	v, _ := a.Get(name)
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	}
	return 0, false
}

// String returns a text attribute (layouts, dtypes); TVM's empty dtype is "".
func (a *Attrs) String(name string) (value string, ok bool) {
	v, _ := a.Get(name)
	value, ok = v.(string)
	return value, ok
}

// Ints returns an attribute that is a list of integers; ok is false where an element is something else (an
// unknown dimension).
func (a *Attrs) Ints(name string) (values []int64, ok bool) {
	v, _ := a.Get(name)
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	values = make([]int64, len(list))
	for i, x := range list {
		if values[i], ok = x.(int64); !ok {
			return nil, false
		}
	}
	return values, true
}

// Text writes the attributes as "{groups=32, strides=[1, 1]}", sorted by name: for reports and goldens.
func (a *Attrs) Text() string {
	if a == nil {
		return ""
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range a.Fields {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(f.Name)
		b.WriteByte('=')
		writeValue(&b, f.Value)
	}
	b.WriteByte('}')
	return b.String()
}

// writeValue writes an attribute's value so that different values have different texts: strings are quoted,
// floats have a point or an exponent.
func writeValue(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		b.WriteString(s)
		if !strings.ContainsAny(s, ".eIN") {
			b.WriteString(".0")
		}
	case string:
		b.WriteString(strconv.Quote(v))
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeValue(b, x)
		}
		b.WriteByte(']')
	default:
		panic(fmt.Sprintf("relay: an attribute holds a %T", v))
	}
}

// plainValue turns Go's many number and slice types into the few that Attrs hold.
func plainValue(v any) any {
	switch v := v.(type) {
	case nil, int64, float64, string:
		return v
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case float32:
		return float64(v)
	case []int:
		return plainList(v)
	case []int64:
		return plainList(v)
	case []float64:
		return plainList(v)
	case []string:
		return plainList(v)
	case []any:
		return plainList(v)
	}
	panic(fmt.Sprintf("relay: an attribute cannot hold a %T", v))
}

func plainList[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = plainValue(x)
	}
	return out
}

// equalValue compares two plain values.
func equalValue(a, b any) bool {
	x, isList := a.([]any)
	y, isList2 := b.([]any)
	if isList || isList2 {
		return isList && isList2 && slices.EqualFunc(x, y, equalValue)
	}
	if f, ok := a.(float64); ok {
		if n, ok := b.(int64); ok {
			return f == float64(n)
		}
	}
	if n, ok := a.(int64); ok {
		if f, ok := b.(float64); ok {
			return f == float64(n)
		}
	}
	return a == b
}
