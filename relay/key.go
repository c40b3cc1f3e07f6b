// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// KeyOptions say what a structural key depends on.
type KeyOptions struct {
	// ConstantContent makes the key depend on the content of all constants. Without it weights (see
	// Constant.IsWeight) count by dtype and shape only.
	ConstantContent bool
}

// IsWeight says that only dtype and shape of the constant matter for how fast a computation is: everything
// larger than SmallConstant, and floating-point tensors of more than 16 elements (a bias, a scale). The
// others (an epsilon, a clip bound, indices, pads) are parameters of the computation.
func (c *Constant) IsWeight() bool {
	if c.Bytes > SmallConstant {
		return true
	}
	return Elements(c.Shape) > 16 && (strings.HasPrefix(c.DType, "float") || strings.HasPrefix(c.DType, "bfloat"))
}

// keyVersion is part of every key; it changes when what a key is made of changes.
const keyVersion = "collage-relay-key 1"

// Key returns the structural key of the computation that nodes (in any order) with exit root make: the SHA-256 of
// a canonical text, in hexadecimal. It is equal for equal computations, in whatever module, run or machine:
// operators, attributes, types, how values are shared, inputs by type, constants by content or by dtype and
// shape (KeyOptions). It does not depend on names, spans, node numbers or handles. Called function literals
// count by their content, called globals by name.
//
// Nodes from which root does not depend do not count. With ConstantContent, a constant whose data cannot be
// read gets a key that equals no other.
func (g *Graph) Key(nodes []NodeID, root NodeID, opts KeyOptions) string {
	return g.KeyOfSeveral(nodes, []NodeID{root}, opts)
}

// KeyOfSeveral is Key for a computation that gives several values, those of exits, in that order; with one exit it is
// Key.
func (g *Graph) KeyOfSeveral(nodes, exits []NodeID, opts KeyOptions) string {
	sum := sha256.Sum256(g.appendKey(make([]byte, 0, 1024), nodes, exits, opts))
	return hex.EncodeToString(sum[:])
}

// KeyText returns the text of which Key is the hash: for tests and for finding out why two keys differ.
func (g *Graph) KeyText(nodes []NodeID, root NodeID, opts KeyOptions) string {
	return string(g.appendKey(nil, nodes, []NodeID{root}, opts))
}

func (g *Graph) appendKey(text []byte, nodes, exits []NodeID, opts KeyOptions) []byte {
	g.derived.keyLines.Do(g.computeKeyLines)
	w := keyWriter{g: g, opts: opts, text: append(text, keyVersion+"\n"...),
		number: make(map[NodeID]int32, 2*len(nodes)+2)}
	w.inside = make(map[NodeID]bool, len(nodes))
	for _, id := range nodes {
		w.inside[id] = true
	}
	for _, exit := range exits {
		w.value(exit)
	}
	if len(exits) > 1 {
		w.text = append(w.text, "out"...)
		for _, exit := range exits {
			w.text = append(w.text, ' ')
			w.reference(exit)
		}
		w.text = append(w.text, '\n')
	}
	return w.text
}

// keyWriter writes nodes in the order of a depth-first walk from the root, so that numbers depend on the
// structure alone.
type keyWriter struct {
	g      *Graph
	opts   KeyOptions
	inside map[NodeID]bool
	number map[NodeID]int32
	text   []byte
}

func (w *keyWriter) value(id NodeID) {
	if _, done := w.number[id]; done {
		return
	}
	n := &w.g.Nodes[id]
	switch {
	case n.Kind == KindConstant:
		w.begin(id)
		w.constant(id)
	case w.computed(id):
		if c := n.Callee; c != NoNode {
			if !w.g.placeable[c] && w.g.Nodes[c].Kind != KindVar {
				w.inside[c] = true
			}
			w.value(c)
		}
		for _, v := range n.Inputs {
			w.value(v)
		}
		if len(n.Nested) > 0 {
			w.nested(n)
		}
		w.begin(id)
		w.text = append(w.text, w.g.derived.lines[id]...)
		if n.Callee != NoNode {
			w.text = append(w.text, " call "...)
			w.reference(n.Callee)
		}
		for _, v := range n.Inputs {
			w.text = append(w.text, ' ')
			w.reference(v)
		}
		for _, s := range n.Nested {
			w.text = append(w.text, " scope "...)
			w.reference(w.g.Scopes[s].Root)
		}
	default:
		w.begin(id)
		w.text = append(w.text, "in "...)
		w.text = append(w.text, n.Type.String()...)
	}
	w.text = append(w.text, '\n')
}

