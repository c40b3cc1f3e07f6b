// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/relay"
)

func folded(t *testing.T, text string) (*relay.Graph, Report) {
	t.Helper()
	out, report, err := Module(tvmtest.Parse(t, text))
	require.NoError(t, err)
	m, err := relay.Read(out)
	require.NoError(t, err)
	return m.Function("main"), report
}

func operatorsOf(g *relay.Graph) []string {
	var ops []string
	for id := range g.Nodes {
		if g.Nodes[id].Kind == relay.KindCall {
			ops = append(ops, g.Nodes[id].Op)
		}
	}
	return ops
}

func TestConstantsBecomeOne(t *testing.T) {
	g, report := folded(t, `def @main(%x: Tensor[(2, 3), float32]) {
  %0 = sqrt(add(3f, 1f));
  %1 = (%0, multiply(%0, 2f), 5f);
  %2 = multiply(%x, %1.1);
  add(%2, %1.2)
}`)
	assert.Equal(t, []string{"multiply", "add"}, operatorsOf(g))
	root := &g.Nodes[g.Root()]
	assert.Equal(t, 5.0, g.Nodes[root.Inputs[1]].Constant.Scalar)
	assert.Equal(t, 4.0, g.Nodes[g.Nodes[root.Inputs[0]].Inputs[1]].Constant.Scalar)
	assert.Zero(t, report.Left)
	assert.Equal(t, 5, report.Folded)
}

func TestShapesOfWhatIsNotConstant(t *testing.T) {
	g, report := folded(t, `def @main(%x: Tensor[(2, 3), float32]) {
  %0 = shape_of(%x, dtype="int64");
  %1 = ndarray_size(%x, dtype="int32");
  (take(%0, 1, axis=0), %1, ndarray_size(mean(%x), dtype="int32"))
}`)
	root := &g.Nodes[g.Root()]
	assert.Equal(t, 3.0, g.Nodes[root.Inputs[0]].Constant.Scalar)
	assert.Equal(t, 6.0, g.Nodes[root.Inputs[1]].Constant.Scalar)
	assert.Equal(t, 1, report.Left, "TVM has its own idea of a scalar's size")
}

func TestWhatIsLeft(t *testing.T) {
	g, report := folded(t, `def @main(%x: Tensor[(2), float32], %c: bool) {
  %0 = tanh(2f);
  %1 = zeros(shape=[2], dtype="float32");
  %2 = add(%1, 1f);
  %3 = annotation.stop_fusion(3f);
  (add(%x, %0), %2, %3, fn (%y: Tensor[(2), float32], Primitive=1) { add(%y, add(1f, 1f)) }(%x))
}`)
	assert.ElementsMatch(t, []string{"tanh", "add", "zeros", "add", "annotation.stop_fusion", "add", "add", ""},
		operatorsOf(g))
	assert.Equal(t, 2, report.Left, "the hyperbolic tangent and the barrier")
	assert.Zero(t, report.Folded)
}

func TestRegionsOfOthersStayAsTheyAre(t *testing.T) {
	mod := tvmtest.Parse(t, `def @main(%x: Tensor[(2), float32]) { @other(%x) }
def @other(%x: Tensor[(2), float32], Compiler="dnnl") -> Tensor[(2), float32] { add(%x, add(1f, 1f)) }`)
	out, report, err := Module(mod)
	require.NoError(t, err)
	assert.True(t, out.Same(mod))
	assert.Zero(t, report)
}

func TestDivisionByZeroSaysWhere(t *testing.T) {
	_, _, err := Module(tvmtest.Parse(t, `def @main(%x: int32) { add(%x, divide(1, 0)) }`))
	require.ErrorIs(t, err, ErrDivision)
	assert.ErrorContains(t, err, "function main: folding constants: %")
	assert.ErrorContains(t, err, "divide")
}

func TestExpressionsAreReadOnce(t *testing.T) {
	tvmtest.Load(t)
	number := func(x float32) *bridge.Object {
		array, err := bridge.FromSlice([]float32{x})
		require.NoError(t, err)
		made, err := relay.NewConstant(array)
		require.NoError(t, err)
		return made
	}
	apply := func(op string, args ...*bridge.Object) *bridge.Object {
		operator, err := relay.Operator(op)
		require.NoError(t, err)
		made, err := relay.NewCall(operator, args, nil)
		require.NoError(t, err)
		return made
	}
	scalarOf := func(o *bridge.Object) float32 {
		require.Equal(t, "relay.Constant", o.TypeKey())
		v, err := o.Attr("data")
		require.NoError(t, err)
		array, err := v.NDArray()
		require.NoError(t, err)
		values, err := bridge.ToSlice[float32](array)
		require.NoError(t, err)
		return values[0]
	}
	e := NewExpressions()
	defer e.Release()

	sum, left, err := e.Fold(apply("add", number(1), number(2)))
	require.NoError(t, err)
	assert.False(t, left)
	assert.Equal(t, float32(3), scalarOf(sum))

	x, err := relay.NewVar("x", relay.Tensor("float32"))
	require.NoError(t, err)
	before := apply("multiply", x, sum)
	same, left, err := e.Fold(before)
	require.NoError(t, err)
	assert.False(t, left)
	assert.True(t, same.Same(before), "there is nothing to fold")

	nodes := len(e.read.Graph().Nodes)
	_, left, err = e.Fold(apply("add", before, apply("tanh", sum)))
	require.NoError(t, err)
	assert.True(t, left)
	assert.Equal(t, nodes+2, len(e.read.Graph().Nodes), "the product is known")

	// TVM may have made anything of it, and is not asked again.
	require.NoError(t, e.Learn(apply("add", before, apply("tanh", number(3)))))
	again, left, err := e.Fold(apply("negative", apply("multiply", number(2), sum)))
	require.NoError(t, err)
	assert.False(t, left)
	assert.Equal(t, float32(-6), scalarOf(again))
}
