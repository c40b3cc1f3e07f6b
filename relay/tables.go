// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// tables hold what the expressions of a module share, so that it is read once and kept once: types and
// attributes (by address while TVM holds them, then by content), operator names, attribute names, sources.
// Addresses are good keys because the module that is being read holds all these objects.
type tables struct {
	keys      map[uint32]string // type index -> type key
	ops       map[uintptr]string
	types     map[uintptr]*Type
	typeTexts map[string]*Type
	attrsAt   map[uintptr]*Attrs
	attrTexts map[string]*Attrs
	names     map[uint32][]string // attribute structure's type index -> field names
	sources   map[uintptr]string
}

func newTables() *tables {
	return &tables{
		keys: map[uint32]string{}, ops: map[uintptr]string{}, types: map[uintptr]*Type{},
		typeTexts: map[string]*Type{}, attrsAt: map[uintptr]*Attrs{}, attrTexts: map[string]*Attrs{},
		names: map[uint32][]string{}, sources: map[uintptr]string{},
	}
}

// key is the object's type key.
func (t *tables) key(o *bridge.Object) string {
	key, ok := t.keys[o.TypeIndex()]
	if !ok {
		key = o.TypeKey()
		t.keys[o.TypeIndex()] = key
	}
	return key
}

func (t *tables) opName(op *bridge.Object) (string, error) {
	name, ok := t.ops[op.Pointer()]
	if ok {
		return name, nil
	}
	name, err := op.AttrString("name")
	if err == nil {
		t.ops[op.Pointer()] = name
	}
	return name, err
}

// typeField reads a field that is a type; nil where it is null.
func (t *tables) typeField(o *bridge.Object, field string) (*Type, error) {
	object, err := o.AttrObject(field)
	if err != nil || object == nil {
		return nil, err
	}
	defer object.Release()
	return t.readType(object)
}

func (t *tables) readType(o *bridge.Object) (*Type, error) {
	if known, ok := t.types[o.Pointer()]; ok {
		return known, nil
	}
	read, err := t.readNewType(o)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", o.TypeKey(), err)
	}
	read = t.intern(read)
	t.types[o.Pointer()] = read
	return read, nil
}

func (t *tables) intern(read *Type) *Type {
	text := read.String()
	if same, ok := t.typeTexts[text]; ok && same.Kind == read.Kind {
		return same
	}
	t.typeTexts[text] = read
	return read
}

func (t *tables) tensorType(dtype string, shape []int64) *Type {
	return t.intern(&Type{Kind: TypeTensor, DType: dtype, Shape: shape})
}

func (t *tables) readNewType(o *bridge.Object) (*Type, error) {
	switch t.key(o) {
	case "relay.TensorType":
		v, err := o.Attr("dtype")
		if err != nil {
			return nil, err
		}
		dtype, err := v.DataType()
		if err != nil {
			return nil, err
		}
		list, err := o.AttrObject("shape")
		if err != nil {
			return nil, err
		}
		defer list.Release()
		shape, _, err := list.Ints(AnyDim)
		return &Type{Kind: TypeTensor, DType: dtype.String(), Shape: shape}, err
	case "TupleType", "relay.TupleType":
		fields, err := t.readTypes(o, "fields")
		return &Type{Kind: TypeTuple, Fields: fields}, err
	case "FuncType", "relay.FuncType":
		fields, err := t.readTypes(o, "arg_types")
		if err != nil {
			return nil, err
		}
		result, err := t.typeField(o, "ret_type")
		return &Type{Kind: TypeFunction, Fields: append(fields, result)}, err
	}
	text, err := t.otherType(o)
	return &Type{Kind: TypeOther, Text: text}, err
}

// otherType writes a type that is not made of tensors as Relay's text does: "List[Tensor[(4), float32]]",
// "ref(float32)".
func (t *tables) otherType(o *bridge.Object) (string, error) {
	switch t.key(o) {
	case "GlobalTypeVar", "relay.GlobalTypeVar", "TypeVar", "relay.TypeVar":
		return o.AttrString("name_hint")
	case "TypeCall", "relay.TypeCall":
		generic, err := t.typeField(o, "func")
		if err != nil {
			return "", err
		}
		args, err := t.readTypes(o, "args")
		if err != nil {
			return "", err
		}
		texts := make([]string, len(args))
		for i, a := range args {
			texts[i] = a.String()
		}
		return generic.String() + "[" + strings.Join(texts, ", ") + "]", nil
	case "relay.RefType":
		value, err := t.typeField(o, "value")
		return "ref(" + value.String() + ")", err
	}
	return o.Text(), nil
}

func (t *tables) readTypes(o *bridge.Object, field string) ([]*Type, error) {
	list, err := objects(o, field)
	if err != nil {
		return nil, err
	}
	types := make([]*Type, len(list))
	for i, f := range list {
		if types[i], err = t.readType(f); err != nil {
			return nil, err
		}
		f.Release()
	}
	return types, nil
}

