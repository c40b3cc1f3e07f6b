// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
)

// The functions of this file make Relay expressions. All arguments stay the caller's; the result is the
// caller's. Expressions are immutable and may be used in many others.

// object calls a packed function that returns an object.
func object(name string, args ...any) (*bridge.Object, error) {
	v, err := bridge.Global(name, args...)
	if err != nil {
		return nil, err
	}
	return v.Object()
}

// NewType makes TVM's type; nil gives nil. TypeOther cannot be made.
func NewType(t *Type) (*bridge.Object, error) {
	if t == nil {
		return nil, nil
	}
	switch t.Kind {
	case TypeTensor:
		shape := make([]any, len(t.Shape))
		for i, d := range t.Shape {
			var err error
			if d == AnyDim {
				shape[i], err = object("relay.ir.Any")
			} else {
				shape[i], err = newDim(d)
			}
			if err != nil {
				return nil, err
			}
			defer shape[i].(*bridge.Object).Release()
		}
		dtype, err := bridge.ParseDataType(t.DType)
		if err != nil {
			return nil, err
		}
		return object("ir.TensorType", shape, dtype)
	case TypeTuple:
		fields, err := newTypes(t.Fields)
		if err != nil {
			return nil, err
		}
		defer releaseAll(fields)
		return object("ir.TupleType", fields)
	case TypeFunction:
		fields, err := newTypes(t.Fields)
		if err != nil {
			return nil, err
		}
		defer releaseAll(fields)
		last := len(fields) - 1
		return object("ir.FuncType", fields[:last], fields[last], []any{}, []any{})
	}
	return nil, fmt.Errorf("TypeError: type %s cannot be made", t)
}

func newDim(d int64) (*bridge.Object, error) {
	dtype := "int32" // what front ends and the parser use for dimensions
	if d > 1<<31-1 {
		dtype = "int64"
	}
	return newInt(dtype, d)
}

func newInt(dtype string, n int64) (*bridge.Object, error) {
	t, err := bridge.ParseDataType(dtype)
	if err != nil {
		return nil, err
	}
	return object("ir.IntImm", t, n, nil)
}

func newTypes(types []*Type) ([]any, error) {
	made := make([]any, len(types))
	for i, f := range types {
		o, err := NewType(f)
		if err != nil {
			return nil, err
		}
		made[i] = o
	}
	return made, nil
}

func releaseAll(objects []any) {
	for _, o := range objects {
		o.(*bridge.Object).Release()
	}
}

// NewVar makes a variable with a type annotation; t may be nil.
func NewVar(name string, t *Type) (*bridge.Object, error) {
	annotation, err := NewType(t)
	if err != nil {
		return nil, fmt.Errorf("variable %s: %w", name, err)
	}
	defer annotation.Release()
	return NewVarOfType(name, annotation)
}

// NewVarOfType is NewVar with a type of TVM's (CheckedType gives one); it may be nil.
func NewVarOfType(name string, annotation *bridge.Object) (*bridge.Object, error) {
	return object("relay.ir.Var", name, orNil(annotation), nil)
}

// CheckedType returns TVM's type of an expression that has been through InferType, as a function's border can have it;
// nil if it has none. Of some operators (nn.upsampling, nn.depth_to_space) TVM makes expressions of open dimensions,
// with which it cannot build a function: these are open dimensions here. The caller owns the type.
func CheckedType(expr *bridge.Object) (*bridge.Object, error) {
	t, err := expr.AttrObject("_checked_type_")
	if err != nil || t == nil {
		return t, err
	}
	plain, err := plainType(t)
	if err != nil || plain != nil {
		t.Release()
		return plain, err
	}
	return t, nil
}

