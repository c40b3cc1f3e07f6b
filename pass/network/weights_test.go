// SPDX-License-Identifier: Apache-2.0

package network

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/tvmtest"
)

// What is written is what TVM writes.
func TestWeightsAreWrittenAsByTVM(t *testing.T) {
	tvmtest.Load(t)
	require.NoError(t, bridge.OnThread(func() error {
		for _, of := range []struct {
			dtype bridge.DataType
			shape []int64
		}{{bridge.Float32, []int64{3, 1 << 19}}, {bridge.Int8, []int64{7}}, {bridge.Int64, []int64{1, 2, 3}},
			{bridge.Bool, []int64{5}}, {bridge.Float16, []int64{2, 2}}, {bridge.DataType{Code: 4, Bits: 16, Lanes: 1},
				[]int64{4}}} {
			tensor, err := bridge.Empty(of.shape, of.dtype, bridge.CPU())
			require.NoError(t, err)
			content := make([]byte, tensor.Size())
			for i := range content {
				content[i] = byte(i*7 + i>>8)
			}
			require.NoError(t, tensor.CopyFromBytes(content))
			params, err := bridge.NewMap("größe", tensor)
			require.NoError(t, err)
			packed, err := bridge.Global("runtime.SaveParams", params)
			require.NoError(t, err)
			want, err := packed.Bytes()
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "some.params")
			require.NoError(t, saveWeights(path, []weight{{"größe", tensor}}))
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, len(want), len(got))
			assert.True(t, string(want) == string(got), "%v %s", of.shape, of.dtype)
		}
		return nil
	}))
	assert.ErrorContains(t, saveWeights(filepath.Join(t.TempDir(), "none", "some.params"), nil), "no such file")
}
