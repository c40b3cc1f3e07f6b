// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/relay"
)

// operatorsOf are the operators of a graph, in order.
func operatorsOf(g *relay.Graph) string {
	var names []string
	for id := range g.Nodes {
		if n := &g.Nodes[id]; n.Kind == relay.KindCall {
			names = append(names, strings.TrimPrefix(n.Op, "nn."))
		}
	}
	return strings.Join(names, " ")
}

func TestQuantisedForm(t *testing.T) {
	const product = `qnn.dense(%x, %w, 3, 0, 0.5f, 0.25f, units=8, out_dtype="int32")`
	for name, c := range map[string]struct{ body, want string }{
		"a product": {
			`qnn.requantize(` + product + `, 0.125f, 0, 2f, 1, axis=1, out_dtype="int8")`,
			"qnn.dequantize qnn.dequantize dense qnn.quantize"},
		"what is added": {
			`qnn.requantize(add(` + product + `, %b), 0.125f, 0, 2f, 1, axis=1, out_dtype="int8")`,
			"qnn.dequantize qnn.dequantize dense cast multiply add qnn.quantize"},
		"moved bytes": {
			`qnn.dequantize(reshape(clip(%x, a_min=-3f, a_max=9f), newshape=[8, 2]), 0.5f, 3, out_dtype="float32", axis=-1)`,
			"qnn.dequantize clip reshape"},
		"one value, one way back": {
			`add(qnn.dequantize(%x, 0.5f, 3, out_dtype="float32", axis=0), qnn.dequantize(%x, 0.5f, 3, out_dtype="float32", ` +
				`axis=1))`,
			"qnn.dequantize add"},
		"a sum of two": {
			`qnn.add(%x, %x, 0.5f, 3, 0.25f, 3, 1f, 0, lhs_axis=-1, rhs_axis=-1)`,
			"qnn.dequantize qnn.dequantize add qnn.quantize"},
		"a joint": {
			`qnn.concatenate((%x, %x), (0.5f, 0.5f), (3, 4), 1f, 0, axis=1)`,
			"qnn.dequantize qnn.dequantize concatenate qnn.quantize"},
		"a function": {`qnn.sigmoid(%x, 0.5f, 3, 1f, 0)`, "qnn.dequantize sigmoid qnn.quantize"},
		"a scale that comes with the data": {
			`multiply(cast(` + strings.Replace(product, "0.5f, 0.25f", "1f, 1f", 1) + `, dtype="float32"), multiply(%s, 0.25f))`,
			"qnn.dequantize qnn.dequantize dense"},
		"a scale for each of the last axis, which is not that of a square's channels": {
			`qnn.requantize(qnn.conv2d(%i, %k, 3, 0, 0.5f, 0.25f, channels=8, kernel_size=[1, 1], padding=[0, 0, 0, 0], ` +
				`out_dtype="int32"), full(0.5f, shape=[8], dtype="float32"), 0, 2f, 1, axis=3, out_dtype="int8")`,
			"qnn.conv2d qnn.requantize"},
		"a scale for each channel": {
			`qnn.requantize(qnn.conv2d(%i, %k, 3, 0, 0.5f, 0.25f, channels=8, kernel_size=[1, 1], padding=[0, 0, 0, 0], ` +
				`out_dtype="int32"), full(0.5f, shape=[8], dtype="float32"), 0, 2f, 1, axis=1, out_dtype="int8")`,
			"qnn.dequantize qnn.dequantize conv2d qnn.quantize"},
		"half as many digits": {
			`add(qnn.dequantize(%x, 0.5f, 3, out_dtype="float16", axis=-1), ` +
				`qnn.dequantize(%x, 0.5f, 3, out_dtype="float16", axis=-1))`,
			"qnn.dequantize qnn.dequantize add"},
		"several numbers around which moved bytes lie": {
			`qnn.dequantize(transpose(%w, axes=[1, 0]), 0.5f, full(3, shape=[8], dtype="int32"), out_dtype="float32", axis=1)`,
			"transpose qnn.dequantize"},
		"a scale that is no number": {
			`multiply(cast(` + product + `, dtype="float32"), divide(0f, 0f))`,
			"qnn.dequantize qnn.dequantize dense"},
		"a scale that adds a dimension": {
			`multiply(cast(` + product + `, dtype="float32"), full(0.5f, shape=[1, 1, 1], dtype="float32"))`,
			"qnn.dense cast multiply"},
		"a sum of whole numbers that somebody else reads": {product, "qnn.dense"},
		"steps of unknown sums": {
			`qnn.requantize(%b, 0.5f, 0, 1f, 0, axis=0, out_dtype="int8")`, "qnn.requantize"},
		"sums around something else than 0": {
			`qnn.requantize(` + product + `, 0.125f, 2, 2f, 1, axis=1, out_dtype="int8")`, "qnn.dense qnn.requantize"},
	} {
		g := normalisedMain(t, `def @main(%x: Tensor[(2, 8), int8], %w: Tensor[(8, 8), int8], %b: Tensor[(8), int32],
    %s: float32, %i: Tensor[(1, 4, 3, 8), int8], %k: Tensor[(8, 4, 1, 1), int8]) { `+c.body+` }`)
		assert.Equal(t, c.want, operatorsOf(g), name)
	}
}