// attrs reads a call's attributes; nil where it has none.
func (t *tables) attrs(call *bridge.Object) (*Attrs, error) {
	o, err := call.AttrObject("attrs")
	if err != nil || o == nil {
		return nil, err
	}
	defer o.Release()
	if known, ok := t.attrsAt[o.Pointer()]; ok {
		return known, nil
	}
	a := &Attrs{TypeKey: t.key(o)}
	names, ok := t.names[o.TypeIndex()]
	if !ok {
		if names, err = o.AttrNames(); err != nil {
			return nil, err
		}
		if a.TypeKey != "DictAttrs" { // whose names are content, not structure
			t.names[o.TypeIndex()] = names
		}
	}
	a.Fields = make([]AttrField, len(names))
	for i, name := range names {
		v, err := o.Attr(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.TypeKey, err)
		}
		a.Fields[i].Name = name
		if a.Fields[i].Value, err = t.attrValue(v); err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", name, a.TypeKey, err)
		}
		v.Release()
	}
	a.sort()
	text := a.TypeKey + a.Text()
	if same, ok := t.attrTexts[text]; ok {
		a = same
	} else {
		t.attrTexts[text] = a
	}
	t.attrsAt[o.Pointer()] = a
	return a, nil
}

// attrValue turns an attribute's value into plain data.
func (t *tables) attrValue(v bridge.Value) (any, error) {
	switch v.Kind() {
	case bridge.KindNil:
		return nil, nil
	case bridge.KindInt, bridge.KindBool:
		return v.Int()
	case bridge.KindFloat:
		return v.Float()
	case bridge.KindString:
		return v.Str()
	case bridge.KindDataType:
		d, err := v.DataType()
		if err != nil || d.String() == "void" {
			return "", err // TVM's "not given"
		}
		return d.String(), nil
	case bridge.KindObject:
		o, err := v.Object()
		if err != nil {
			return nil, err
		}
		switch t.key(o) {
		case "IntImm":
			return v.Int()
		case "FloatImm":
			return v.Float()
		case "runtime.String":
			return v.Str()
		case "Array":
			return t.attrList(o)
		case "relay.Call", "relay.Var", "relay.Tuple", "relay.TupleGetItem", "relay.If", "relay.Let", "relay.Function":
			// arange keeps its operands here, too. TVM's text of one has all that it is computed of, as often as that is
			// read on the way: it may be longer than memory.
			return t.key(o), nil
		}
		return o.Text(), nil
	}
	return v.String(), nil
}

func (t *tables) attrList(o *bridge.Object) (any, error) {
	if ints, others, err := o.Ints(0); err == nil && others == 0 {
		return plainList(ints), nil
	}
	items, err := o.Items()
	if err != nil {
		return nil, err
	}
	list := make([]any, len(items))
	for i, x := range items {
		if list[i], err = t.attrValue(x); err != nil {
			return nil, err
		}
		x.Release()
	}
	return list, nil
}

// functionAttrs reads the attributes of a function that are strings or integers; nil where there are none.
func (t *tables) functionAttrs(function *bridge.Object) (map[string]string, error) {
	o, err := function.AttrObject("attrs")
	if err != nil || o == nil {
		return nil, err
	}
	defer o.Release()
	v, err := bridge.Global("ir.DictAttrsGetDict", o)
	if err != nil || v.IsNil() {
		return nil, err
	}
	defer v.Release()
	dict, err := v.Object()
	if err != nil {
		return nil, err
	}
	entries, err := dict.Entries()
	if err != nil {
		return nil, err
	}
	var attrs map[string]string
	for _, e := range entries {
		defer e.Value.Release()
		name, err := e.Key.Str()
		if err != nil {
			return nil, err
		}
		value, err := e.Value.Str()
		if err != nil {
			n, err := e.Value.Int()
			if err != nil {
				continue // a target, a constant pool: no business of ours
			}
			value = strconv.FormatInt(n, 10)
		}
		if attrs == nil {
			attrs = map[string]string{}
		}
		attrs[name] = value
	}
	return attrs, nil
}

// span reads where an expression comes from.
func (t *tables) span(expr *bridge.Object) (Span, error) {
	o, err := expr.AttrObject("span")
	if err != nil || o == nil {
		return Span{}, err
	}
	defer o.Release()
	return t.readSpan(o)
}

func (t *tables) readSpan(o *bridge.Object) (s Span, err error) {
	if t.key(o) == "SequentialSpan" { // what several expressions were merged from: the first stands for all
		spans, err := objects(o, "spans")
		if err != nil || len(spans) == 0 {
			return s, err
		}
		for _, x := range spans {
			defer x.Release()
		}
		return t.readSpan(spans[0])
	}
	source, err := o.AttrObject("source_name")
	if err != nil {
		return s, err
	}
	if source != nil {
		name, ok := t.sources[source.Pointer()]
		if !ok {
			if name, err = source.AttrString("name"); err != nil {
				return s, err
			}
			t.sources[source.Pointer()] = name
		}
		s.Source = name
		source.Release()
	}
	for _, f := range []struct {
		name string
		to   *int
	}{{"line", &s.Line}, {"column", &s.Column}, {"end_line", &s.EndLine}, {"end_column", &s.EndColumn}} {
		n, err := o.AttrInt(f.name)
		if err != nil {
			return s, err
		}
		*f.to = int(n)
	}
	return s, nil
}
