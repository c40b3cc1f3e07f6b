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

	for want, l := range map[string]*plan.Lagrangian{
		"at a price of 25 ms a unit (lambda): 5.000 ms, off by 0.008; none that is within 0.009 takes less than 4.500 ms, " +
			"0.500 ms less\n": {Price: 25, Milliseconds: 5, Error: 0.008, Allowed: 0.009, Bound: 4.5, Gap: 0.5},
		"nothing is within 0.009: the least that was found is off by 0.02\n": {Price: 1e9, Error: 0.02, Allowed: 0.009},
		"the fastest placement is allowed: nothing is paid for them\n":       {Error: 0.001, Allowed: 0.009},
	} {
		told := (&Summary{Precision: &plan.Precision{Measure: "l2", Lagrangian: l}, Frontier: points}).frontierText()
		assert.True(t, strings.HasPrefix(told, text) && strings.HasSuffix(told, want), told)
	}

	corners := &plan.Precision{Measure: "l2", Corners: []plan.Corner{
		{Milliseconds: 8, Operators: map[string]int{"f32": 9}, Price: 1234.5, Gap: 3},
		{Milliseconds: 5, Error: 0.02, Operators: map[string]int{"f32": 2, "int8": 4, "bf16": 3}}}}
	told := (&Summary{Precision: corners, Frontier: points}).frontierText()
	assert.Contains(t, told, "is proven\n")
	assert.Regexp(t, `(?m)^ *0 +8\.000 +3\.000 +1\.23e\+03 +9 f32 *$`, told)
	assert.Regexp(t, `(?m)^ *0\.02 +5\.000 +- +- +2 f32, 3 bf16, 4 int8 *$`, told)
	corners.Corners[0].Unproven = 0.25
	assert.Contains(t, (&Summary{Precision: corners, Frontier: points}).frontierText(), "by 0.250 ms at most\n")

	p.Precision = nil
	assert.Nil(t, frontier(p), "errors were not taken")
}
