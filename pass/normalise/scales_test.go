// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/relay"
)

// normalisedMain is a normalised program's main function.
func normalisedMain(t *testing.T, text string) *relay.Graph {
	t.Helper()
	out, err := Normalise(tvmtest.Parse(t, text), Options{})
	require.NoError(t, err)
	m, err := relay.Read(out)
	require.NoError(t, err)
	for _, g := range m.Functions {
		for id := range g.Nodes {
			require.NotEqual(t, barrierOperator, g.Nodes[id].Op, "a barrier is left")
		}
	}
	return m.Function("main")
}

func callOf(t *testing.T, g *relay.Graph, op string) *relay.Node {
	t.Helper()
	var found *relay.Node
	for id := range g.Nodes {
		if g.Nodes[id].Op == op {
			require.Nil(t, found, "there are several %s", op)
			found = &g.Nodes[id]
		}
	}
	require.NotNil(t, found, "there is no %s", op)
	return found
}

const excited = `def @main(%x: Tensor[(1, 8, 4, 4), float32], %w: Tensor[(8, 8, 1, 1), float32], %g: Tensor[(1, 8, 1, 1), float32])
    -> Tensor[(1, 8, 4, 4), float32] {
  %0 = nn.global_avg_pool2d(%x);
  %1 = sigmoid(%0);
  %2 = multiply(%x, FACTOR);
  nn.conv2d(%2, %w, padding=[0, 0, 0, 0], channels=8, kernel_size=[1, 1])
}`

func TestScalesThatAreComputedOfTheDataStay(t *testing.T) {
	g := normalisedMain(t, strings.ReplaceAll(excited, "FACTOR", "%1"))
	conv := callOf(t, g, "nn.conv2d")
	assert.Equal(t, "multiply", g.Nodes[conv.Inputs[0]].Op)
	assert.Equal(t, relay.KindVar, g.Nodes[conv.Inputs[1]].Kind, "the weight is as it was")
}

func TestOtherScalesAreFoldedIntoWeights(t *testing.T) {
	g := normalisedMain(t, strings.ReplaceAll(excited, "FACTOR", "%g"))
	conv := callOf(t, g, "nn.conv2d")
	assert.Equal(t, relay.KindVar, g.Nodes[conv.Inputs[0]].Kind, "the data is as it was")
	assert.NotEqual(t, relay.KindVar, g.Nodes[conv.Inputs[1]].Kind)
}

// The last number of a function stays with it, so that the function is known; another one goes into the weight.
func TestFunctionsKeepTheirNumbers(t *testing.T) {
	const exported = `def @main(%x: Tensor[(1, 8, 4, 4), float32], %w: Tensor[(8, 8, 1, 1), float32], %g: Tensor[(1, 8, 1, 1), float32])
    -> Tensor[(1, 8, 4, 4), float32] {
  %0 = add(%x, 3f);
  %1 = clip(%0, a_min=0f, a_max=6f);
  %2 = multiply(%x, %1);
  %3 = multiply(%2, NUMBER);
  nn.conv2d(%3, %w, padding=[0, 0, 0, 0], channels=8, kernel_size=[1, 1])
}`
	for number, kept := range map[string]bool{"0.16666667f": true, "%g": false} {
		g := normalisedMain(t, strings.ReplaceAll(exported, "NUMBER", number))
		conv := callOf(t, g, "nn.conv2d")
		scaled := &g.Nodes[conv.Inputs[0]]
		require.Equal(t, "multiply", scaled.Op)
		assert.Equal(t, kept, g.Nodes[scaled.Inputs[0]].Op == "multiply", number)
		assert.Equal(t, kept, g.Nodes[conv.Inputs[1]].Kind == relay.KindVar, number)
	}
}

func TestBuildsLeaveScalesWhereTheyAre(t *testing.T) {
	given := []string{"SimplifyExpr"}
	assert.Equal(t, []string{"SimplifyExpr", "FoldScaleAxis"}, BuildWithout(given))
	assert.Equal(t, []string{"SimplifyExpr"}, given)
}

// TVM's ForwardFoldScaleAxis would end the process.
func TestProductsThatAreSummedAlongOpenDimensionsStay(t *testing.T) {
	for _, between := range []string{"%0", "nn.relu(%0)", "nn.leaky_relu(nn.relu(%0))", "add(%0, add(%n, %n))"} {
		g := normalisedMain(t, `def @main(%x: Tensor[(3, ?), float32], %w: Tensor[(5, ?), float32], %n: float32) {
  %0 = multiply(%x, multiply(%n, 0.25f));
  %1 = `+between+`;
  nn.dense(%1, %w, units=5)
}`)
		kept := slices.IndexFunc(g.Nodes, func(n relay.Node) bool {
			return n.Op == "multiply" && len(n.Type.Shape) == 2
		})
		assert.GreaterOrEqual(t, kept, 0, between)
	}
}

func TestGroupsOfOpenSizesAreRefused(t *testing.T) {
	text := `def @main(%x: Tensor[(?, 4, 2, 2), float32], %s: Tensor[(4), float32], %b: Tensor[(4), float32]) {
  nn.group_norm(%x, %s, %b, num_groups=2)
}`
	_, err := Normalise(tvmtest.Parse(t, text), Options{})
	require.ErrorContains(t, err, "nn.group_norm of Tensor[(?, 4, 2, 2), float32] at test.relay:3:3: TVM cannot write it out")
	normalisedMain(t, strings.Replace(text, "?", "1", 1))
}
