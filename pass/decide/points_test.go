// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
)

func TestTheFastestAtEachSizeIsOneThatMayBeKept(t *testing.T) {
	t.Parallel()
	points := []cost.Point{
		{Weight: 0.25, Milliseconds: map[string]float64{"tvm": 0.5, "dnnl": 4, "collage": 2}},
		{Weight: 0.75, Milliseconds: map[string]float64{"tvm": 9, "dnnl": 3, "collage": 6}},
	}
	assert.Equal(t, 0.25*2+0.75*6, mean(points, "collage"))
	assert.Equal(t, 0.25*2+0.75*3, fastestEach(points, map[string]bool{"dnnl": true, "collage": true}))
}
