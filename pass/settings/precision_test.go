// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/calibration"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

func TestWhatAPrecisionMayBe(t *testing.T) {
	t.Parallel()
	for _, p := range []settings.Precision{{}, {Allowed: "f32"}, {Allowed: "bf16"}, {Allowed: "int8"},
		{Allowed: "auto", MaxError: 0.5},
		{MaxError: 1e-6, Measure: "max"}, {Allowed: "bf16", Measure: "top1"},
		{Allowed: "int8", CalibrationMethod: "entropy"}, {Allowed: "auto", CalibrationMethod: "percentile:99.9"},
		{Allowed: "auto", CalibrationMethod: "auto", Measure: "max"}} {
		require.NoError(t, p.Validate(), "%+v", p)
	}
	for option, p := range map[string]settings.Precision{
		"precision":     {Allowed: "fp8"},
		"max_error":     {MaxError: -1},
		"error_measure": {Measure: "l1", MaxError: 0.1},
	} {
		var wrong *settings.OptionError
		require.ErrorAs(t, p.Validate(), &wrong)
		assert.Equal(t, option, wrong.Option)
	}
	for method, says := range map[string]string{"percentile:50": "more than 50 and at most 100",
		"percentile:101": "at most 100", "kl": "it is mse, min-max, percentile, entropy or auto", "entropy:7": "only percentile has a number"} {
		require.ErrorContains(t, (&settings.Precision{Allowed: "int8", CalibrationMethod: method}).Validate(),
			"the option calibration_method is \""+method+"\"; ")
		require.ErrorContains(t, (&settings.Precision{Allowed: "int8", CalibrationMethod: method}).Validate(), says)
	}
	require.ErrorContains(t, (&settings.Precision{Allowed: "bf16", CalibrationMethod: "mse"}).Validate(),
		"the option calibration_method goes with the precision int8 or auto")
	require.Error(t, (&settings.Precision{MaxError: 1}).Validate(), "nothing is off by more than that")
	require.Error(t, (&settings.Precision{Measure: "l2"}).Validate(), "a measure of nothing")
}

func TestAMeasureOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scores.py")
	require.NoError(t, os.WriteFile(file, []byte("import math\n\ndef lost(ours, right):\n    return 0\n"), 0o600))
	p := settings.Precision{MaxError: 0.1, Measure: file + ":lost"}
	require.NoError(t, p.Validate())
	taken, err := calibration.Take(&p, nil)
	require.NoError(t, err)
	assert.Equal(t, file, taken.Measure.File)
	assert.Equal(t, "lost", taken.Measure.Function)
	assert.Equal(t, p.Limit().Measure, taken.Measure.Name)
	before := taken.Measure.Digest
	require.NoError(t, os.WriteFile(file, []byte("def lost(ours, right):\n    return 1\n"), 0o600))
	taken, err = calibration.Take(&p, nil)
	require.NoError(t, err)
	assert.NotEqual(t, before, taken.Measure.Digest)
	for measure, told := range map[string]string{
		file + ":none": "has no function of that name", file + ":lo.*": "has no function of that name",
		filepath.Dir(file) + "/other.py:lost": "no such file", "lost": "or FILE.py:FUNCTION",
	} {
		require.ErrorContains(t, (&settings.Precision{MaxError: 0.1, Measure: measure}).Validate(), told)
	}
	relative := settings.Precision{MaxError: 0.1, Measure: "scores.py:lost"}
	assert.True(t, filepath.IsAbs(relative.Limit().Measure), "workers stand in other folders")
}

func TestTheLimitOfAPrecision(t *testing.T) {
	t.Parallel()
	assert.Equal(t, cost.Limit{}, (&settings.Precision{}).Limit())
	assert.Equal(t, cost.Limit{Most: settings.DefaultMaxError, Measure: "l2"},
		(&settings.Precision{Allowed: "bf16"}).Limit())
	assert.Equal(t, cost.Limit{Most: 1e-6, Measure: "max"}, (&settings.Precision{MaxError: 1e-6, Measure: "max"}).Limit())
	none, err := calibration.Take(&settings.Precision{Allowed: "f32"}, nil)
	require.NoError(t, err)
	assert.Nil(t, none)
	_, err = calibration.Take(&settings.Precision{Calibration: "data.npz"}, nil)
	require.ErrorContains(t, err, "the option calibration goes with max_error", "data for nothing")
	taken, err := calibration.Take(&settings.Precision{Allowed: "auto"}, nil)
	require.NoError(t, err)
	for _, held := range taken.HeldOut {
		assert.NotContains(t, taken.Searched, held, "the search has not seen it")
		assert.NotContains(t, taken.Compared, held)
	}
}

