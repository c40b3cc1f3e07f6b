// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestASearchEndsEarlyOnlyWithAResult(t *testing.T) {
	e := &Ending{}
	ctx, done := e.context(context.Background())
	defer done()
	assert.False(t, e.End(), "nothing was built yet")
	assert.NoError(t, ctx.Err())
	e.ready(true)
	assert.True(t, e.End())
	assert.Error(t, ctx.Err())
	assert.True(t, e.asked())
	assert.False(t, e.End(), "once")
	late, done := e.context(context.Background())
	defer done()
	assert.Error(t, late.Err())

	e = &Ending{}
	e.ready(true)
	e.ready(false)
	assert.False(t, e.End(), "the executable is being written")

	var none *Ending
	none.ready(true)
	assert.False(t, none.asked())
	ctx, done = none.context(context.Background())
	defer done()
	assert.NoError(t, ctx.Err())
}