// The scale that comes with the data takes the place of the data's own, which the sums do not have in them.
func TestScaleThatComesWithTheData(t *testing.T) {
	g := normalisedMain(t, `def @main(%x: Tensor[(2, 8), int8], %w: Tensor[(8, 8), int8], %s: float32) {
  %0 = qnn.dense(%x, %w, 3, 0, 0.5f, 0.25f, units=8, out_dtype="int32");
  multiply(cast(%0, dtype="float32"), multiply(%s, 0.125f))
}`)
	dense := callOf(t, g, "nn.dense")
	data, weight := &g.Nodes[dense.Inputs[0]], &g.Nodes[dense.Inputs[1]]
	assert.Equal(t, relay.KindVar, g.Nodes[data.Inputs[1]].Kind)
	assert.Equal(t, 0.125, g.Nodes[weight.Inputs[1]].Constant.Scalar)
}

// Sums of whole numbers in each of whose steps both sides are the step before: what they are no product of is found out
// once, and not twice as often for each step.
func TestSumsOfNoProduct(t *testing.T) {
	var sums strings.Builder
	for i := range 60 {
		fmt.Fprintf(&sums, "  %%%d = add(%%%d, %%%d);\n", i+1, i, i)
	}
	g := normalisedMain(t, `def @main(%x: Tensor[(2, 8), int8], %b: Tensor[(8), int32]) {
  %0 = add(%b, %b);
`+sums.String()+`  (multiply(cast(%60, dtype="float32"), 0.5f), qnn.dequantize(%x, 0.5f, 0, out_dtype="float32", axis=-1))
}`)
	assert.Equal(t, "int32", g.Nodes[callOf(t, g, "cast").Inputs[0]].Type.DType)
}

// What a clip is at comes over, and the numbers of padding.
func TestQuantisedFormKeepsBounds(t *testing.T) {
	g := normalisedMain(t, `def @main(%x: Tensor[(1, 2, 4, 4), int8]) {
  %0 = nn.pad(clip(%x, a_min=-3f, a_max=9f), cast(5, dtype="int8"), pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
  qnn.dequantize(%0, 0.5f, 3, out_dtype="float32", axis=-1)
}`)
	clip := callOf(t, g, "clip")
	low, _ := clip.Attrs.Float("a_min")
	high, _ := clip.Attrs.Float("a_max")
	assert.Equal(t, []float64{-3, 3}, []float64{low, high}, "(byte - 3) / 2")
	border := g.Nodes[callOf(t, g, "nn.pad").Inputs[1]].Constant
	assert.Equal(t, 1.0, border.Scalar)
}
