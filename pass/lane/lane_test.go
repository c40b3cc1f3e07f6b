// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/trace"
)

// noProfiler is a worker that runs whatever it is asked to, and can profile nothing.
const noProfiler = `while read -r line; do
	id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	case "$line" in
	*'"hello"'*) echo '{"id":'$id',"event":"hello","tvm":"0.19.0","pid":'$$'}' ;;
	*) echo '{"id":'$id',"event":"error","phase":"run","kind":"error","detail":"the profiler met a cat"}' ;;
	esac
done`

// Why a network cannot be profiled is the worker's to say, and nothing is said of kernels that it did not run.
func TestWhyANetworkHasNoProfile(t *testing.T) {
	pool, err := measure.NewNetworks(measure.Options{Command: []string{"sh", "-c", noProfiler}}, 1, t.TempDir())
	require.NoError(t, err)
	l := &Lane{pool: pool}
	defer l.Close()
	built := &Executable{Path: "a.so", kernels: &trace.Executable{Kernels: []string{"k", "l"}}}
	_, err = l.profile(context.Background(), built, built)
	require.ErrorIs(t, err, errNoProfile)
	assert.ErrorContains(t, err, "the profiler met a cat")
	assert.NotContains(t, err.Error(), "ran 0")
}
