// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
)

func TestRegisterAll(t *testing.T) {
	defer byoc.Reset()()
	require.NoError(t, RegisterAll())
	require.NoError(t, RegisterAll(), "a second time")
	for _, name := range []string{"tvm", "dnnl", "mkl", "openblas"} {
		b, err := byoc.Lookup(name)
		require.NoError(t, err)
		require.NoError(t, byoc.Validate(b))
		p := b.Probe()
		if !p.Usable {
			require.NotEmpty(t, p.Reason, name)
			require.NotEmpty(t, p.Remedy, name)
		}
	}
}
