// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWarningsAreErrorsWithStrict(t *testing.T) {
	var told []string
	c := Config{Warn: func(text string) { told = append(told, text) }}
	require.NoError(t, c.Warning("it was late"))
	assert.Equal(t, []string{"it was late"}, told)
	c.Strict = true
	var strict *StrictError
	require.ErrorAs(t, c.Warning("it was late again"), &strict)
	assert.Equal(t, "strict: it was late again", strict.Error())
	assert.Len(t, told, 1)
}

func TestOptionsWithoutEffectAreToldWithStrict(t *testing.T) {
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{Trials: 3}, ""},
		{Config{Level: OperatorLevel}, ""},
		{Config{Level: OperatorLevel, Trials: 3}, "strict: trials: no effect, since the operator level places once"},
		{Config{Only: "dnnl"}, ""},
		{Config{Only: "dnnl", Backends: []string{"tvm"}, Rounds: 2}, "strict: backends, rounds: no effect, since " +
			`only="dnnl" leaves nothing to choose or to measure`},
		{Config{Precision: Precision{Allowed: PrecisionF32}}, ""},
		{Config{Precision: Precision{Allowed: PrecisionBF16}}, "strict: how far the outputs are off would be found on " +
			"random inputs; real ones may be less kind. Give some of them (calibration)"},
		{Config{Precision: Precision{MaxError: 0.1, Calibration: "some.npz"}}, ""},
	} {
		assert.NoError(t, test.config.CheckStrict(), test.config)
		test.config.Strict = true
		if err := test.config.CheckStrict(); test.want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, test.want)
		}
	}
}
