// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/settings"
)

// autoTVM is a line of one of AutoTVM's logs.
const autoTVM = `{"input": ["llvm", "dense_pack.x86", [], {}], "config": {"index": 1}, "result": [[0.1], 0, 1, 2], "version": 0.2}`

func TestTuningLogIsPartOfTheConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.json")
	require.NoError(t, os.WriteFile(path, []byte(autoTVM+"\n"), 0o644))
	level := 3
	cfg, err := settings.Config{Backends: []string{}, TuningLog: path, Target: "llvm", OptLevel: &level}.Resolved()
	require.NoError(t, err)
	require.Regexp(t, `^O3 -EliminateCommonSubexpr -SimplifyExpr tuned:[0-9a-f]{16}$`, buildOptions(&cfg))
	cfg.TuningLog = path + ".absent"
	_, err = cfg.Resolved()
	var option *settings.OptionError
	require.ErrorAs(t, err, &option)
	require.Equal(t, "tuning_log", option.Option)
}
