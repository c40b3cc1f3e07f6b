// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// TVM computes what no engine does while values are looked at, and a tuning log changes its code, whose sums may come
// in another order: what was seen with one log is not taken for what is seen with another.
func TestScalesThatWereFoundWithAnotherTuningLogAreOthers(t *testing.T) {
	tvmtest.Parse(t, `def @main(%x: Tensor[(2), float32]) { %x }`)
	level := 3
	key := func(wide, log string) cost.Key {
		config := Config{Backends: []string{}, Target: "llvm", OptLevel: &level}
		if log != "" {
			config.TuningLog = filepath.Join(t.TempDir(), "log.json")
			require.NoError(t, os.WriteFile(config.TuningLog, []byte(log), 0o644))
		}
		config, err := config.resolved()
		require.NoError(t, err)
		env, err := environment(&config, nil)
		require.NoError(t, err)
		l := watching(&Network{s: &search{cfg: &config, env: env}, Hash: "0123"}, "", nil)
		return l.scalesKey([]relay.NodeID{1, 2}, wide)
	}
	for _, wide := range []string{"tvm", "openvino"} {
		none, one, other := key(wide, ""), key(wide, autoTVMRecord+"\n"), key(wide, autoTVMRecord+"\n"+autoTVMRecord+"\n")
		assert.NotEqual(t, none, one)
		assert.NotEqual(t, one, other)
		assert.Equal(t, one, key(wide, autoTVMRecord+"\n"), "wherever the same log lies")
	}
}
