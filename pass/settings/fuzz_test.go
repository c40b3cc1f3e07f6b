// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzConfig reads the pass's configuration as it comes from Python: it is refused with a reason, or says the same when
// it is written and read again, and nothing in it is below zero.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{"", "{}", " null ",
		`{"backends": ["tvm", "dnnl"], "threads": 2, "samples": 30, "exhaustive": true}`,
		`{"only": "dnnl", "pin": ["nn.conv2d=dnnl"]}`, `{"opt_level": 3, "overhead_ms": 0.05, "disabled_passes": []}`,
		`{"pin": ["%12=tvm"], "forbid": ["conv1/BiasAdd=dnnl"]}`, `{"threads": 1} {"threads": 2}`, `{"threads": -1}`,
		`{"build_timeout_ns": -1}`, `{"run_timeout_ns": -9223372036854775808}`, `{"memory_limit_bytes": -1}`,
		`{"thread": 1}`, `[]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := ParseConfig(text)
		if err != nil {
			var option *OptionError
			require.True(t, errors.As(err, &option))
			return
		}
		if err := cfg.Validate(); err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, cfg.Threads >= 0 && cfg.Samples >= 0 && cfg.MemoryLimit >= 0 && cfg.BuildTimeout >= 0 &&
			cfg.RunTimeout >= 0)
		written, err := json.Marshal(&cfg)
		require.NoError(t, err)
		again, err := ParseConfig(string(written))
		require.NoError(t, err)
		twice, err := json.Marshal(&again)
		require.NoError(t, err)
		require.Equal(t, string(written), string(twice))
		if text != "" && json.Valid([]byte(text)) {
			return
		}
		require.Equal(t, "{}", string(written), "what is no JSON says something")
	})
}
