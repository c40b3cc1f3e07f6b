// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
)

func TestTheMethodThatIsOffTheLeastIsTaken(t *testing.T) {
	t.Parallel()
	methods := []rounding.Method{"a", "b", "c"}
	errors := []cost.Errors{{L2: 0.3, Max: 0.1, Top1: 0.5}, {L2: 0.1, Max: 0.2}, {L2: 0.1, Max: 0.3}}
	for in, want := range map[string]int{cost.L2: 1, cost.Max: 0, cost.Top1: 1} {
		at, tried := least(methods, errors, in)
		assert.Equal(t, want, at, in)
		assert.Equal(t, cost.ScaleMethod{Method: "c", Error: errors[2].In(in)}, tried[2])
	}
	at, _ := least(methods, []cost.Errors{{L2: 0.3}, {L2: 0.2}, {L2: 0.1}}, cost.Top1)
	assert.Equal(t, 2, at, "no row has another greatest element: the length decides")
}

func TestEachMethodHasStepsForEachValue(t *testing.T) {
	t.Parallel()
	seen := &measure.Watched{Values: []rounding.Seen{{High: 4, Counts: []int64{900, 90, 9, 1}},
		{High: 8, Counts: []int64{7}}}}
	steps := stepsOf(seen, []rounding.Method{rounding.MinMax, "percentile:99"})
	assert.Equal(t, [][]rounding.Steps{{rounding.Reaching(0, 4), rounding.Reaching(0, 8)},
		{rounding.Reaching(0, 3), rounding.Reaching(0, 8)}}, steps)
}
