// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"strconv"
	"strings"
)

var kindNames = [...]string{
	KindVar: "var", KindConstant: "constant", KindGlobalVar: "global", KindCall: "call", KindTuple: "tuple",
	KindTupleGetItem: "tuple-get", KindFunction: "function", KindLet: "let", KindIf: "if",
	KindRefCreate: "ref-create", KindRefRead: "ref-read", KindRefWrite: "ref-write", KindOpaque: "opaque",
}

// String names the kind in lower case ("call", "tuple-get").
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// String writes the graph for people and for goldens: one line a node, nested scopes indented below the node
// that opens them. Names, spans and handles are left out except parameters' names.
func (g *Graph) String() string {
	var b strings.Builder
	b.WriteString("fn ")
	b.WriteString(g.Name)
	writeParams(&b, g, g.Params)
	b.WriteString(sortedText(g.Attrs))
	b.WriteString(" {\n")
	members := make([][]NodeID, len(g.Scopes))
	for i := range g.Nodes {
		s := g.Nodes[i].Scope
		members[s] = append(members[s], NodeID(i))
	}
	g.writeScope(&b, 0, members, "  ")
	b.WriteString("}\n")
	return b.String()
}

func writeParams(b *strings.Builder, g *Graph, params []NodeID) {
	b.WriteByte('(')
	for i, p := range params {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%%%d", p)
		if n := g.Nodes[p].Name; n != "" {
			b.WriteByte(' ')
			b.WriteString(n)
		}
		if t := g.Nodes[p].Type; t != nil {
			b.WriteString(": ")
			b.WriteString(t.String())
		}
	}
	b.WriteByte(')')
}

func (g *Graph) writeScope(b *strings.Builder, s ScopeID, members [][]NodeID, indent string) {
	for _, id := range members[s] {
		n := &g.Nodes[id]
		if n.Kind == KindVar {
			continue // stands where it is bound
		}
		b.WriteString(indent)
		b.WriteString(g.Line(id))
		b.WriteByte('\n')
		for i, inner := range n.Nested {
			b.WriteString(indent)
			b.WriteString(g.scopeTitle(n, i))
			b.WriteString(" {\n")
			g.writeScope(b, inner, members, indent+"  ")
			b.WriteString(indent)
			b.WriteString("}\n")
		}
	}
	fmt.Fprintf(b, "%s%%%d\n", indent, g.Scopes[s].Root)
}

func (g *Graph) scopeTitle(n *Node, i int) string {
	switch n.Kind {
	case KindIf:
		return []string{"then", "else"}[i]
	case KindLet:
		return []string{"value", "body"}[i]
	case KindFunction:
		return "body"
	}
	return "clause " + strconv.Itoa(i)
}

// Line writes one node as String does, without what is nested in it:
// "%7 = nn.relu(%6) : Tensor[(1, 8), float32]".
func (g *Graph) Line(id NodeID) string {
	n := &g.Nodes[id]
	var b strings.Builder
	fmt.Fprintf(&b, "%%%d = ", id)
	switch n.Kind {
	case KindVar:
		b.WriteString("var " + n.Name)
	case KindConstant:
		b.WriteString("const")
		if c := n.Constant; len(c.Shape) == 0 && c.Scalar == c.Scalar {
			b.WriteByte(' ')
			b.WriteString(strconv.FormatFloat(c.Scalar, 'g', -1, 64))
		}
	case KindGlobalVar:
		b.WriteString("@" + n.Name)
	case KindCall:
		if n.Callee != NoNode {
			fmt.Fprintf(&b, "%%%d", n.Callee)
		} else {
			b.WriteString(n.Op)
		}
		writeIDs(&b, n.Inputs)
	case KindTuple:
		writeIDs(&b, n.Inputs)
	case KindTupleGetItem:
		fmt.Fprintf(&b, "%%%d.%d", n.Inputs[0], n.Index)
	case KindFunction:
		b.WriteString("fn ")
		writeParams(&b, g, n.Binds)
	case KindLet:
		fmt.Fprintf(&b, "let %%%d %s", n.Binds[0], g.Nodes[n.Binds[0]].Name)
	default:
		b.WriteString(n.Kind.String())
		if n.Name != "" {
			b.WriteString(" " + n.Name)
		}
		if len(n.Inputs) > 0 {
			b.WriteByte(' ')
			writeIDs(&b, n.Inputs)
		}
	}
	if n.Attrs != nil {
		b.WriteByte(' ')
		b.WriteString(n.Attrs.Text())
	}
	b.WriteString(sortedText(n.FuncAttrs))
	if n.Type != nil {
		b.WriteString(" : ")
		b.WriteString(n.Type.String())
	}
	return b.String()
}

func writeIDs(b *strings.Builder, ids []NodeID) {
	b.WriteByte('(')
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%%%d", id)
	}
	b.WriteByte(')')
}
