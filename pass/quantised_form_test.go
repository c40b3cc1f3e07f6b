// SPDX-License-Identifier: Apache-2.0

package pass

import (
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
		"a sum of whole numbers that somebody else reads": {product, "qnn.dense"},
		"steps of unknown sums": {
			`qnn.requantize(%b, 0.5f, 0, 1f, 0, axis=0, out_dtype="int8")`, "qnn.requantize"},
		"sums around something else than 0": {
			`qnn.requantize(` + product + `, 0.125f, 2, 2f, 1, axis=1, out_dtype="int8")`, "qnn.dense qnn.requantize"},
	} {
		g := normalisedMain(t, `def @main(%x: Tensor[(2, 8), int8], %w: Tensor[(8, 8), int8], %b: Tensor[(8), int32],
    %s: float32) { `+c.body+` }`)
		assert.Equal(t, c.want, operatorsOf(g), name)
	}
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
