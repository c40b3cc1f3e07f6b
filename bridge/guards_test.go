// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClaimProcess(t *testing.T) {
	needTVM(t)
	require.NoError(t, ClaimProcess("/first/libcollage.so"))
	t.Cleanup(func() { require.NoError(t, RemoveGlobalFunction(instanceFunction)) })
	require.EqualError(t, ClaimProcess("/second/libcollage.so"),
		"RuntimeError: Collage is already loaded in this process, "+
			"from /first/libcollage.so; a second copy (/second/libcollage.so) cannot work beside it")
}

// newPassContext makes what Python's PassContext(opt_level=2, config=config) makes.
func newPassContext(config map[string]any) (Value, error) {
	// After config: trace_stack, make_traceable, num_evals, tuning_api_database.
	return Global("transform.PassContext", 2, []string{}, []string{}, []any{}, config, []any{}, map[string]any{}, 0,
		nil)
}

func TestPassContextOptions(t *testing.T) {
	needCompiler(t)
	options := map[string]OptionKind{
		"collage.test.string":  OptionString,
		"collage.test.integer": OptionInteger,
		"collage.test.bool":    OptionBool,
		"collage.test.list":    OptionStringList,
	}
	for key, kind := range options {
		require.NoError(t, RegisterPassContextOption(key, kind))
		require.NoError(t, RegisterPassContextOption(key, kind), "a second time does nothing")
	}
	require.Error(t, RegisterPassContextOption("collage.test.x", OptionKind(99)))

	_, set, err := PassContextConfig("collage.test.string")
	require.NoError(t, err)
	require.False(t, set)
	require.NoError(t, OnThread(func() error {
		v, err := newPassContext(map[string]any{"collage.test.string": "text", "collage.test.integer": 7,
			"collage.test.bool": true, "collage.test.list": []string{"a", "b"}})
		if err != nil {
			return err
		}
		context, err := v.Object()
		if err != nil {
			return err
		}
		if _, err := Global("transform.EnterPassContext", context); err != nil {
			return err
		}
		defer Global("transform.ExitPassContext", context)
		v, set, err := PassContextConfig("collage.test.string")
		require.NoError(t, err)
		require.True(t, set)
		require.Equal(t, "text", v.Any())
		v, _, err = PassContextConfig("collage.test.integer")
		require.NoError(t, err)
		n, err := v.Int()
		require.NoError(t, err)
		require.Equal(t, int64(7), n)
		v, _, err = PassContextConfig("collage.test.bool")
		require.NoError(t, err)
		b, err := v.Bool()
		require.NoError(t, err)
		require.True(t, b)
		v, _, err = PassContextConfig("collage.test.list")
		require.NoError(t, err)
		list, err := v.Object()
		require.NoError(t, err)
		items, err := list.Strings()
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, items)
		return nil
	}))
	_, err = newPassContext(map[string]any{"collage.test.integer": "x"})
	require.Error(t, err, "TVM checks the option's type")
}

func TestOptionsNeedTheCompiler(t *testing.T) {
	needTVM(t)
	if HasCompiler() {
		t.Skip("libtvm has it")
	}
	require.Error(t, RegisterPassContextOption("collage.test.string", OptionString))
}
