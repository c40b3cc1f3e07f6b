// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

func TestHowScalesWereMadeIsTold(t *testing.T) {
	t.Parallel()
	assert.Empty(t, methodText(&plan.Precision{}))
	assert.Equal(t, "\nscales of bytes by entropy", methodText(&plan.Precision{Method: "entropy"}))
	assert.Equal(t, "\nscales of bytes by mse, on 8 inputs the best of: mse 0.0123, min-max 0.5",
		methodText(&plan.Precision{Method: "mse", Compared: 8,
			Methods: []cost.ScaleMethod{{Method: "mse", Error: 0.01234}, {Method: "min-max", Error: 0.5}}}))
}
