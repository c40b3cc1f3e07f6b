// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
)

func TestNetworksThatCameQuantised(t *testing.T) {
	for text, quantised := range map[string]bool{
		"nn.relu(%x)": false,
		"qnn.quantize(%x, 0.5f, 0, out_dtype=\"int8\", axis=-1)":                            true,
		"qnn.dequantize(cast(%x, dtype=\"int8\"), 0.5f, 0, out_dtype=\"float32\", axis=-1)": false,
	} {
		found, err := Quantised(tvmtest.Parse(t, "def @main(%x: Tensor[(2, 3), float32]) { "+text+" }"))
		require.NoError(t, err)
		assert.Equal(t, quantised, found, text)
	}
}