// plainType is a type with open dimensions in the place of expressions of them; nil where it has none of these.
func plainType(t *bridge.Object) (*bridge.Object, error) {
	tensor, list := t.TypeKey() == "relay.TensorType", "fields"
	if tensor {
		list = "shape"
	} else if t.TypeKey() != "TupleType" {
		return nil, nil
	}
	parts, err := objects(t, list)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, part := range parts {
			part.Release()
		}
	}()
	changed := false
	for i, part := range parts {
		var plain *bridge.Object
		switch key := part.TypeKey(); {
		case !tensor:
			plain, err = plainType(part)
		case key != "IntImm" && key != "tir.Any" && key != "tir.Var" && key != "tir.SizeVar":
			plain, err = object("relay.ir.Any")
		}
		if err != nil {
			return nil, err
		}
		if plain != nil {
			part.Release()
			parts[i], changed = plain, true
		}
	}
	if !changed {
		return nil, nil
	}
	if !tensor {
		return object("ir.TupleType", parts)
	}
	dtype, err := t.Attr("dtype")
	if err != nil {
		return nil, err
	}
	return object("ir.TensorType", parts, dtype)
}

// NewCall makes a call of a function, an operator (Operator) or a global variable.
func NewCall(callee *bridge.Object, args []*bridge.Object, attrs *bridge.Object) (*bridge.Object, error) {
	return object("relay.ir.Call", callee, args, orNil(attrs), []any{}, nil)
}

// Operator returns the primitive operator of that name.
func Operator(name string) (*bridge.Object, error) { return object("ir.GetOp", name) }

// NewTuple makes a tuple.
func NewTuple(fields []*bridge.Object) (*bridge.Object, error) {
	return object("relay.ir.Tuple", fields, nil)
}

// NewTupleGetItem takes field i of a tuple.
func NewTupleGetItem(tuple *bridge.Object, i int) (*bridge.Object, error) {
	return object("relay.ir.TupleGetItem", tuple, i, nil)
}

// NewConstant makes a constant of a tensor, which it shares.
func NewConstant(data *bridge.NDArray) (*bridge.Object, error) {
	return object("relay.ir.Constant", data, nil)
}

// NewFunction makes a function literal or the definition of a global function. attrs may be nil; their values
// are strings and integers (which TVM keeps as int32, as Python does), or objects.
func NewFunction(params []*bridge.Object, body *bridge.Object, attrs map[string]any) (*bridge.Object, error) {
	return NewTypedFunction(params, body, nil, attrs)
}

// NewTypedFunction is NewFunction with a declared result type of TVM's, which may be nil.
func NewTypedFunction(params []*bridge.Object, body, result *bridge.Object, attrs map[string]any) (*bridge.Object,
	error) {
	dict, err := NewDictAttrs(attrs) // TVM 0.19 refuses null
	if err != nil {
		return nil, err
	}
	defer dict.Release()
	return object("relay.ir.Function", params, body, orNil(result), []any{}, dict, nil)
}

// NewDictAttrs makes the attributes of a function or a module.
func NewDictAttrs(attrs map[string]any) (*bridge.Object, error) {
	names := make([]string, 0, len(attrs))
	for name := range attrs {
		names = append(names, name)
	}
	slices.Sort(names)
	args := []any{"DictAttrs"}
	for _, name := range names {
		value, err := attrObject(attrs[name])
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		if made, ok := value.(*bridge.Object); ok && value != attrs[name] {
			defer made.Release()
		}
		args = append(args, name, value)
	}
	return object("node.MakeNode", args...)
}

func attrObject(v any) (any, error) {
	switch v := v.(type) {
	case int:
		return newInt("int32", int64(v))
	case int64:
		return newInt("int32", v)
	case bool:
		if v {
			return newInt("int32", 1)
		}
		return newInt("int32", 0)
	}
	return v, nil
}

// WithAttr returns the function with one attribute set.
func WithAttr(function *bridge.Object, name string, value any) (*bridge.Object, error) {
	o, err := attrObject(value)
	if err != nil {
		return nil, err
	}
	if made, ok := o.(*bridge.Object); ok && o != value {
		defer made.Release()
	}
	return object("ir.BaseFuncWithAttr", function, name, o)
}

// orNil keeps a nil *Object from becoming a non-nil argument.
func orNil(o *bridge.Object) any {
	if o == nil {
		return nil
	}
	return o
}
