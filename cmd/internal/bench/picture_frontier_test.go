// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/pass/plan"
)

func TestThePictureOfTheFrontier(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Module: plan.Module{Name: "net.onnx"}, Precision: &plan.Precision{Measure: "l2", MaxError: 0.01},
		GraphLevel: &plan.GraphLevel{Networks: []plan.Network{
			{Name: "tvm", Ratio: 1, Milliseconds: 10}, {Name: "dnnl", Ratio: 0.8, Milliseconds: 8, Error: 1e-7},
			{Name: "narrow", Ratio: 0.3, Milliseconds: 3, Error: 0.02, Exceeds: "too far"},
			{Name: "failed", Failure: "crash"}}}}
	var drawn bytes.Buffer
	require.NoError(t, FrontierPicture(&drawn, p, chart.SVG))
	for _, text := range []string{"<svg", "net.onnx", "off by (l2", "1e-8", "1e-1", "none is faster and less far off"} {
		assert.Contains(t, drawn.String(), text)
	}
	if path := os.Getenv("COLLAGE_TEST_PICTURE"); path != "" { // to look at it
		require.NoError(t, os.WriteFile(path, drawn.Bytes(), 0o644))
	}
	assert.NotContains(t, drawn.String(), "believed")
	drawn.Reset()
	p.Precision.Corners = []plan.Corner{{Milliseconds: 14}, {Milliseconds: 2, Error: 0.3}}
	require.NoError(t, FrontierPicture(&drawn, p, chart.SVG))
	assert.Contains(t, drawn.String(), "believed: corners of all")
	assert.Contains(t, drawn.String(), "1e0", "the axis goes as far")
	p.Precision = nil
	require.ErrorContains(t, FrontierPicture(&drawn, p, chart.SVG), "nothing to draw")
}
