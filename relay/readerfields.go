// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// fields reads what kind an expression is, what it says about itself, and what it refers to.
func (r *reader) fields(p *pending) (err error) {
	o, n := p.object, &p.node
	switch r.key(o) {
	case "relay.Call":
		return r.call(p)
	case "relay.Constant":
		n.Kind = KindConstant
		n.Constant, err = readConstant(o)
		if err == nil {
			n.Type = r.tensorType(n.Constant.DType, n.Constant.Shape)
			n.Span, err = r.span(o)
		}
		return err
	case "relay.Var":
		n.Kind = KindVar
		id, err := o.AttrObject("vid")
		if err != nil {
			return err
		}
		defer id.Release()
		if n.Name, err = id.AttrString("name_hint"); err != nil {
			return err
		}
		if err = r.typeAndSpan(p); err == nil && n.Type == nil {
			n.Type, err = r.typeField(o, "type_annotation")
		}
		return err
	case "relay.Tuple":
		n.Kind = KindTuple
		p.children, err = objects(o, "fields")
	case "relay.TupleGetItem":
		n.Kind = KindTupleGetItem
		index, err := o.AttrInt("index")
		if err != nil {
			return err
		}
		n.Index = int(index)
		err = p.child("tuple_value")
		if err != nil {
			return err
		}
	case "relay.Function":
		n.Kind = KindFunction
		if n.FuncAttrs, err = r.functionAttrs(o); err != nil {
			return err
		}
		if p.children, err = objects(o, "params"); err != nil {
			return err
		}
		p.binds, p.nested = len(p.children), 1
		err = p.child("body")
	case "relay.Let":
		n.Kind = KindLet
		p.binds, p.nested = 1, 2
		err = p.child("var", "value", "body")
	case "relay.If":
		n.Kind = KindIf
		p.nested = 2
		err = p.child("cond", "true_branch", "false_branch")
	case "relay.RefCreate":
		n.Kind = KindRefCreate
		err = p.child("value")
	case "relay.RefRead":
		n.Kind = KindRefRead
		err = p.child("ref")
	case "relay.RefWrite":
		n.Kind = KindRefWrite
		err = p.child("ref", "value")
	case "GlobalVar", "relay.GlobalVar":
		n.Kind = KindGlobalVar
		n.Name, err = o.AttrString("name_hint")
	case "relay.Match":
		err = r.match(p)
	case "Op":
		n.Kind = KindOpaque
		n.Name, err = r.opName(o)
		return err // an operator as a value; its type is polymorphic
	case "relay.Constructor":
		n.Kind = KindOpaque
		n.Name, err = o.AttrString("name_hint")
		return err
	default:
		n.Kind, n.Name = KindOpaque, r.key(o)
	}
	if err != nil {
		return err
	}
	return r.typeAndSpan(p)
}

// child appends fields that are expressions to the children.
func (p *pending) child(names ...string) error {
	for _, name := range names {
		c, err := p.object.AttrObject(name)
		if err != nil {
			return err
		}
		p.children = append(p.children, c)
	}
	return nil
}

func (r *reader) call(p *pending) error {
	n := &p.node
	n.Kind = KindCall
	op, err := p.object.AttrObject("op")
	if err != nil {
		return err
	}
	args, err := objects(p.object, "args")
	if err != nil {
		return err
	}
	if r.key(op) == "Op" {
		n.Op, err = r.opName(op)
		op.Release()
		if err != nil {
			return err
		}
		p.children = args
	} else {
		p.callee = true
		p.children = append([]*bridge.Object{op}, args...)
	}
	if n.Attrs, err = r.attrs(p.object); err != nil {
		return err
	}
	return r.typeAndSpan(p)
}

func (r *reader) typeAndSpan(p *pending) (err error) {
	if r.untyped {
		return nil
	}
	if p.node.Type, err = r.typeField(p.object, "_checked_type_"); err != nil {
		return err
	}
	p.node.Span, err = r.span(p.object)
	return err
}

// match reads a Match as an opaque node: the data is its input, each clause is a scope, and the patterns are
// kept as text, so that a structural key sees them.
func (r *reader) match(p *pending) error {
	p.node.Kind, p.node.Name = KindOpaque, "match"
	clauses, err := objects(p.object, "clauses")
	if err != nil {
		return err
	}
	var vars, bodies []*bridge.Object
	var texts []any
	for _, c := range clauses {
		defer c.Release()
		pattern, err := c.AttrObject("lhs")
		if err != nil {
			return err
		}
		defer pattern.Release()
		var text strings.Builder
		if vars, err = patternVars(pattern, vars, &text); err != nil {
			return err
		}
		texts = append(texts, text.String())
		body, err := c.AttrObject("rhs")
		if err != nil {
			return err
		}
		bodies = append(bodies, body)
	}
	complete, err := p.object.AttrInt("complete")
	if err != nil {
		return err
	}
	p.node.Attrs = NewAttrs("relay.Match", map[string]any{"patterns": texts, "complete": complete})
	p.children = vars
	p.binds, p.nested = len(vars), len(bodies)
	if err := p.child("data"); err != nil {
		return err
	}
	p.children = append(p.children, bodies...)
	return nil
}

// patternVars appends the variables that a Match pattern binds, and writes its text ("Cons(v, _)").
func patternVars(pattern *bridge.Object, vars []*bridge.Object, text *strings.Builder) ([]*bridge.Object, error) {
	switch pattern.TypeKey() {
	case "relay.PatternVar":
		v, err := pattern.AttrObject("var")
		if err != nil {
			return nil, err
		}
		text.WriteByte('v')
		return append(vars, v), nil
	case "relay.PatternConstructor":
		c, err := pattern.AttrObject("constructor")
		if err != nil {
			return nil, err
		}
		defer c.Release()
		name, err := c.AttrString("name_hint")
		if err != nil {
			return nil, err
		}
		text.WriteString(name)
	case "relay.PatternTuple":
	default: // a wildcard
		text.WriteByte('_')
		return vars, nil
	}
	inner, err := objects(pattern, "patterns")
	if err != nil {
		return nil, err
	}
	text.WriteByte('(')
	for i, q := range inner {
		defer q.Release()
		if i > 0 {
			text.WriteString(", ")
		}
		if vars, err = patternVars(q, vars, text); err != nil {
			return nil, err
		}
	}
	text.WriteByte(')')
	return vars, nil
}

func readConstant(o *bridge.Object) (*Constant, error) {
	v, err := o.Attr("data")
	if err != nil {
		return nil, err
	}
	data, err := v.NDArray()
	if err != nil {
		return nil, err
	}
	defer data.Release()
	c := &Constant{DType: data.DType().String(), Shape: data.Shape(), Bytes: data.Size(), Scalar: math.NaN()}
	if c.Bytes > SmallConstant {
		return c, nil
	}
	content, err := data.Bytes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	c.Digest = hex.EncodeToString(sum[:])
	if Elements(c.Shape) == 1 {
		c.Scalar = scalarOf(c.DType, content)
	}
	return c, nil
}

// objects reads a field that is an array of objects. The caller owns them.
func objects(o *bridge.Object, field string) ([]*bridge.Object, error) {
	list, err := o.AttrObject(field)
	if err != nil || list == nil {
		return nil, err
	}
	defer list.Release()
	return list.Objects()
}
