// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
)

// TVM computes what no engine does while values are looked at, and a tuning log changes its code, whose sums may come
// in another order: what was seen with one log is not taken for what is seen with another.
func TestScalesThatWereFoundWithAnotherTuningLogAreOthers(t *testing.T) {
	tvmtest.Parse(t, `def @main(%x: Tensor[(2), float32]) { %x }`)
	level := 3
	key := func(wide, log string) cost.Key {
		config := settings.Config{Backends: []string{}, Target: "llvm", OptLevel: &level}
		if log != "" {
			config.TuningLog = filepath.Join(t.TempDir(), "log.json")
			require.NoError(t, os.WriteFile(config.TuningLog, []byte(log), 0o644))
		}
		config, err := config.Resolved()
		require.NoError(t, err)
		env, err := workers.Environment(&config, nil)
		require.NoError(t, err)
		l := watching(&network.Network{Placing: &placing.Module{Config: &config, Env: env}, Hash: "0123"}, "", nil)
		return l.scalesKey([]relay.NodeID{1, 2}, wide)
	}
	for _, wide := range []string{"tvm", "openvino"} {
		none, one, other := key(wide, ""), key(wide, autoTVMLine+"\n"), key(wide, autoTVMLine+"\n"+autoTVMLine+"\n")
		assert.NotEqual(t, none, one)
		assert.NotEqual(t, one, other)
		assert.Equal(t, one, key(wide, autoTVMLine+"\n"), "wherever the same log lies")
	}
}

// What is compared on calibration data is told by what the data holds, wherever its files lie: an iterable of Python's
// is written into another folder each time.
func TestCalibrationDataIsKnownAgainElsewhere(t *testing.T) {
	key := func(data, folder string) cost.Key {
		l := watching(&network.Network{Placing: &placing.Module{Config: &settings.Config{}}, Hash: "0123"}, "", nil)
		l.options.Data, l.options.Inputs.Compared = data, []measure.Input{{File: folder + "/a.npz", Sample: 3}}
		return l.scalesKey([]relay.NodeID{1, 2}, "tvm")
	}
	assert.Equal(t, key("digest", "/tmp/one"), key("digest", "/tmp/other"))
	assert.NotEqual(t, key("digest", "/tmp/one"), key("another", "/tmp/one"))
	assert.NotEqual(t, key("", "/tmp/one"), key("", "/tmp/other"), "nothing else says which they are")
}

// autoTVMLine is a line of one of AutoTVM's logs.
const autoTVMLine = `{"input": ["llvm", "dense_pack.x86", [], {}], "config": {"index": 1}, "result": [[0.1], 0, 1, 2], "version": 0.2}`
