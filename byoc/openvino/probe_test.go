// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
)

// Costs are kept by the version: where what is written changes, those of the other form must not be found.
func TestVersionHasTheWritersRevision(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(byoc.PluginDirEnv, folder)
	plugin := filepath.Join(folder, "libcollage_openvino.so")
	require.NoError(t, os.WriteFile(plugin, nil, 0o644))
	file := filepath.Join(folder, "libopenvino_c.so.2641")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	t.Setenv("COLLAGE_OPENVINO_LIBRARY", file)
	for _, b := range []byoc.Backend{New(), NewBF16(), NewINT8()} {
		p := b.Probe()
		if !p.Usable {
			require.NotEqual(t, Name, b.Name(), p.Reason)
			continue // a processor that gains nothing by the narrow type
		}
		require.Equal(t, fmt.Sprintf("2641+collage.%d", writerRevision), p.Version, b.Name())
	}
}
