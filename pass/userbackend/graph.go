// SPDX-License-Identifier: Apache-2.0

package userbackend

import (
	"encoding/json"
	"math"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// graphText is a graph as a proposer in Python sees it.
type graphText struct {
	Function string       `json:"function"`
	Nodes    []nodeText   `json:"nodes"`
	Learnt   []learntText `json:"learnt"`
}

type nodeText struct {
	Index int `json:"index"`
	// Operator is "" for what is no operator call; Kind says what it is then ("tuple", "constant", "variable",
	// "other").
	Operator string         `json:"operator"`
	Kind     string         `json:"kind"`
	Inputs   []relay.NodeID `json:"inputs"`
	Type     string         `json:"type"`
}

type learntText struct {
	Backend   string         `json:"backend"`
	Composite string         `json:"composite"`
	Nodes     []relay.NodeID `json:"nodes"`
	// Milliseconds is null for a candidate that failed.
	Milliseconds *float64 `json:"milliseconds"`
	Failure      string   `json:"failure"`
}

func describeGraph(g *relay.Graph, learnt []byoc.Learnt) (string, error) {
	d := graphText{Function: g.Name, Nodes: make([]nodeText, len(g.Nodes)), Learnt: []learntText{}}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		d.Nodes[i] = nodeText{Index: i, Operator: n.Op, Kind: kindText(n),
			Inputs: append([]relay.NodeID{}, n.Inputs...)}
		if n.Type != nil {
			d.Nodes[i].Type = n.Type.String()
		}
	}
	for _, l := range learnt {
		t := learntText{Backend: l.Backend, Composite: l.Composite, Nodes: l.Nodes, Failure: l.Failure}
		if !math.IsInf(l.Milliseconds, 1) {
			t.Milliseconds = &l.Milliseconds
		}
		d.Learnt = append(d.Learnt, t)
	}
	text, err := json.Marshal(d)
	return string(text), err
}

func kindText(n *relay.Node) string {
	switch n.Kind {
	case relay.KindCall:
		if n.Op != "" {
			return "operator"
		}
	case relay.KindTuple:
		return "tuple"
	case relay.KindTupleGetItem:
		return "projection"
	case relay.KindConstant:
		return "constant"
	case relay.KindVar:
		return "variable"
	}
	return "other"
}
