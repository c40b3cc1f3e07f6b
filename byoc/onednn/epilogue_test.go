// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// layer is a dense layer with a bias under an activation.
func layer(activation func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID) *relay.Graph {
	m := relay.NewGraph("main")
	y := m.Call("nn.dense", f(4, 8), nil, m.Var([]int64{4, 16}, f32), m.Const([]int64{8, 16}, f32))
	return m.Finish(activation(m, m.Call("add", f(4, 8), nil, y, m.Const([]int64{8}, f32))))
}

func TestActivations(t *testing.T) {
	y := f(4, 8)
	call := func(m *relay.GraphMaker, op string, in ...relay.NodeID) relay.NodeID {
		return m.Call(op, y, nil, in...)
	}
	s := func(m *relay.GraphMaker, v float64) relay.NodeID { return m.Scalar(v, f32) }
	clip := func(m *relay.GraphMaker, x relay.NodeID, low, high float64) relay.NodeID {
		return m.Call("clip", y, map[string]any{"a_min": low, "a_max": high}, x)
	}
	six := func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
		return clip(m, call(m, "add", x, s(m, 3)), 0, 6)
	}
	over := func(m *relay.GraphMaker, x relay.NodeID, v float64) relay.NodeID {
		return call(m, "divide", x, s(m, v))
	}
	times := func(m *relay.GraphMaker, x relay.NodeID, v float64) relay.NodeID {
		return call(m, "multiply", x, s(m, v))
	}
	root := math.Sqrt(2 / math.Pi)
	for _, c := range []struct {
		composite string
		make      func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID
	}{
		{"dnnl.dense_bias_relu", func(m *relay.GraphMaker,
			x relay.NodeID) relay.NodeID {
			return call(m, "nn.relu", x)
		}},
		{"dnnl.dense_bias_tanh", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID { return call(m, "tanh", x) }},
		{"dnnl.dense_bias_sigmoid", func(m *relay.GraphMaker,
			x relay.NodeID) relay.NodeID {
			return call(m, "sigmoid", x)
		}},
		{"dnnl.dense_bias_clip", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return m.Call("clip", y, map[string]any{"a_min": 0.0, "a_max": 6.0}, x)
		}},
		{"dnnl.dense_bias_leaky", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return m.Call("nn.leaky_relu", y, map[string]any{"alpha": 0.1}, x)
		}},
		{"dnnl.dense_bias_swish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", call(m, "sigmoid", x), x)
		}},
		{"dnnl.dense_bias_mish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", x, call(m, "tanh", call(m, "log", call(m, "add", call(m, "exp", x), s(m, 1)))))
		}},
		// ONNX Gelu
		{"dnnl.dense_bias_gelu", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", call(m, "multiply", s(m, 0.5), x),
				call(m, "add", s(m, 1), call(m, "erf", call(m, "divide", x, s(m, math.Sqrt2)))))
		}},
		// exported transformers
		{"dnnl.dense_bias_gelu", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			erf := call(m, "erf", call(m, "divide", x, s(m, 1.4142135)))
			return call(m, "multiply", call(m, "multiply", x, call(m, "add", erf, s(m, 1))), s(m, 0.5))
		}},
		// PyTorch
		{"dnnl.dense_bias_gelu", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			erf := call(m, "erf", call(m, "multiply", x, s(m, math.Sqrt(0.5))))
			return call(m, "multiply", x, call(m, "add", s(m, 0.5), call(m, "multiply", erf, s(m, 0.5))))
		}},
		// GPT-2
		{"dnnl.dense_bias_gelu_tanh", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			cube := times(m, call(m, "power", x, s(m, 3)), 0.044715)
			inner := call(m, "tanh", times(m, call(m, "add", x, cube), root))
			return call(m, "multiply", times(m, x, 0.5), call(m, "add", inner, s(m, 1)))
		}},
		// ONNX's FastGelu
		{"dnnl.dense_bias_gelu_tanh", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			cube := times(m, call(m, "power", x, s(m, 3)), 0.044715*root)
			inner := call(m, "tanh", call(m, "add", times(m, x, root), cube))
			return call(m, "multiply", times(m, x, 0.5), call(m, "add", s(m, 1), inner))
		}},
		{"dnnl.dense_bias_gelu_tanh", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			square := call(m, "multiply", times(m, x, 0.044715), x)
			inner := call(m, "tanh", call(m, "multiply", times(m, x, root), call(m, "add", s(m, 1), square)))
			return call(m, "multiply", times(m, x, 0.5), call(m, "add", s(m, 1), inner))
		}},
		// PyTorch, Keras, ONNX, TensorFlow Lite, and what exporters write
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", x, over(m, six(m, x), 6))
		}},
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", times(m, six(m, x), 1.0/6), x)
		}},
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", x, clip(m, call(m, "add", times(m, x, 0.16666667), s(m, 0.5)), 0, 1))
		}},
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", x, clip(m, call(m, "add", over(m, x, 6), s(m, 0.5)), 0, 1))
		}},
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return over(m, call(m, "multiply", x, six(m, x)), 6)
		}},
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return times(m, call(m, "multiply", six(m, x), x), 1.0/6)
		}},
		{"dnnl.dense_bias_hardswish", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", over(m, x, 6), six(m, x))
		}},
		{"dnnl.dense_bias_hardsigmoid", func(m *relay.GraphMaker,
			x relay.NodeID) relay.NodeID {
			return over(m, six(m, x), 6)
		}},
		{"dnnl.dense_bias_hardsigmoid", func(m *relay.GraphMaker,
			x relay.NodeID) relay.NodeID {
			return times(m, six(m, x), 1.0/6)
		}},
		{"dnnl.dense_bias_hardsigmoid", func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return clip(m, call(m, "add", times(m, x, 0.2), s(m, 0.5)), 0, 1)
		}},
	} {
		t.Run(c.composite, func(t *testing.T) { requireTaken(t, layer(c.make), c.composite) })
	}
	// Almost a hard sigmoid, or a hard swish: other bounds, another divisor, another argument.
	for _, almost := range []func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID{
		func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID { return over(m, six(m, x), 5) },
		func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return over(m, clip(m, call(m, "add", x, s(m, 3)), 0, 5), 6)
		},
		func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return clip(m, call(m, "add", times(m, x, 0.2), s(m, 0.5)), -1, 1)
		},
		func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return clip(m, call(m, "add", call(m, "multiply", x, m.Const([]int64{8}, f32)), s(m, 0.5)), 0, 1)
		},
		func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", x, clip(m, call(m, "add", times(m, x, 0.2), s(m, 0.5)), 0, 1))
		},
		func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			return call(m, "multiply", m.Var(y.Shape, f32), over(m, six(m, x), 6))
		},
	} {
		g := layer(almost)
		accepted, _ := matched(g, g.Root())
		for _, composite := range accepted {
			require.NotContains(t, composite, "hard")
		}
	}
	// Almost a gelu.
	wrong := layer(func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
		erf := call(m, "erf", call(m, "divide", x, s(m, 1.5)))
		return call(m, "multiply", call(m, "multiply", x, call(m, "add", erf, s(m, 1))), s(m, 0.5))
	})
	accepted, _ := matched(wrong, wrong.Scopes[0].Root)
	if len(accepted) != 0 {
		t.Fatalf("accepted %v", accepted)
	}
}

