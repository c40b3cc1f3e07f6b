// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/tvmtest"
)

// deepModule is tanh(tanh(…(x))), n deep.
func deepModule(t testing.TB, n int) *bridge.Object {
	tvmtest.Load(t)
	typ := Tensor("float32", 4)
	x, err := NewVar("x", typ)
	require.NoError(t, err)
	op, err := Operator("tanh")
	require.NoError(t, err)
	at := x
	for range n {
		at, err = NewCall(op, []*bridge.Object{at}, nil)
		require.NoError(t, err)
	}
	f, err := NewFunction([]*bridge.Object{x}, at, nil)
	require.NoError(t, err)
	mod, err := ModuleFromFunctions(map[string]*bridge.Object{"main": f})
	require.NoError(t, err)
	return mod
}

// copies rewrites g so that every expression is made anew: all variables are replaced by fresh ones.
func copies(t *testing.T, g *Graph) *bridge.Object {
	r := NewRewriter(g)
	for i := range g.Nodes {
		if g.Nodes[i].Kind == KindVar && !boundByMatch(g, NodeID(i)) {
			annotation, err := g.Handle(NodeID(i)).AttrObject("type_annotation")
			require.NoError(t, err)
			v, err := NewVarOfType(g.Nodes[i].Name+"_copy", annotation)
			require.NoError(t, err)
			r.Set(NodeID(i), v)
		}
	}
	f, err := r.Function()
	require.NoError(t, err)
	return f
}

func boundByMatch(g *Graph, v NodeID) bool {
	for i := range g.Nodes {
		if g.Nodes[i].Kind == KindOpaque {
			for _, b := range g.Nodes[i].Binds {
				if b == v {
					return true
				}
			}
		}
	}
	return false
}

func TestRoundTrip(t *testing.T) {
	for name, text := range programs {
		t.Run(name, func(t *testing.T) {
			mod := tvmtest.Parse(t, text)
			m := read(t, mod)
			var changed []GlobalFunction
			for _, g := range m.Functions {
				same, err := NewRewriter(g).Function()
				require.NoError(t, err)
				assert.True(t, same.Same(g.Function()), "nothing changed, so the very same function")
				f := copies(t, g)
				assert.False(t, f.Same(g.Function()))
				changed = append(changed, GlobalFunction{m.GlobalVar(g.Name), f})
			}
			out, err := m.Replace(changed)
			require.NoError(t, err)
			out, err = InferType(out)
			require.NoError(t, err)
			equal, err := StructuralEqual(mod, out)
			require.NoError(t, err)
			assert.True(t, equal, "%s\nis not\n%s", out.Text(), mod.Text())
			// The copy reads as the original does, spans included.
			again := read(t, out)
			for i, g := range m.Functions {
				h := again.Functions[i]
				require.Equal(t, len(g.Nodes), len(h.Nodes))
				for k := range g.Nodes {
					assert.Equal(t, g.Nodes[k].Kind, h.Nodes[k].Kind)
					assert.Equal(t, g.Nodes[k].Attrs, h.Nodes[k].Attrs)
					if g.Nodes[k].Kind == KindCall {
						assert.Equal(t, g.Nodes[k].Span, h.Nodes[k].Span)
					}
				}
			}
		})
	}
}

// Outlining of a region as placement does it: the relu and the add of the helper become a function of their own.
func TestOutline(t *testing.T) {
	m := read(t, tvmtest.Parse(t, programs["functions"]))
	g := m.Function("helper")
	ms := g.Match(Op("nn.relu", Op("add", Wildcard(), IsConstant())), g.Root())
	require.Len(t, ms, 1)

	inside := NewRewriter(g)
	var params []*bridge.Object
	for i, in := range ms[0].Inputs {
		p, err := NewVar(fmt.Sprintf("p%d", i), g.Nodes[in].Type)
		require.NoError(t, err)
		inside.Set(in, p)
		params = append(params, p)
	}
	body, err := inside.Expr(ms[0].Root)
	require.NoError(t, err)
	region, err := NewFunction(params, body, map[string]any{"Compiler": "dnnl", "Primitive": 1,
		"global_symbol": "region_0"})
	require.NoError(t, err)
	variable, err := NewGlobalVar("region_0")
	require.NoError(t, err)

	outside := NewRewriter(g)
	outside.Replace(ms[0].Root, ms[0].Inputs, func(in []*bridge.Object) (*bridge.Object, error) {
		return NewCall(variable, in, nil)
	})
	f, err := outside.Function()
	require.NoError(t, err)
	out, err := m.Replace([]GlobalFunction{{m.GlobalVar("helper"), f}, {variable, region}})
	require.NoError(t, err)
	out, err = InferType(out)
	require.NoError(t, err)
	golden(t, "outlined.txt", func() (s string) {
		for _, g := range read(t, out).Functions {
			s += g.String()
		}
		return s
	}())
	// The module that was read is as it was.
	equal, err := StructuralEqual(m.Object(), tvmtest.Parse(t, programs["functions"]))
	require.NoError(t, err)
	assert.True(t, equal)

	_, err = m.Replace([]GlobalFunction{{variable2(t, "main"), f}})
	assert.EqualError(t, err, "ValueError: the module has another function named main")
}

