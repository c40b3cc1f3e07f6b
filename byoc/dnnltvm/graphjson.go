// SPDX-License-Identifier: Apache-2.0

package dnnltvm

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// graphJSON writes the program in the form that TVM's JSONRuntimeBase reads: an attribute is a list that holds one
// list of texts, shapes and dtypes a list with one entry for each result. The text is the same each time.
func (p *program) graphJSON() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"symbol\": %s,\n  \"nodes\": [", quote(Compiler+"_"+p.symbol))
	for i, n := range p.nodes {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n    {\"op\": %s, \"name\": %s", quote(n.op), quote(n.name))
		if n.op == "kernel" {
			b.WriteString(",\n     \"inputs\": ")
			writeEntries(&b, n.inputs)
		}
		b.WriteString(",\n     \"attrs\": {")
		writeAttributes(&b, n)
		b.WriteString("}}")
	}
	b.WriteString("\n  ],\n  \"arg_nodes\": [")
	separator := ""
	for i, n := range p.nodes {
		if n.op != "kernel" {
			b.WriteString(separator + strconv.Itoa(i))
			separator = ", "
		}
	}
	b.WriteString("],\n  \"heads\": ")
	writeEntries(&b, p.heads)
	b.WriteString(",\n  \"node_row_ptr\": [")
	for i := range len(p.nodes) + 1 {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(i)) // each node has one result
	}
	b.WriteString("]\n}\n")
	return b.String()
}

func writeAttributes(b *bytes.Buffer, n programNode) {
	attrs := append([]attribute{}, n.attrs...)
	sort.Slice(attrs, func(i, j int) bool { return attrs[i].name < attrs[j].name })
	if n.op == "kernel" {
		fmt.Fprintf(b, "\"num_inputs\": \"%d\", \"num_outputs\": \"1\", ", len(n.inputs))
	}
	for _, a := range attrs {
		fmt.Fprintf(b, "%s: [[", quote(a.name))
		for i, v := range a.values {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(quote(v))
		}
		b.WriteString("]], ")
	}
	b.WriteString("\"shape\": [[[")
	for i, d := range n.shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatInt(d, 10))
	}
	fmt.Fprintf(b, "]]], \"dtype\": [[%s]]", quote(n.dtype))
}

// writeEntries writes results of nodes as [node, result, version].
func writeEntries(b *bytes.Buffer, nodes []int) {
	b.WriteByte('[')
	for i, n := range nodes {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "[%d, 0, 0]", n)
	}
	b.WriteByte(']')
}

// quote writes a JSON string. TVM's reader knows few escapes, and names are for people only: what would need
// one becomes '_'.
func quote(s string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '_'
		}
		return r
	}, s)
	return `"` + clean + `"`
}