func TestNumbersOfHardSigmoids(t *testing.T) {
	y := f(4, 8)
	for _, c := range []struct{ slope, offset float64 }{{0.2, 0.5}, {-0.5, 0}, {math.Inf(1), 1}} {
		g := layer(func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
			sloped := m.Call("multiply", y, nil, x, m.Scalar(c.slope, f32))
			return m.Call("clip", y, map[string]any{"a_min": 0.0, "a_max": 1.0},
				m.Call("add", y, nil, sloped, m.Scalar(c.offset, f32)))
		})
		for _, r := range ours() {
			if r.Composite != "dnnl.dense_bias_hardsigmoid" {
				continue
			}
			matches := g.Match(r.Shape, g.Root())
			require.Len(t, matches, 1)
			l, err := r.Read(g, matches[0])
			require.NoError(t, err)
			want := &Elementwise{Function: "hardsigmoid", Alpha: c.slope, Beta: c.offset, Data: relay.NoNode}
			require.Equal(t, want, l.(*Product).Epilogue.Activation)
		}
	}
}

func TestLayerNormForms(t *testing.T) {
	full, column := f(2, 4, 8), f(2, 4, 1)
	over := map[string]any{"axis": []int64{-1}, "keepdims": true, "exclude": false}
	form := func(normal func(m *relay.GraphMaker, x, mean, centred relay.NodeID) relay.NodeID,
		gamma *relay.Type) *relay.Graph {
		m := relay.NewGraph("main")
		x := m.Var(full.Shape, f32)
		mean := m.Call("mean", column, over, x)
		n := normal(m, x, mean, m.Call("subtract", full, nil, x, mean))
		scaled := m.Call("multiply", full, nil, n, m.Const(gamma.Shape, f32, "gamma"))
		return m.Finish(m.Call("add", full, nil, scaled, m.Const([]int64{8}, f32, "beta")))
	}
	deviation := func(m *relay.GraphMaker, variance relay.NodeID) relay.NodeID {
		return m.Call("sqrt", column, nil, m.Call("add", column, nil, variance, m.Scalar(1e-5, f32)))
	}
	simplified := func(m *relay.GraphMaker, x, mean, centred relay.NodeID) relay.NodeID {
		return m.Call("divide", full, nil, centred,
			deviation(m, m.Call("variance", column, with(over, "unbiased", false), x, mean)))
	}
	requireTaken(t, form(simplified, f(8)), "dnnl.layer_norm")
	requireRefused(t, form(simplified, f(4, 8)), "dnnl.layer_norm",
		"the gamma of layer_norm has the shape [4, 8]; it must be [8]")
	requireTaken(t, form(func(m *relay.GraphMaker, _, _, centred relay.NodeID) relay.NodeID {
		square := m.Call("power", full, nil, centred, m.Scalar(2, f32))
		return m.Call("divide", full, nil, centred, deviation(m, m.Call("mean", column, over, square)))
	}, f(8)), "dnnl.layer_norm")
	requireTaken(t, form(func(m *relay.GraphMaker, x, mean, centred relay.NodeID) relay.NodeID {
		v := deviation(m, m.Call("variance", column, with(over, "axis", []int64{2}), x, mean))
		return m.Call("multiply", full, nil, centred, m.Call("divide", column, nil, m.Scalar(1, f32), v))
	}, f(8)), "dnnl.layer_norm")
	requireRefused(t, form(func(m *relay.GraphMaker, x, mean, centred relay.NodeID) relay.NodeID {
		return m.Call("divide", full, nil, centred,
			deviation(m, m.Call("variance", column, with(over, "unbiased", true), x, mean)))
	}, f(8)), "dnnl.layer_norm", "the unbiased one")
}

func TestBatchNorm(t *testing.T) {
	norm := func(axis int, field int) *relay.Graph {
		m := relay.NewGraph("main")
		x := m.Var([]int64{1, 8, 4, 4}, f32)
		p := []relay.NodeID{x}
		for _, name := range []string{"gamma", "beta", "mean", "variance"} {
			p = append(p, m.Const([]int64{8}, f32, name))
		}
		types := &relay.Type{Kind: relay.TypeTuple, Fields: []*relay.Type{f(1, 8, 4, 4), f(8), f(8)}}
		bn := m.Call("nn.batch_norm", types, map[string]any{"axis": axis, "epsilon": 1e-5, "center": true,
			"scale": true}, p...)
		return m.Finish(m.Get(bn, field))
	}
	requireTaken(t, norm(1, 0), "dnnl.batch_norm")
	requireTaken(t, norm(-3, 0), "dnnl.batch_norm")
	requireRefused(t, norm(3, 0), "dnnl.batch_norm", "only axis 1")
	g := norm(1, 1)
	if accepted, _ := matched(g, g.Scopes[0].Root); len(accepted) != 0 {
		t.Fatalf("accepted %v", accepted)
	}
}
