// SPDX-License-Identifier: Apache-2.0

package tracefile

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

// recorded is a small recording with a clock that goes a second a look.
func recorded() *Recorder {
	began := time.Unix(1000, 0)
	r := New("collage compile", began)
	r.command.pid = 1
	now := began
	r.now = func() time.Time { now = now.Add(time.Second); return now }
	r.Phase("reading").End(Details{"result": "3 operators"})
	r.Phase("searching")
	r.Doing("building 2")
	worker := r.Process(77, "worker")
	build := worker.Begin("build k1", nil)
	build.Part("compile")
	stop := worker.Beside("stopped").Begin("stopped", nil)
	r.Doing("measuring")
	stop.End(nil)
	build.Part("link")
	build.End(nil)
	build.End(Details{"ended": "twice"})
	r.Call("k1", "feedback 1")
	r.Command().Mark("k1", nil)
	r.Value("best so far (ms)", 2.5)
	r.Phase("writing")
	worker.Begin("run k1", Details{"rounds": 3})
	return r
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, recorded().Write(&out, Details{"command": "collage compile x"}))
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, out.Bytes(), "", "  "))
	golden := filepath.Join("testdata", "trace.json")
	if *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		require.NoError(t, os.WriteFile(golden, indented.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), indented.String(), "go test -rewrite writes it anew")
}

func TestNobodyRecords(t *testing.T) {
	var r *Recorder
	r.Phase("x").End(nil)
	r.Doing("y")
	r.Process(1, "p").Beside("q").Begin("b", nil).Part("c")
	r.Command().Mark("m", nil)
	r.Value("v", 1)
	r.Call("a", "b")
	r.Close()
	assert.NoError(t, r.WriteFile(filepath.Join(t.TempDir(), "none", "x.json"), nil))
}