// computed says that id is part of the computation, not an input of it: one of the nodes, a literal they call,
// or a node of a scope that one of these opens.
func (w *keyWriter) computed(id NodeID) bool {
	if w.inside[id] {
		return true
	}
	if w.g.Nodes[id].Kind == KindVar {
		return false
	}
	for s := w.g.Nodes[id].Scope; s > 0; {
		owner := w.g.Scopes[s].Owner
		if w.inside[owner] {
			return true
		}
		s = w.g.Nodes[owner].Scope
	}
	return false
}

// nested writes what node n binds and then the scopes it opens.
func (w *keyWriter) nested(n *Node) {
	for _, v := range n.Binds {
		if _, done := w.number[v]; !done {
			w.begin(v)
			w.text = append(w.text, "bind "...)
			w.text = append(w.text, w.g.Nodes[v].Type.String()...)
			w.text = append(w.text, '\n')
		}
	}
	for _, s := range n.Nested {
		w.text = append(w.text, "{\n"...)
		w.value(w.g.Scopes[s].Root)
		w.text = append(w.text, "}\n"...)
	}
}

func (w *keyWriter) begin(id NodeID) {
	w.number[id] = int32(len(w.number))
	w.reference(id)
	w.text = append(w.text, " = "...)
}

func (w *keyWriter) reference(id NodeID) {
	w.text = append(w.text, '%')
	w.text = strconv.AppendInt(w.text, int64(w.number[id]), 10)
}

func (w *keyWriter) constant(id NodeID) {
	n := &w.g.Nodes[id]
	c := n.Constant
	w.text = append(w.text, "const "...)
	w.text = append(w.text, c.DType...)
	for _, d := range c.Shape {
		w.text = append(w.text, ' ')
		w.text = strconv.AppendInt(w.text, d, 10)
	}
	if c.IsWeight() && !w.opts.ConstantContent {
		return
	}
	digest, err := w.g.Digest(id)
	if err != nil {
		digest = "unreadable " + w.g.Name + strconv.Itoa(int(id)) + err.Error()
	}
	w.text = append(w.text, " sha256 "...)
	w.text = append(w.text, digest...)
}

// computeKeyLines writes for each node what a key says about it apart from its operands. Nodes share
// attributes and types by pointer, so these are written once.
func (g *Graph) computeKeyLines() {
	lines := make([]string, len(g.Nodes))
	attrs := map[*Attrs]string{}
	types := map[*Type]string{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind == KindConstant || n.Kind == KindVar {
			continue
		}
		var b strings.Builder
		b.WriteString(n.Kind.String())
		switch n.Kind {
		case KindCall:
			b.WriteByte(' ')
			b.WriteString(n.Op)
		case KindTupleGetItem:
			b.WriteByte(' ')
			b.WriteString(strconv.Itoa(n.Index))
		case KindGlobalVar, KindOpaque:
			b.WriteByte(' ')
			b.WriteString(n.Name)
		}
		if n.Attrs != nil {
			text, ok := attrs[n.Attrs]
			if !ok {
				text = " " + n.Attrs.TypeKey + n.Attrs.Text()
				attrs[n.Attrs] = text
			}
			b.WriteString(text)
		}
		b.WriteString(sortedText(n.FuncAttrs, "global_symbol")) // which is only a name
		if n.Type != nil {
			text, ok := types[n.Type]
			if !ok {
				text = " : " + n.Type.String()
				types[n.Type] = text
			}
			b.WriteString(text)
		}
		lines[i] = b.String()
	}
	g.derived.lines = lines
}

// sortedText writes string attributes as ` [a="x", b="y"]`, sorted, without those named in except; "" for none.
func sortedText(m map[string]string, except ...string) string {
	names := make([]string, 0, len(m))
	for k := range m {
		if !slices.Contains(except, k) {
			names = append(names, k)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	var b strings.Builder
	for i, k := range names {
		if i == 0 {
			b.WriteString(" [")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(k + "=" + strconv.Quote(m[k]))
	}
	b.WriteByte(']')
	return b.String()
}