// narrowed computes in bfloat16 what another backend of the tests computes in float32.
type narrowed struct {
	byoc.Backend
	wide   string
	usable bool
	in     byoc.Precision // "" for bfloat16
}

func (n narrowed) Precision() byoc.Precision { return cmp.Or(n.in, byoc.BF16) }
func (n narrowed) Wide() string              { return n.wide }
func (n narrowed) Probe() byoc.Probe {
	return byoc.Probe{Usable: n.usable, Reason: "this processor is too old"}
}

func TestBackendsThatComputeNarrowlyAreOfferedWhereThatIsAllowed(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	defer byoc.Reset()()
	define := func(name string) byoc.Backend {
		return byoc.Definition{Name: name, Description: "a backend of the tests", Emit: byoc.ExistingEmitter{},
			Patterns: []byoc.Pattern{{Composite: name + ".dense", Shape: relay.Op("nn.dense")}}}.Backend()
	}
	for _, b := range []byoc.Backend{define("wide"), narrowed{define("slim"), "wide", true, ""}, define("old"),
		narrowed{define("old_slim"), "old", false, ""}, define("bytes"),
		narrowed{define("bytes_slim"), "bytes", true, byoc.INT8}} {
		require.NoError(t, byoc.Register(b))
	}
	offered := func(precision string, names ...string) []string {
		got, err := (&settings.Precision{Allowed: precision}).Offered(names)
		require.NoError(t, err)
		return got
	}
	refused := func(precision string, names ...string) string {
		_, err := (&settings.Precision{Allowed: precision}).Offered(names)
		var wrong *settings.OptionError
		require.True(t, errors.As(err, &wrong), "%v", err)
		return err.Error()
	}
	assert.Equal(t, []string{"wide", "old"}, offered("f32", "wide", "old"))
	assert.Equal(t, []string{"wide", "old", "slim"}, offered("bf16", "wide", "old"))
	assert.Equal(t, []string{"wide", "slim"}, offered("auto", "wide", "slim"), "it is named already")
	assert.Equal(t, []string{"slim"}, offered("bf16", "slim"))
	assert.Equal(t, []string{"old"}, offered("auto", "old"), "there is nothing narrower")
	assert.Equal(t, []string{"wide", "bytes", "slim"}, offered("bf16", "wide", "bytes"))
	assert.Equal(t, []string{"wide", "bytes", "bytes_slim", "slim"}, offered("int8", "wide", "bytes"))
	assert.Equal(t, []string{"wide", "bytes", "bytes_slim", "slim"}, offered("auto", "wide", "bytes"))
	quantised, err := (&settings.Precision{Allowed: "auto", OnlyBytes: true}).Offered([]string{"wide", "bytes"})
	require.NoError(t, err)
	assert.Equal(t, []string{"wide", "bytes", "bytes_slim"}, quantised, "bfloat16 is nothing that its author has allowed")
	assert.Equal(t, "the option precision is int8, in which nothing here computes: none of the backends wide can "+
		"(bytes can)", refused("int8", "wide"))
	assert.Equal(t, "the option backends has bytes_slim, which computes in int8: say precision int8, or auto, too",
		refused("bf16", "bytes_slim"))

	assert.Equal(t, "the option precision is bf16, in which nothing here computes: old cannot: this processor is too old",
		refused("bf16", "old"))
	require.NoError(t, byoc.Register(define("other")))
	assert.Equal(t, "the option precision is bf16, in which nothing here computes: none of the backends other can "+
		"(old, wide can)", refused("bf16", "other"))
	assert.Equal(t, "the option backends has slim, which computes in bf16: say precision bf16, or auto, too",
		refused("f32", "slim"))
}

func TestBiasCorrectionsThatThereAreNot(t *testing.T) {
	t.Parallel()
	for says, p := range map[string]settings.Precision{
		`is "yes"; it is on, off or auto`: {Allowed: settings.PrecisionINT8, BiasCorrection: "yes"},
		"goes with the precision int8":    {Allowed: settings.PrecisionBF16, BiasCorrection: settings.BiasesOn},
	} {
		require.ErrorContains(t, p.Validate(), says)
	}
	for _, biases := range []string{"", settings.BiasesOn, settings.BiasesOff, settings.BiasesAuto} {
		p := settings.Precision{Allowed: settings.PrecisionAuto, BiasCorrection: biases}
		require.NoError(t, p.Validate())
	}
}
