// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const autoTVMRecord = `{"input": ["llvm", "dense_pack.x86", [], {}], "config": {"index": 1}, "result": [[0.1], 0, 1, 2], "version": 0.2}`

func TestTuningDigest(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	one, err := TuningDigest(write("one.json", autoTVMRecord+"\n"))
	require.NoError(t, err)
	require.Len(t, one, 64)
	same, err := TuningDigest(write("same.log", autoTVMRecord+"\n"))
	require.NoError(t, err)
	require.Equal(t, one, same, "the name does not matter")
	two, err := TuningDigest(write("two.json", autoTVMRecord+"\n"+autoTVMRecord+"\n"))
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	_, err = TuningDigest(write("empty.json", ""))
	require.NoError(t, err)

	write("ms/database_workload.json", "[]\n")
	_, err = TuningDigest(filepath.Join(folder, "ms"))
	require.ErrorContains(t, err, "the folder has no database_tuning_record.json, so it is no MetaSchedule database")
	write("ms/database_tuning_record.json", "[]\n")
	_, err = TuningDigest(filepath.Join(folder, "ms"))
	require.NoError(t, err)

	for text, because := range map[string]string{
		"hello\n":                           "is not one of AutoTVM's records",
		`{"collage_cost": 1}` + "\n":        "is not one of AutoTVM's records",
		`{"i": [["x"]], "r": [[1]]}` + "\n": "a log of TVM's auto-scheduler",
	} {
		_, err := TuningDigest(write("bad.json", text))
		require.ErrorContains(t, err, because)
	}
	_, err = TuningDigest(filepath.Join(folder, "absent.json"))
	require.ErrorContains(t, err, "no such file or folder")
}
