// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tuner tells how long both take, and is told whether what it found is kept.
func TestWhatTunersAreAnswered(t *testing.T) {
	for tuned, kept := range map[float64]bool{1: true, 1.999: false, 3: false} {
		given, in := io.Pipe()
		out, told := io.Pipe()
		go func() {
			defer told.Close()
			lines := bufio.NewScanner(given)
			lines.Scan()
			spec := lines.Text()
			samples := func(ms float64) []float64 { return []float64{ms, ms, ms, ms, ms, ms, ms, ms * 10} }
			text, _ := json.Marshal(map[string]any{"event": "compared", "default_ms": samples(2),
				"tuned_ms": samples(tuned)})
			fmt.Fprintf(told, "%s\n", text)
			lines.Scan()
			var answer struct{ Keep bool }
			_ = json.Unmarshal(lines.Bytes(), &answer)
			fmt.Fprintf(told, `{"event": "result", "tuner": %q, "tasks": ["a"], "trials": 3, "failed": 1, "kept": %t}`,
				spec, answer.Keep)
		}()
		result, err := converse(in, out, []byte("spec"), nil)
		require.NoError(t, err)
		assert.Equal(t, &TuneResult{Tuner: "spec", Tasks: []string{"a"}, Trials: 3, Failed: 1, Default: 2, Tuned: tuned,
			Kept: kept}, result)
	}
}
