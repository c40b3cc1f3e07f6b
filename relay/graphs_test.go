// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"math/rand/v2"
)

var act = Tensor("float32", 1, 32, 14, 14)

func conv(m *GraphMaker, in NodeID) NodeID {
	w := m.Const([]int64{32, 32, 3, 3}, "float32", fmt.Sprint(in))
	return m.Call("nn.conv2d", act, map[string]any{"padding": []int{1, 1, 1, 1}, "groups": 1, "out_dtype": ""}, in, w)
}

func biased(m *GraphMaker, in NodeID) NodeID {
	b := m.Const([]int64{32, 1, 1}, "float32", "bias", fmt.Sprint(in))
	return m.Call("add", act, nil, conv(m, in), b)
}

func relu(m *GraphMaker, in NodeID) NodeID { return m.Call("nn.relu", act, nil, in) }

// residual is conv-bias-relu, conv-bias, plus the input, relu: nodes 0 x; 1 w 2 conv 3… as the goldens show.
func residual() *Graph {
	m := NewGraph("main")
	x := m.Var([]int64{1, 32, 14, 14}, "float32")
	a := relu(m, biased(m, x))
	b := biased(m, a)
	return m.Finish(relu(m, m.Call("add", act, nil, b, x)))
}

// branches has an If whose branches use an outer value, a shared one and their own, a Let, and a called literal
// that captures.
func branches() *Graph {
	m := NewGraph("main")
	x := m.Var([]int64{1, 32, 14, 14}, "float32")
	c := m.Var(nil, "bool")
	outer := relu(m, x)
	shared := m.Call("tanh", act, nil, outer)
	then := m.Call("add", act, nil, shared, m.Call("exp", act, nil, outer))
	other := m.Call("multiply", act, nil, shared, m.Scalar(2, "float32"))
	chosen := m.If(c, then, other, act)
	p := m.LocalVar([]int64{1, 32, 14, 14}, "float32")
	captured := m.Call("sqrt", act, nil, outer)
	f := m.Function([]NodeID{p}, m.Call("subtract", act, nil, p, m.Call("negative", act, nil, captured)),
		map[string]string{"Primitive": "1"})
	called := m.CallFunction(f, act, chosen)
	v := m.LocalVar([]int64{1, 32, 14, 14}, "float32")
	body := m.Call("add", act, nil, v, v)
	let := m.Let(v, m.Call("sigmoid", act, nil, called), body)
	return m.Finish(m.Tuple(let, m.Call("cast", act, nil, captured)))
}

// randomGraph is a random graph of one scope in which every node is used: binary and unary operators over
// earlier nodes, loose ends joined by a tuple.
func randomGraph(r *rand.Rand, n int) *Graph {
	m := NewGraph("random")
	x := m.Var([]int64{4}, "float32")
	ids := []NodeID{x}
	loose := map[NodeID]bool{}
	pick := func() NodeID {
		k := len(ids)
		if r.IntN(3) > 0 && k > 4 { // mostly recent nodes, so that the graph is deep
			return ids[k-1-r.IntN(4)]
		}
		return ids[r.IntN(k)]
	}
	t := Tensor("float32", 4)
	for range n {
		var id NodeID
		a := pick()
		delete(loose, a)
		switch r.IntN(4) {
		case 0:
			id = m.Call("nn.relu", t, nil, a)
		case 1:
			id = m.Call("tanh", t, map[string]any{"k": r.IntN(2)}, a)
		default:
			b := pick()
			delete(loose, b)
			id = m.Call([]string{"add", "multiply", "subtract"}[r.IntN(3)], t, nil, a, b)
		}
		ids = append(ids, id)
		loose[id] = true
	}
	var ends []NodeID
	for _, id := range ids {
		if loose[id] {
			ends = append(ends, id)
		}
	}
	if len(ends) == 1 {
		return m.Finish(ends[0])
	}
	return m.Finish(m.Tuple(ends...))
}
