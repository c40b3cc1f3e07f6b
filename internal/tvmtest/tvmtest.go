// SPDX-License-Identifier: Apache-2.0

// Package tvmtest is for Go tests that need TVM: in comes Relay text, out goes the module that the libtvm named by
// COLLAGE_TEST_LIBTVM makes of it. Without that variable the test is skipped.
package tvmtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
)

// Load loads libtvm, or skips the test.
func Load(t testing.TB) {
	t.Helper()
	path := os.Getenv("COLLAGE_TEST_LIBTVM")
	if path == "" {
		t.Skip("COLLAGE_TEST_LIBTVM names no libtvm")
	}
	require.NoError(t, bridge.Load(path))
}

// Parse parses the functions of a module, an IRModule whose types are inferred, or skips the test.
func Parse(t testing.TB, functions string) *bridge.Object {
	t.Helper()
	Load(t)
	v, err := bridge.Global("relay.parser.ParseModule", "test.relay", "#[version = \"0.0.5\"]\n"+functions)
	require.NoError(t, err)
	mod, err := v.Object()
	require.NoError(t, err)
	return mod
}