func variable2(t *testing.T, name string) *bridge.Object {
	v, err := NewGlobalVar(name)
	require.NoError(t, err)
	return v
}

func TestRewriteDeep(t *testing.T) {
	t.Parallel()
	g := read(t, deepModule(t, 50000)).Function("main")
	x, err := NewVar("y", Tensor("float32", 4))
	require.NoError(t, err)
	r := NewRewriter(g)
	r.Set(g.Params[0], x)
	f, err := r.Function()
	require.NoError(t, err)
	h, err := ReadFunction("copy", f)
	require.NoError(t, err)
	assert.Len(t, h.Nodes, 50001)
}

// A DAG in which each node is used twice has 2^n paths: a walk without memory would never end.
func TestRewriteKeepsSharing(t *testing.T) {
	tvmtest.Load(t)
	typ := Tensor("float32", 4)
	x, err := NewVar("x", typ)
	require.NoError(t, err)
	add, err := Operator("add")
	require.NoError(t, err)
	at := x
	for range 100 {
		at, err = NewCall(add, []*bridge.Object{at, at}, nil)
		require.NoError(t, err)
	}
	f, err := NewFunction([]*bridge.Object{x}, at, map[string]any{"Inline": 1, "note": "n"})
	require.NoError(t, err)
	g, err := ReadFunction("main", f)
	require.NoError(t, err)
	assert.Len(t, g.Nodes, 101)
	assert.Equal(t, map[string]string{"Inline": "1", "note": "n"}, g.Attrs)
	h, err := ReadFunction("main", copies(t, g))
	require.NoError(t, err)
	assert.Len(t, h.Nodes, 101)
	assert.Equal(t, g.Attrs, h.Attrs)
}

// TestTypesOfBorders has open dimensions where TVM has expressions of them, in a tuple, too; all others stay TVM's own.
func TestTypesOfBorders(t *testing.T) {
	g := read(t, tvmtest.Parse(t, `def @main(%x: Tensor[(1, 4, ?, 8), float32]) {
  %0 = nn.upsampling(%x, scale_h=2f, scale_w=3f);
  (%x, %0)
}`)).Function("main")
	text := func(o *bridge.Object) string {
		v, err := bridge.Global("node.AsRepr", o)
		require.NoError(t, err)
		said, err := v.Str()
		require.NoError(t, err)
		return said
	}
	theirs, err := g.Handle(g.Root()).AttrObject("_checked_type_")
	require.NoError(t, err)
	require.Contains(t, text(theirs), "T.Cast", "else TVM has plain types, and nothing is to be done")
	whole, err := CheckedType(g.Handle(g.Root()))
	require.NoError(t, err)
	assert.Equal(t, `T.Tuple(I.TensorType([1, 4, T.Any(), 8], "float32"), `+
		`I.TensorType([1, 4, T.Any(), 24], "float32"))`, text(whole))
	theirs, err = g.Handle(g.Params[0]).AttrObject("_checked_type_")
	require.NoError(t, err)
	same, err := CheckedType(g.Handle(g.Params[0]))
	require.NoError(t, err)
	assert.True(t, theirs.Same(same))
}

