// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/plan"
)

func TestTheFrontierOfTimeAgainstError(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Precision: &plan.Precision{Measure: "l2"}, GraphLevel: &plan.GraphLevel{Networks: []plan.Network{
		{Name: "tvm", Ratio: 1, Milliseconds: 10},
		{Name: "dnnl", Ratio: 0.8, Milliseconds: 8, Error: 1e-7},
		{Name: "slower and worse", Ratio: 0.9, Milliseconds: 9, Error: 1e-6},
		{Name: "narrow", Ratio: 0.3, Milliseconds: 3, Error: 0.02, Exceeds: "too far"},
		{Name: "mixed", Ratio: 0.5, Milliseconds: 5, Error: 0.004},
		{Name: "as far off, slower", Ratio: 0.6, Milliseconds: 6, Error: 0.004},
		{Name: "failed", Failure: "crash"},
	}}}
	var names []string
	points := frontier(p)
	for _, n := range points {
		names = append(names, n.Name)
	}
	assert.Equal(t, []string{"tvm", "dnnl", "mixed", "narrow"}, names)
	text := (&Summary{Precision: p.Precision, Frontier: points}).frontierText()
	assert.Contains(t, text, "off by (l2)")
	assert.Regexp(t, `0\.02 +3\.000 +0\.300 +narrow +too far off`, text)

	var written strings.Builder
	require.NoError(t, (&Summary{Precision: p.Precision, Frontier: points}).WriteFrontier(&written))
	assert.Equal(t, text, written.String())
	written.Reset()
	require.NoError(t, (&Summary{}).WriteFrontier(&written))
	assert.Contains(t, written.String(), "No whole network")

	p.Precision = nil
	assert.Nil(t, frontier(p), "errors were not taken")
}
