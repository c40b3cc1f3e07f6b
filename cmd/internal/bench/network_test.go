// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/plan"
)

// A network whose plan has a budget of errors is one of which engines may round otherwise than TVM.
func TestThePlanSaysWhetherThereIsABudget(t *testing.T) {
	t.Parallel()
	for _, budget := range []*plan.Precision{nil, {Allowed: "auto", MaxError: 0.03}} {
		n := Network{}
		n.Describe(&plan.Plan{Precision: budget})
		assert.Equal(t, budget != nil, n.Budgeted)
	}
}