func TestBuilders(t *testing.T) {
	tvmtest.Load(t)
	data, err := bridge.FromSlice([]float32{1, 2, 3}, 3)
	require.NoError(t, err)
	c, err := NewConstant(data)
	require.NoError(t, err)
	typ := TupleOf(Tensor("float32", 3), Tensor("int64", AnyDim, 1<<40), Tensor("bool"),
		FunctionOf([]*Type{Tensor("int8", 2)}, Tensor("float16")))
	v, err := NewVar("v", typ)
	require.NoError(t, err)
	got, err := NewTupleGetItem(v, 0)
	require.NoError(t, err)
	both, err := NewTuple([]*bridge.Object{got, c})
	require.NoError(t, err)
	f, err := NewFunction([]*bridge.Object{v}, both, nil)
	require.NoError(t, err)
	f, err = WithAttr(f, "Compiler", "dnnl")
	require.NoError(t, err)
	f, err = WithAttr(f, "Primitive", 1)
	require.NoError(t, err)
	g, err := ReadFunction("f", f)
	require.NoError(t, err)
	assert.Equal(t, typ.String(), g.Nodes[g.Params[0]].Type.String())
	assert.Equal(t, map[string]string{"Compiler": "dnnl", "Primitive": "1"}, g.Attrs)
	assert.Equal(t, KindTuple, g.Nodes[g.Root()].Kind)
	_, err = NewVar("v", &Type{Kind: TypeOther, Text: "List[A]"})
	assert.EqualError(t, err, "variable v: TypeError: type List[A] cannot be made")
}

func BenchmarkRewriteResNet50(b *testing.B) {
	g := read(b, tvmtest.Parse(b, resnetText())).Function("main")
	x, err := NewVar("y", g.Nodes[g.Params[0]].Type)
	require.NoError(b, err)
	for b.Loop() {
		r := NewRewriter(g)
		r.Set(g.Params[0], x)
		if _, err := r.Function(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestNothingLeaks(t *testing.T) {
	mod := tvmtest.Parse(t, programs["adt"]+"\n"+strings.ReplaceAll(programs["functions"], "@main", "@other"))
	defer mod.Release()
	once := func() {
		m := read(t, mod)
		var changed []GlobalFunction
		var fresh []*bridge.Object
		for _, g := range m.Functions {
			r := NewRewriter(g)
			for i := range g.Nodes {
				if g.Nodes[i].Op == "tanh" || g.Nodes[i].Op == "nn.relu" {
					r.Replace(NodeID(i), g.Nodes[i].Inputs, func(in []*bridge.Object) (*bridge.Object, error) {
						op, err := Operator("exp")
						require.NoError(t, err)
						defer op.Release()
						c, err := NewCall(op, in, nil)
						fresh = append(fresh, c)
						return c, err
					})
				}
			}
			f, err := r.Function()
			require.NoError(t, err)
			r.Release()
			fresh = append(fresh, f)
			changed = append(changed, GlobalFunction{m.GlobalVar(g.Name), f})
		}
		out, err := m.Replace(changed)
		require.NoError(t, err)
		typed, err := InferType(out)
		require.NoError(t, err)
		out.Release()
		typed.Release()
		for _, o := range fresh {
			o.Release()
		}
		m.Release()
		m.Release()
	}
	once()
	settle := func() bridge.Counts {
		bridge.Collect()
		return bridge.LiveHandles()
	}
	before := settle()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // Release alone must do
	atOnce := bridge.LiveHandles().Total()
	for range 100 {
		once()
	}
	released := bridge.LiveHandles().Total()
	assert.Equal(t, before, settle())
	assert.Equal(t, atOnce, released, "left to the collector")
}

func TestDigestOfWeights(t *testing.T) {
	tvmtest.Load(t)
	whole := func(bump float32) (*Graph, string) {
		values := make([]float32, 4096)
		values[7] = bump
		data, err := bridge.FromSlice(values, 64, 64)
		require.NoError(t, err)
		c, err := NewConstant(data)
		require.NoError(t, err)
		op, err := Operator("tanh")
		require.NoError(t, err)
		y, err := NewCall(op, []*bridge.Object{c}, nil)
		require.NoError(t, err)
		f, err := NewFunction(nil, y, nil)
		require.NoError(t, err)
		g, err := ReadFunction("f", f)
		require.NoError(t, err)
		assert.Empty(t, g.Nodes[0].Constant.Digest, "not read before it is asked for")
		d, err := g.Digest(0)
		require.NoError(t, err)
		return g, d
	}
	g, a := whole(0)
	h, b := whole(0)
	k, c := whole(1)
	assert.Equal(t, a, b)
	assert.NotEqual(t, a, c)
	key := func(g *Graph, content bool) string {
		return g.Key([]NodeID{1}, 1, KeyOptions{ConstantContent: content})
	}
	assert.Equal(t, key(g, true), key(h, true))
	assert.NotEqual(t, key(g, true), key(k, true))
	assert.Equal(t, key(g, false), key(k, false))
	_, err := g.Digest(1)
	assert.EqualError(t, err, "relay: f: node %1 is a call, not a constant")
}
