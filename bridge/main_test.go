// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this package run in a process with libtvm, and once more, started by TestRuntimeLibrary, in one
// with libtvm_runtime.
const (
	libtvmEnv  = "COLLAGE_TEST_LIBTVM"
	runtimeEnv = "COLLAGE_TEST_LIBTVM_RUNTIME"
	childEnv   = "COLLAGE_TEST_BRIDGE_CHILD"
)

func TestMain(m *testing.M) {
	path := os.Getenv(libtvmEnv)
	if os.Getenv(childEnv) != "" {
		path = os.Getenv(runtimeEnv)
	}
	if path != "" {
		if err := Load(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// needTVM skips where there is no TVM, and checks at the end of the test that no handle was left behind.
func needTVM(t testing.TB) {
	t.Helper()
	if !Loaded() {
		t.Skipf("set %s (and %s) to the path of the library: `make test` does", libtvmEnv, runtimeEnv)
	}
	Collect()
	before := LiveHandles()
	t.Cleanup(func() {
		Collect()
		if after := LiveHandles(); after != before && !t.Failed() {
			t.Errorf("handles leak: before %+v, after %+v", before, after)
		}
	})
}

// needCompiler is needTVM for what libtvm_runtime does not have.
func needCompiler(t testing.TB) {
	t.Helper()
	needTVM(t)
	if !HasCompiler() {
		t.Skip("libtvm_runtime has no compiler")
	}
}

func TestRuntimeLibrary(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		t.Skip("this is the process with libtvm_runtime")
	}
	if os.Getenv(runtimeEnv) == "" {
		t.Skipf("set %s to the path of libtvm_runtime: `make test` does", runtimeEnv)
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestKindsThroughAGoFunction")
}

func TestLoad(t *testing.T) {
	if !Loaded() {
		err := Load("")
		require.ErrorContains(t, err, "no TVM in this process")
		_, err = Global("runtime.Array")
		require.ErrorIs(t, err, ErrNotLoaded)
		_, err = NewFunction(func([]Value) (any, error) { return nil, nil })
		require.ErrorIs(t, err, ErrNotLoaded)
		_, err = Empty([]int64{1}, Float32, CPU())
		require.ErrorIs(t, err, ErrNotLoaded)
		require.ErrorIs(t, RegisterFunction("collage.test.x", false, func([]Value) (any, error) { return nil, nil }),
			ErrNotLoaded)
	}
	require.ErrorContains(t, Load("/nonexistent/libtvm.so"), "/nonexistent/libtvm.so")
	if !Loaded() {
		return
	}
	require.NoError(t, Load(""))
	require.NoError(t, Load(LibraryPath()))
	other := os.Getenv(runtimeEnv)
	if os.Getenv(childEnv) != "" {
		other = os.Getenv(libtvmEnv)
	}
	if other != "" {
		require.ErrorContains(t, Load(other), "already holds TVM from "+LibraryPath())
	}
	require.Equal(t, os.Getenv(childEnv) == "", HasCompiler())
}
